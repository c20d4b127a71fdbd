// The metrics of the sampler: those of continuous batching in Transformers and its part of tuft.scheduler.* and
// tuft.sampling.*. Confined to the engine thread; every series is bound in advance. Times are in terms of
// Clock::monotonic() of one clock; the sampler reads it twice a step, not once a token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "engine/decode_engine.h"
#include "telemetry/context.h"
#include "telemetry/instrument.h"

namespace tuft::engine {

enum class StepPhase : uint8_t { kPrefill, kDecode, kMixed };
inline constexpr size_t kStepPhases = 3;
std::string_view step_phase_name(StepPhase phase);

class StepMetrics {
 public:
  // `memory_bytes` replaces the limit of a KV cache that has none; 0: unknown.
  StepMetrics(const std::string& base_model, int batch_tokens, int64_t memory_bytes);

  struct Step {
    size_t prefill_tokens = 0;
    size_t decode_tokens = 0;
    size_t sequences = 0;
    size_t adapters = 0;
    bool short_of_blocks = false;  // a sequence waited for blocks or was preempted

    StepPhase phase() const {
      if (prefill_tokens == 0) return StepPhase::kDecode;
      return decode_tokens == 0 ? StepPhase::kPrefill : StepPhase::kMixed;
    }
  };
  void scheduled(const Step& step, size_t active, size_t waiting) const;
  void stepped(const Step& step, Nanos duration) const;
  void overhead(Nanos duration) const;
  void kv_cache(const KvUsage& usage) const;
  void kv_blocks(std::span<const KvBlockTime> times) const;
  // Called when no request runs or waits.
  void idle() const;

  // Called once when a prompt is finished, with its tokens and the number of reused ones.
  void prefix(size_t tokens, size_t cached) const;
  // Called when a sequence of `tokens` tokens is preempted.
  void preempted(const telemetry::SpanContext& trace, size_t tokens) const;
  // Called when a preempted sequence has blocks again; recomputes `tokens` tokens.
  void recomputed(size_t tokens) const;

  void queued(Nanos duration) const;
  void first_token(Nanos since_arrival) const;
  void ended(Nanos since_arrival) const;
  void tokens_after(Nanos since_the_ones_before, size_t tokens) const;
  // `adapter`: the sequence used one.
  void nonfinite_logits(bool adapter) const;
  void rejected(const Error& error) const;

 private:
  // The series of one phase.
  struct Phase {
    Phase(const std::string& base_model, StepPhase phase);
    telemetry::BoundCounter steps;
    telemetry::BoundHistogram duration;
    telemetry::BoundHistogram sequences;
  };

  const std::string base_model_;
  mutable int64_t evicted_ = 0;  // recorded so far
  const double batch_tokens_;
  const int64_t memory_bytes_;
  const std::array<Phase, kStepPhases> phases_;

  const telemetry::BoundHistogram batch_tokens_in_step_;
  const telemetry::BoundHistogram batch_fill_;
  const telemetry::BoundHistogram batch_adapters_;
  const telemetry::BoundHistogram overhead_;
  const telemetry::BoundHistogram queue_;
  const telemetry::BoundHistogram inter_token_;
  const telemetry::BoundCounter nonfinite_of_base_;
  const telemetry::BoundCounter nonfinite_of_adapter_;
  const telemetry::BoundCounter preemptions_;
  const telemetry::BoundCounter recomputed_;
  const telemetry::BoundCounter prefix_queries_;
  const telemetry::BoundCounter prefix_hits_;
  const telemetry::BoundCounter evictions_;
  const telemetry::BoundCounter alloc_failures_;
  const telemetry::BoundHistogram block_lifetime_;
  const telemetry::BoundHistogram block_idle_;
  const telemetry::BoundHistogram block_reuse_gap_;

  const telemetry::BoundGauge active_requests_;
  const telemetry::BoundGauge waiting_requests_;
  const telemetry::BoundGauge decode_prefill_ratio_;
  const telemetry::BoundGauge kv_memory_;
  const telemetry::BoundGauge kv_free_memory_;
  const telemetry::BoundCounter prefill_tokens_processed_;
  const telemetry::BoundCounter decode_tokens_processed_;
  const telemetry::BoundHistogram batch_fill_percentage_;
  const telemetry::BoundHistogram ttft_;
  const telemetry::BoundHistogram request_latency_;
};

}  // namespace tuft::engine
