#include "worker/traced_engine.h"

#include "telemetry/metrics.h"
#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

using engine::AdapterId;
using engine::AdapterState;
using engine::SequenceId;

class TracedEngine final : public engine::Engine {
 public:
  TracedEngine(engine::Engine& inner, const Clock& clock) : inner_(inner), clock_(clock) {}

  Status forward(const engine::Pack& pack, bool keep, std::span<float> logprobs) override {
    static const auto step = telemetry::get_metrics().scheduler_step_duration.with({{"phase", "train"}});
    static const auto batch = telemetry::get_metrics().scheduler_batch_tokens.with({});
    auto span = engine_tracer().start_span("engine.forward", {.attributes = {{"tuft.tokens", pack.tokens.size()},
                                                                             {"tuft.segments", pack.segments.size()},
                                                                             {"tuft.targets", pack.targets.size()}}});
    const Nanos begin = clock_.monotonic();
    Status status = inner_.forward(pack, keep, logprobs);
    step.record(to_seconds(clock_.monotonic() - begin));
    batch.record(static_cast<double>(pack.tokens.size()));
    if (!status.ok()) span.record_error(status.error());
    return status;
  }
  Status backward(std::span<const float> dloss_dlogprobs) override {
    static const auto step = telemetry::get_metrics().scheduler_step_duration.with({{"phase", "train"}});
    auto span = engine_tracer().start_span("engine.backward");
    span.set_attribute("tuft.targets", dloss_dlogprobs.size());
    const Nanos begin = clock_.monotonic();
    Status status = inner_.backward(dloss_dlogprobs);
    step.record(to_seconds(clock_.monotonic() - begin));
    if (!status.ok()) span.record_error(status.error());
    return status;
  }

  const engine::ModelSpec& model() const override { return inner_.model(); }
  std::string_view weights_dtype() const override { return inner_.weights_dtype(); }
  Status create_adapter(const AdapterId& id, const AdapterState& state) override {
    return inner_.create_adapter(id, state);
  }
  Status remove_adapter(const AdapterId& id) override { return inner_.remove_adapter(id); }
  bool has_adapter(const AdapterId& id) const override { return inner_.has_adapter(id); }
  size_t adapter_count() const override { return inner_.adapter_count(); }
  Result<AdapterState> export_adapter(const AdapterId& id, bool with_optimizer) const override {
    return inner_.export_adapter(id, with_optimizer);
  }
  Status import_adapter(const AdapterId& id, const AdapterState& state) override {
    return inner_.import_adapter(id, state);
  }
  Result<engine::OptimReport> optim_step(const AdapterId& id, const engine::AdamParams& params) override {
    return inner_.optim_step(id, params);
  }
  Status clear_gradients(const AdapterId& id) override { return inner_.clear_gradients(id); }
  Result<std::vector<engine::LoraTensor>> gradients(const AdapterId& id) const override { return inner_.gradients(id); }
  Result<SequenceId> open_sequence(const std::optional<AdapterId>& adapter, int tokens_max) override {
    return inner_.open_sequence(adapter, tokens_max);
  }
  Result<SequenceId> fork_sequence(SequenceId source, int tokens_max) override {
    return inner_.fork_sequence(source, tokens_max);
  }
  void close_sequence(SequenceId sequence) override { inner_.close_sequence(sequence); }
  Status step(std::span<const engine::Feed> feeds, const engine::LogitsSink& sink) override {
    return inner_.step(feeds, sink);
  }
  int64_t kv_bytes_used() const override { return inner_.kv_bytes_used(); }
  int64_t kv_bytes_limit() const override { return inner_.kv_bytes_limit(); }

 private:
  engine::Engine& inner_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<engine::Engine> make_traced_engine(engine::Engine& engine, const Clock& clock) {
  return std::make_unique<TracedEngine>(engine, clock);
}

}  // namespace tuft::worker
