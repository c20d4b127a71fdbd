// Spans and metrics of training passes. A pass of one request lies in that request's trace and carries its ids. A pass
// that several requests share is a trace of its own, engine.train_pass: it carries counts only and links to the
// requests; each of them gets a span engine.pass with its own ids and share, which links back.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/train/scheduler.h"
#include "telemetry/trace.h"
#include "worker/operation.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

// A request's part of a pass. Durations are its share of the pass, by tokens.
struct PassPart {
  Nanos begin = 0;
  Nanos computing = 0;
  Nanos pack = 0;  // what comes before and between the others
  Nanos forward = 0;
  Nanos loss = 0;
  Nanos backward = 0;
};

// A request that runs in passes. Engine thread.
class PassMember {
 public:
  virtual ~PassMember() = default;
  virtual telemetry::SpanContext span_context() const = 0;
  // Ids and the index of the pass in its request. What they borrow lives as long as the member.
  virtual std::vector<telemetry::Attribute> pass_keys() const = 0;
  virtual void passed(const PassPart& part) = 0;
};

class PassRecorder final : public engine::PassObserver {
 public:
  // All of them outlive this.
  PassRecorder(TracedTraining& engine, const Clock& clock, const OperationMetrics& metrics, int batch_tokens)
      : engine_(engine), clock_(clock), metrics_(metrics), batch_tokens_(batch_tokens) {}

  // Passes of a member for which there is no memory are not recorded.
  void add(engine::TrainRequestNumber number, PassMember& member) noexcept;
  void remove(engine::TrainRequestNumber number) { members_.erase(number); }

  void pass_begins(const engine::TrainPass& pass) override;
  void pass_ended(const engine::TrainPass& pass, const Status& status) override;

 private:
  struct Present {
    PassMember* member = nullptr;
    engine::PassShare share;
  };

  void begin_merged(const engine::TrainPass& pass);
  void tell(const Present& present, const engine::TrainPass& pass, Nanos end);

  TracedTraining& engine_;
  const Clock& clock_;
  const OperationMetrics& metrics_;
  const int batch_tokens_;
  std::unordered_map<engine::TrainRequestNumber, PassMember*> members_;

  // The state of the pass that runs.
  Nanos begin_ = 0;
  PassTotals before_;
  std::vector<Present> present_;
  telemetry::Span span_;
  std::optional<telemetry::ContextScope> scope_;
};

}  // namespace tuft::worker
