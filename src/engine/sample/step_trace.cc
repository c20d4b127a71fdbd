#include "engine/sample/step_trace.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "telemetry/trace.h"

namespace tuft::engine {
namespace {

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.hf_training_model");
  return instance;
}

// In the order of their first slots.
std::vector<const Request*> requests_of(std::span<const Slot> slots) {
  std::vector<const Request*> requests;
  std::unordered_set<const Request*> seen;
  for (const Slot& slot : slots) {
    if (seen.insert(&slot.request()).second) requests.push_back(&slot.request());
  }
  return requests;
}

}  // namespace

bool StepTrace::is_slow(StepPhase phase, Nanos duration) {
  NewestMean& nanos = means_[static_cast<size_t>(phase)];
  const auto newest = static_cast<double>(duration);
  const bool slow = nanos.is_full() && newest > kSlowFactor * nanos.mean();
  nanos.add(newest);
  return slow;
}

void StepTrace::stepped(const StepMetrics::Step& step, std::span<const Slot> slots, const Times& times,
                        const KvUsage& usage, const Status& status) {
  const int64_t number = steps_++;
  const bool slow = is_slow(step.phase(), times.end - times.begin) && number - last_slow_ >= kSlowPause;
  if (slow) last_slow_ = number;
  if (!slow && number % kEvery != 0) return;
  const std::vector<const Request*> requests = requests_of(slots);
  auto span = tracer().start_span(
      "engine.step", {.parent = telemetry::SpanContext{}, .link = requests.front()->what.trace, .start = times.begin});
  for (size_t i = 1; i < std::min(requests.size(), kLinksMax); ++i) span.add_link(requests[i]->what.trace);
  span.set_attributes({{"tuft.base_model", base_model_},
                       {"tuft.phase", step_phase_name(step.phase())},
                       {"tuft.slow", slow},
                       {"tuft.requests", requests.size()},
                       {"tuft.sequences", step.sequences},
                       {"tuft.prefill_tokens", step.prefill_tokens},
                       {"tuft.decode_tokens", step.decode_tokens},
                       {"tuft.adapters", step.adapters},
                       {"tuft.kv_used_bytes", usage.used}});
  if (!status.ok()) span.record_error(status.error());
  span.end(times.end);
}

}  // namespace tuft::engine
