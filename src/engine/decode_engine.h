// DecodeEngine: sequences with a KV cache, and steps that append tokens to them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/lora.h"

namespace tuft::engine {

using SequenceId = uint32_t;

// New tokens of one open sequence: its whole prompt, a piece of it, or the token that was sampled last.
struct Feed {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
  int logits = 1;  // number of last `tokens` whose logits are requested; 0 .. tokens.size()
};

// One requested row of logits. `feed` is its index in the step, `row` counts the tokens of the feed from 0, `logits`
// has vocab_size unscaled values.
struct LogitsRow {
  size_t feed = 0;
  int row = 0;
  std::span<const float> logits;
};
// Receives some of the requested rows; all calls of a step together are in order of (feed, row). The logits are valid
// during the call. Called on the engine thread; may call run_tasks().
using LogitsSink = std::function<void(std::span<const LogitsRow> rows)>;
// Returns a sink that calls function(feed, row, logits) for each row.
template <typename Function>
LogitsSink for_each_row(Function function) {
  return [function](std::span<const LogitsRow> rows) {
    for (const LogitsRow& one : rows) function(one.feed, one.row, one.logits);
  };
}

// The KV cache, in bytes unless stated otherwise. Sequences take blocks as they grow.
struct KvUsage {
  int64_t used = 0;     // blocks that open sequences hold; a shared block counts once
  int64_t cached = 0;   // blocks that no sequence holds, kept for later prompts until others need them
  int64_t limit = 0;    // of used + cached; 0: no limit
  int64_t block = 0;    // size of one block
  int positions = 0;    // tokens per block
  int64_t evicted = 0;  // cached blocks that were evicted since the start
  int64_t empty = 0;    // part of `used` that holds no token
};

// An observation of one of the watched blocks, which are a sample of all blocks of the KV cache.
struct KvBlockTime {
  enum class What : uint8_t {
    kLifetime,  // from its first use until its content was evicted
    kIdle,      // from its last use until its memory was needed
    kReuseGap,  // from its last use until a prompt reused it
  };
  What what = What::kLifetime;
  Nanos time = 0;
};

// The adapters are those of the engine's AdapterStore. Confined to the engine thread.
class DecodeEngine {
 public:
  virtual ~DecodeEngine() = default;

  // Opens an empty sequence. `adapter` empty: the base model. A sequence shares cached blocks only with sequences of
  // the same `scope` and the same version of the adapter.
  virtual Result<SequenceId> open(const std::optional<AdapterId>& adapter, uint64_t scope) = 0;
  // Opens a sequence with the same past, for several samples of a prompt. Returns kResourceExhausted without a block.
  virtual Result<SequenceId> fork(SequenceId source) = 0;
  // Closes a sequence. Ignores unknown ids.
  virtual void close(SequenceId sequence) = 0;
  // Reuses what the cache holds of `tokens`, the next tokens of the sequence: whole blocks, and fewer tokens than
  // given. Returns how many of them need not be fed. Later logits are bitwise the same as without adopt().
  virtual int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) = 0;
  // Appends tokens to open sequences, each at most once, and passes the requested logits to the sink. Returns
  // kResourceExhausted, without an effect on the sequences, if too few blocks are left.
  virtual Status step(std::span<const Feed> feeds, const LogitsSink& sink) = 0;

  // Calls task(number, thread) once for each number in [0, tasks), also on other threads of the engine, and returns
  // when all have run. `thread` is in [0, threads()) and differs for tasks that run at the same time. They must not
  // throw, and not call the engine.
  using Task = std::function<void(int number, int thread)>;
  virtual void run_tasks(int tasks, const Task& task) {
    for (int number = 0; number < tasks; ++number) task(number, 0);
  }
  virtual int threads() const { return 1; }

  virtual KvUsage kv_usage() const = 0;
  // Returns the newest few hundred observations since the last call.
  virtual std::vector<KvBlockTime> take_kv_block_times() { return {}; }
};

}  // namespace tuft::engine
