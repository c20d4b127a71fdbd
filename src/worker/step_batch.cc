#include "worker/step_batch.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

using Reports = std::vector<Result<engine::OptimReport>>;

// Returns the share of one step in the whole time. The shares are equal if no step was made.
Nanos share_of(Nanos whole, const Result<engine::OptimReport>& report, const Reports& all) {
  int64_t parameters = 0;
  for (const auto& one : all) parameters += one.ok() ? one->parameters : 0;
  if (parameters == 0) return whole / static_cast<Nanos>(all.size());
  const double part = static_cast<double>(report.ok() ? report->parameters : 0) / static_cast<double>(parameters);
  return static_cast<Nanos>(static_cast<double>(whole) * part);
}

// Returns nothing if there is no memory for the steps.
std::optional<Reports> step(engine::TrainingEngine& engine, const std::vector<engine::AdapterStep>& steps) try {
  return engine.optim_steps(steps);
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

}  // namespace

void StepBatch::add(engine::AdapterStep step, StepMember& member) {
  members_.reserve(members_.size() + 1);
  queues_.reserve(queues_.size() + 1);
  std::string queue = member.step_queue();
  steps_.push_back(std::move(step));
  members_.push_back(&member);
  queues_.push_back(std::move(queue));
}

std::vector<std::string> StepBatch::run() {
  const Nanos begin = clock_.monotonic();
  auto reports = step(engine_, steps_);
  const Nanos end = clock_.monotonic();
  TUFT_CHECK(!reports || reports->size() == members_.size(), "an answer for each step");
  record(begin, end);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!reports) {
      members_[i]->stepped(out_of_memory(), 0);
    } else {
      const Nanos computing = share_of(end - begin, (*reports)[i], *reports);
      members_[i]->stepped(std::move((*reports)[i]), computing);
    }
  }
  steps_.clear();
  members_.clear();
  return std::exchange(queues_, {});
}

// Steps for whose record there is no memory have none.
void StepBatch::record(Nanos begin, Nanos end) try {
  metrics_.optim_passes.add(1);
  metrics_.optim_duration.record(to_seconds(end - begin));
  metrics_.optim_runs.record(static_cast<double>(members_.size()));
  if (members_.size() == 1) return;
  auto span = engine_tracer().start_span("engine.optim_pass", {.parent = telemetry::SpanContext{}, .start = begin});
  span.set_attribute("tuft.adapters", members_.size());
  for (StepMember* member : members_) {
    span.add_link(member->step_span().context());
    member->step_span().add_link(span.context());
  }
  span.end(end);
} catch (const std::bad_alloc&) {
}

}  // namespace tuft::worker
