#include "worker/operation_base.h"

#include <new>

#include "metrics/engine.h"
#include "metrics/training.h"
#include "telemetry/instrument.h"

namespace tuft::worker {

OperationMetrics::OperationMetrics(const std::string& base_model) {
  const telemetry::Label model = {"base_model", base_model};
  train_queue = metrics::engine().scheduler_queue_duration.with({model, {"kind", "train"}});
  passes = metrics::engine().scheduler_steps.with({model, {"phase", "train"}});
  pass_duration = metrics::engine().scheduler_step_duration.with({model, {"phase", "train"}});
  pass_sequences = metrics::engine().scheduler_batch_requests.with({model, {"phase", "train"}});
  pass_tokens = metrics::engine().scheduler_batch_tokens.with({model});
  pass_requests = metrics::training().batch_requests.with({model});
  pass_runs = metrics::training().batch_runs.with({model, {"phase", "train"}});
  pass_fill = metrics::training().batch_fill.with({model});
  passes_out_of_memory = metrics::training().ooms.with({model});
  optim_passes = metrics::engine().scheduler_steps.with({model, {"phase", "optim"}});
  optim_duration = metrics::engine().scheduler_step_duration.with({model, {"phase", "optim"}});
  optim_runs = metrics::training().batch_runs.with({model, {"phase", "optim"}});
  pass_adapters = metrics::engine().scheduler_batch_adapters.with({model});
  passes_of_request = metrics::training().passes.with({model});
  load_from_disk = metrics::engine().lora_load_duration.with({model, {"source", "disk"}});
  load_new = metrics::engine().lora_load_duration.with({model, {"source", "new"}});
}

void TracedOperation::begin(EngineContext& context) {
  started_ = context.clock.monotonic();
  keys_ = share_keys(caller_.ids, context.base_model);
  keys_.push_back({subject_.id_key, subject_.id});
  if (const auto rank = context.ranks.find(subject_.adapter); rank != context.ranks.end()) {
    keys_.push_back({"tuft.lora_rank", rank->second});
  }
  span_ =
      engine_tracer().start_span(names_.span, {.attributes = telemetry::Attributes(keys_), .parent = caller_.trace});
  span_.set_attribute("tuft.queue_seconds", queue_seconds());
  const telemetry::ContextScope scope(span_.context());
  telemetry::log_debug(names_.begin, names_.span.view(), telemetry::Attributes(keys_));
}

void TracedOperation::note(telemetry::Attributes attributes) {
  span_.set_attributes(attributes);
  for (const telemetry::Attribute& attribute : attributes) {
    if (attribute.value.kind() != telemetry::AttributeValue::Kind::kString) notes_.push_back(attribute);
  }
}

std::vector<telemetry::Attribute> TracedOperation::log_attributes() const {
  std::vector<telemetry::Attribute> attributes = keys_;
  attributes.insert(attributes.end(), notes_.begin(), notes_.end());
  return attributes;
}

void TracedOperation::end(const Clock& clock) noexcept try {
  auto attributes = log_attributes();
  attributes.push_back({"tuft.seconds", to_seconds(clock.monotonic() - started_)});
  const telemetry::ContextScope scope(span_.context());
  telemetry::log(names_.life_cycle ? telemetry::Severity::kInfo : telemetry::Severity::kDebug, names_.completed,
                 names_.span.view(), telemetry::Attributes(attributes));
  span_.end();
} catch (const std::bad_alloc&) {
  span_.end();
}

void TracedOperation::end(const Error& error) noexcept try {
  if (!begun()) {
    keys_ = share_keys(caller_.ids, {});
    keys_.push_back({subject_.id_key, subject_.id});
    span_ = engine_tracer().start_span(
        names_.span, {.attributes = telemetry::Attributes(keys_), .parent = caller_.trace, .start = caller_.arrived});
  }
  span_.record_error(error);
  auto attributes = log_attributes();
  attributes.push_back({"error.type", error_code_name(error.code)});
  const telemetry::ContextScope scope(span_.context());
  telemetry::log(is_user_error(error.code) ? telemetry::Severity::kWarning : telemetry::Severity::kError, names_.failed,
                 error.message, telemetry::Attributes(attributes));
  span_.end();
} catch (const std::bad_alloc&) {
  span_.end();
}

}  // namespace tuft::worker
