#include "worker/traced_engine.h"

#include <set>
#include <utility>

#include "worker/operation_base.h"
#include "worker/work_count.h"

namespace tuft::worker {
namespace {

using engine::AdapterId;
using engine::AdapterState;
using engine::SequenceId;

int distinct_adapters(const engine::Pack& pack) {
  std::set<AdapterId> adapters;
  for (const engine::Segment& segment : pack.segments) adapters.insert(segment.adapter);
  return static_cast<int>(adapters.size());
}

class MeasuringEngine final : public TracedEngine {
 public:
  MeasuringEngine(engine::Engine& inner, const Clock& clock) : inner_(inner), clock_(clock), work_(inner) {}

  const PassTotals& totals() const override { return totals_; }
  const StepTotals& step_totals() const override { return step_totals_; }
  void set_pass_attributes(std::vector<telemetry::Attribute> attributes) override {
    attributes_ = std::move(attributes);
  }

  Status forward(const engine::Pack& pack, bool keep, std::span<float> logprobs) override {
    const Nanos begin = clock_.monotonic();
    auto span = engine_tracer().start_span("engine.forward",
                                           {.attributes = telemetry::Attributes(attributes_), .start = begin});
    if (span.recording()) {
      span.set_attributes({{"tuft.tokens", pack.tokens.size()},
                           {"tuft.segments", pack.segments.size()},
                           {"tuft.targets", pack.targets.size()},
                           {"tuft.adapters", distinct_adapters(pack)}});
    }
    Status status = inner_.forward(pack, keep, logprobs);
    const Nanos end = clock_.monotonic();
    forward_end_ = end;
    totals_.forward += end - begin;
    totals_.tokens += static_cast<int64_t>(pack.tokens.size());
    totals_.sequences += static_cast<int64_t>(pack.segments.size());
    if (status.ok()) {
      work_.passed_forward(pack, keep, totals_);
    } else {
      span.record_error(status.error());
    }
    span.end(end);
    return status;
  }
  Status backward(std::span<const float> dloss_dlogprobs) override {
    const Nanos begin = clock_.monotonic();
    auto span = engine_tracer().start_span("engine.backward",
                                           {.attributes = telemetry::Attributes(attributes_), .start = begin});
    span.set_attribute("tuft.targets", dloss_dlogprobs.size());
    totals_.loss += begin - forward_end_;
    Status status = inner_.backward(dloss_dlogprobs);
    const Nanos end = clock_.monotonic();
    totals_.backward += end - begin;
    if (status.ok()) {
      work_.passed_backward(dloss_dlogprobs, totals_);
    } else {
      span.record_error(status.error());
    }
    span.end(end);
    return status;
  }

  const engine::ModelSpec& model() const override { return inner_.model(); }
  std::string_view weights_dtype() const override { return inner_.weights_dtype(); }
  Status create_adapter(const AdapterId& id, const AdapterState& state) override {
    Status status = inner_.create_adapter(id, state);
    if (status.ok()) work_.adapter_created(id, state.spec);
    return status;
  }
  Status remove_adapter(const AdapterId& id) override {
    work_.adapter_removed(id);
    return inner_.remove_adapter(id);
  }
  bool has_adapter(const AdapterId& id) const override { return inner_.has_adapter(id); }
  size_t adapter_count() const override { return inner_.adapter_count(); }
  engine::AdapterMemory adapter_memory() const override { return inner_.adapter_memory(); }
  Result<AdapterState> export_adapter(const AdapterId& id, bool with_optimizer) const override {
    return inner_.export_adapter(id, with_optimizer);
  }
  Status import_adapter(const AdapterId& id, const AdapterState& state) override {
    return inner_.import_adapter(id, state);
  }
  Status clone_adapter(const AdapterId& source, const AdapterId& copy) override {
    Status status = inner_.clone_adapter(source, copy);
    if (status.ok()) work_.adapter_cloned(source, copy);
    return status;
  }
  Result<AdapterState> take_adapter(const AdapterId& id) override {
    auto state = inner_.take_adapter(id);
    if (state.ok()) work_.adapter_removed(id);
    return state;
  }
  int64_t adapter_bytes(const engine::LoraSpec& spec, bool trains) const override {
    return inner_.adapter_bytes(spec, trains);
  }
  std::vector<Result<engine::OptimReport>> optim_steps(std::span<const engine::AdapterStep> steps) override {
    return inner_.optim_steps(steps);
  }
  Status clear_gradients(const AdapterId& id) override { return inner_.clear_gradients(id); }
  Status mark_gradients(const AdapterId& id) override { return inner_.mark_gradients(id); }
  Status restore_gradients(const AdapterId& id) override { return inner_.restore_gradients(id); }
  Result<std::vector<engine::LoraTensor>> gradients(const AdapterId& id) const override { return inner_.gradients(id); }
  Result<SequenceId> open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) override {
    auto sequence = inner_.open_sequence(adapter, scope);
    if (sequence.ok()) work_.sequence_opened(*sequence, adapter);
    return sequence;
  }
  Result<SequenceId> fork_sequence(SequenceId source) override {
    auto copy = inner_.fork_sequence(source);
    if (copy.ok()) work_.sequence_forked(source, *copy);
    return copy;
  }
  int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) override {
    const int adopted = inner_.adopt_prefix(sequence, tokens);
    work_.sequence_grew(sequence, adopted);
    return adopted;
  }
  void close_sequence(SequenceId sequence) override {
    work_.sequence_closed(sequence);
    inner_.close_sequence(sequence);
  }
  Status step(std::span<const engine::Feed> feeds, const engine::LogitsSink& sink) override {
    const Nanos begin = clock_.monotonic();
    Status status = inner_.step(feeds, sink);
    step_totals_.time += clock_.monotonic() - begin;
    if (status.ok()) work_.stepped(feeds, step_totals_);
    return status;
  }
  engine::KvUsage kv_usage() const override { return inner_.kv_usage(); }
  engine::DeviceTimes device_times() override { return inner_.device_times(); }
  double peak_flops() const override { return inner_.peak_flops(); }
  std::vector<engine::KvBlockTime> take_kv_block_times() override { return inner_.take_kv_block_times(); }

 private:
  engine::Engine& inner_;
  const Clock& clock_;
  WorkCount work_;
  PassTotals totals_;
  StepTotals step_totals_;
  Nanos forward_end_ = 0;
  std::vector<telemetry::Attribute> attributes_;
};

}  // namespace

std::unique_ptr<TracedEngine> make_traced_engine(engine::Engine& engine, const Clock& clock) {
  return std::make_unique<MeasuringEngine>(engine, clock);
}

}  // namespace tuft::worker
