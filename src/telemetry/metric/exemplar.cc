#include "telemetry/metric/exemplar.h"

#include "telemetry/context.h"
#include "telemetry/record/recording.h"

namespace tuft::telemetry::internal {
namespace {

std::atomic<uint32_t> g_round{1};

// Returns false if the filter leaves the measurement out. A span that is recorded only for the tail sampler is not
// sampled: its trace will usually not be exported.
bool passes(ExemplarFilter filter, const SpanContext& context) {
  return filter == ExemplarFilter::kAlwaysOn || (context.sampled() && context.valid());
}

}  // namespace

void Exemplars::offer(size_t bucket, double value) {
  const ExemplarFilter filter = g_exemplar_filter.load(std::memory_order_relaxed);
  if (filter == ExemplarFilter::kAlwaysOff) return;
  Slot& slot = slots_[bucket];
  const uint32_t round = g_round.load(std::memory_order_relaxed);
  if (slot.round.load(std::memory_order_relaxed) == round) return;
  const SpanContext context = current_context();
  if (!passes(filter, context)) return;
  uint32_t version = slot.version.load(std::memory_order_relaxed);
  if ((version & 1) != 0 || !slot.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire))
    return;
  const bool in_trace = context.valid();
  // These stores release, so that no reader sees one of them without the odd version before it.
  slot.value.store(value, std::memory_order_release);
  slot.wall.store(system_clock().wall(), std::memory_order_release);
  slot.trace_id_high.store(in_trace ? context.trace_id_high : 0, std::memory_order_release);
  slot.trace_id_low.store(in_trace ? context.trace_id_low : 0, std::memory_order_release);
  slot.span_id.store(in_trace ? context.span_id : 0, std::memory_order_release);
  slot.round.store(round, std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

std::vector<Exemplar> Exemplars::read() const {
  std::vector<Exemplar> out;
  for (size_t bucket = 0; bucket < size_; ++bucket) {
    const Slot& slot = slots_[bucket];
    const uint32_t version = slot.version.load(std::memory_order_acquire);
    if (version == 0 || (version & 1) != 0) continue;
    const Exemplar read{.bucket = bucket,
                        .value = slot.value.load(std::memory_order_acquire),
                        .wall = slot.wall.load(std::memory_order_acquire),
                        .trace_id_high = slot.trace_id_high.load(std::memory_order_acquire),
                        .trace_id_low = slot.trace_id_low.load(std::memory_order_acquire),
                        .span_id = slot.span_id.load(std::memory_order_acquire)};
    if (slot.version.load(std::memory_order_relaxed) == version) out.push_back(read);
  }
  return out;
}

void Exemplars::reset() {
  for (size_t bucket = 0; bucket < size_; ++bucket) {
    slots_[bucket].round = 0;
    slots_[bucket].version = 0;
  }
}

void end_exemplar_round() {
  // 0 is the round of an empty slot.
  if (g_round.fetch_add(1, std::memory_order_relaxed) + 1 == 0) g_round.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tuft::telemetry::internal
