// The Engine port: one base model in memory, many adapters, passes for training and steps for sampling.
//
// This is the whole of what a back end must do (engine/native on CPUs, engine/torch on GPUs). What back ends share -
// packing datums into passes, losses, schedules, sampling policies, checkpoints - lies above it and talks to tokens,
// log-probabilities and logits only.
//
// Confined to the engine thread, all of it. One copy of the base weights serves both kinds of work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/lora.h"
#include "engine/model_spec.h"

namespace tuft::engine {

// ---- training

// One sequence of a pass: rows [begin, end) of Pack::tokens, at positions 0, 1, ...
struct Segment {
  AdapterId adapter;
  int begin = 0;
  int end = 0;
  float temperature = 1.0F;  // over 0: the logits are divided by it
};

// Asks for log p(token | rows of the segment up to and including `row`).
struct Target {
  int row = 0;
  int32_t token = 0;
};

// Sequences of any lengths and adapters, one after the other, without padding.
struct Pack {
  std::vector<int32_t> tokens;
  std::vector<Segment> segments;  // cover tokens in order, without gaps
  std::vector<Target> targets;    // ordered by row; a row may have several or none
};

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW computes it.
struct AdamParams {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weight_decay = 0.0;
  double grad_clip_norm = 0.0;  // over all of the adapter's tensors, factor max / (norm + 1e-6); 0: none
};

struct AdapterStep {
  AdapterId adapter;
  AdamParams params;
};

struct OptimReport {
  double grad_norm = 0.0;  // before clipping
  int64_t parameters = 0;  // that the adapter has
  int64_t step = 0;        // after this one
  bool applied = true;     // false: the gradient was not finite, nothing but the gradient was changed (zeroed)
  bool clipped = false;    // the norm was over grad_clip_norm
  bool finite = true;      // false: the step made weights that are not finite, and they stay so
};

// Bytes that adapters hold.
struct AdapterMemory {
  int64_t weights = 0;
  int64_t gradients = 0;  // with marked ones; these and moments: from their first use on
  int64_t optimizer = 0;
};

// ---- sampling

using SequenceId = uint32_t;

// New tokens of one open sequence: its whole prompt, a piece of it, or the token sampled last.
struct Feed {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
  // Logits wanted for the last `logits` of these tokens (0 .. tokens.size()).
  int logits = 1;
};

// Receives the logits of one wanted row: `feed` is the index in the step, `row` counts the feed's tokens from 0,
// `logits` has vocab_size values, unscaled, borrowed for the call. Called on the engine thread in order of (feed, row).
using LogitsSink = std::function<void(size_t feed, int row, std::span<const float> logits)>;

// The KV cache, in bytes. Sequences take blocks as they grow.
struct KvUsage {
  int64_t used = 0;     // blocks that open sequences hold; one that several share counts once
  int64_t cached = 0;   // blocks that none holds, but a later prompt may begin with: given up where others need them
  int64_t limit = 0;    // of both; 0: none
  int64_t block = 0;    // one block
  int positions = 0;    // tokens of a block
  int64_t evicted = 0;  // blocks: cached ones that were given up, since the start
  int64_t empty = 0;    // of `used`: room that holds no token
};

// What became of a block of the KV cache that was watched: one of so many is.
struct KvBlockTime {
  enum class What : uint8_t {
    kLifetime,  // from its first use until its content was given up
    kIdle,      // from its last use until its place was needed
    kReuseGap,  // from its last use until a prompt took it over
  };
  What what = What::kLifetime;
  Nanos time = 0;
};

// Sums since the start of the time that work took on the device, as far as it has ended: where a device runs beside the
// engine thread, the clock around a call does not tell. Zeros where it does.
struct DeviceTimes {
  Nanos forward = 0;
  Nanos backward = 0;
  Nanos optim_step = 0;
  Nanos step = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelSpec& model() const = 0;
  virtual std::string_view weights_dtype() const = 0;  // "f32", "bf16"

  // Adapters. Ids are chosen by the caller; kAlreadyExists and kNotFound say so.
  virtual Status create_adapter(const AdapterId& id, const AdapterState& state) = 0;
  virtual Status remove_adapter(const AdapterId& id) = 0;
  virtual bool has_adapter(const AdapterId& id) const = 0;
  virtual size_t adapter_count() const = 0;
  virtual AdapterMemory adapter_memory() const = 0;
  // A copy of it, with the Adam moments where asked for.
  virtual Result<AdapterState> export_adapter(const AdapterId& id, bool with_optimizer) const = 0;
  // Replaces its tensors (same spec, else kInvalidArgument), zeroes its gradients, and takes state.adam where it has
  // one, else starts with fresh moments.
  virtual Status import_adapter(const AdapterId& id, const AdapterState& state) = 0;
  // Another adapter with the weights that `source` has now, without gradients and moments: to sample from.
  virtual Status clone_adapter(const AdapterId& source, const AdapterId& copy) = 0;
  // Takes it out with all that is in it but the mark: put back by create_adapter() it goes on bit for bit. What failed
  // changed nothing.
  virtual Result<AdapterState> take_adapter(const AdapterId& id) = 0;
  // What an adapter takes at most: one that trains, or one that is only sampled from.
  virtual int64_t adapter_bytes(const LoraSpec& spec, bool trains) const = 0;

  // A pass. forward() writes one log-probability (natural logarithm, f32) per target. With `keep` it
  // keeps what backward() needs; backward() then adds, for every target, dloss/dlogprob to the gradients of the
  // adapters and frees it. The next forward() frees it too. Gradients of an adapter add up until optim_step or
  // clear_gradients, target by target in the order of the packs: neither a segment's results nor an adapter's gradient
  // depend on what else is in the pack, nor on how the segments of an adapter are cut into packs. A backward() that
  // fails leaves the gradients of the pack's adapters undefined, until they are restored or cleared.
  virtual Status forward(const Pack& pack, bool keep, std::span<float> logprobs) = 0;
  virtual Status backward(std::span<const float> dloss_dlogprobs) = 0;

  // AdamW steps of several adapters (each at most once) as one pass over their parameters, each with its accumulated
  // gradient, which is then zero. Without one (no backward() since the last step) nothing changes and no step is
  // counted, as in torch: who pipelines a step behind a pass that fails is not moved by old momentum. One answer for
  // each, in their order: norm, clipping, moments and failure are an adapter's own, the same bits in any company.
  virtual std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep> steps) = 0;
  Result<OptimReport> optim_step(const AdapterId& id, const AdamParams& params) {
    const AdapterStep step{id, params};
    return std::move(optim_steps({&step, 1}).front());
  }
  virtual Status clear_gradients(const AdapterId& id) = 0;
  // Remembers the gradient as it is now. Costs a copy, and nothing where it is zero. Another mark takes its place;
  // clear_gradients, optim_step and import_adapter end it.
  virtual Status mark_gradients(const AdapterId& id) = 0;
  // Puts back the gradient of the mark, which stays. kFailedPrecondition without one.
  virtual Status restore_gradients(const AdapterId& id) = 0;
  // Accumulated gradient in AdapterState order (tests, diagnostics).
  virtual Result<std::vector<LoraTensor>> gradients(const AdapterId& id) const = 0;

  // Sequences with a KV cache for sampling. `adapter` empty: the base model. What a sequence computed may be taken over
  // by others of the same scope and the same version of the adapter, and by nobody else.
  virtual Result<SequenceId> open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) = 0;
  // A second sequence with the same past, for several samples of one prompt. kResourceExhausted where it needs a block
  // and there is none.
  virtual Result<SequenceId> fork_sequence(SequenceId source) = 0;
  virtual void close_sequence(SequenceId sequence) = 0;
  // Takes over what is in the cache of the next `tokens`: whole blocks, and fewer tokens than these. Gives how many
  // need not be fed. Logits afterwards are the same bits as without.
  virtual int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) = 0;
  // Appends tokens to open sequences (each at most once a step) and hands out the logits that are asked for.
  // kResourceExhausted, and nothing changed, where they need more blocks than there are.
  virtual Status step(std::span<const Feed> feeds, const LogitsSink& sink) = 0;
  virtual KvUsage kv_usage() const = 0;

  // Asking never waits for the device.
  virtual DeviceTimes device_times() { return {}; }
  // Of the device and the type that it computes in, dense: FLOP/s, a fused multiply-add being two. 0: not known.
  virtual double peak_flops() const { return 0; }
  // What has come together since the last call; the newest few hundred.
  virtual std::vector<KvBlockTime> take_kv_block_times() { return {}; }
};

}  // namespace tuft::engine
