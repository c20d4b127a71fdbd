// The common part of the operations: a queue, a span from the first piece to the answer, log events, one reply.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/log.h"
#include "worker/operation.h"
#include "worker/share_keys.h"

namespace tuft::worker {

inline telemetry::Tracer engine_tracer() {
  static const telemetry::Tracer tracer = telemetry::get_tracer("tuft.hf_training_model");
  return tracer;
}

// The names of an operation's span and log events.
struct OperationNames {
  telemetry::Name span;
  telemetry::Name begin;
  telemetry::Name completed;
  telemetry::Name failed;
  bool life_cycle = false;  // `completed` is INFO, else DEBUG
};

// The adapter or sampler that an operation works on.
struct Subject {
  telemetry::Name id_key;  // attribute of spans and logs
  std::string id;
  engine::AdapterId adapter;  // also the name of the queue
};

template <typename Request>
Subject subject_of(const Request& request) {
  if constexpr (requires { request.adapter_id(); }) {
    return {"tuft.lora_id", request.adapter_id(), training_adapter(request.adapter_id())};
  } else {
    return {"tuft.sampler_id", request.sampler_id(), sampler_adapter(request.sampler_id())};
  }
}

// The part of an operation that does not depend on its message types. Its attributes borrow its ids, so it must not
// move.
class TracedOperation : public Operation {
 public:
  TracedOperation(OperationNames names, Subject subject, Caller caller)
      : names_(names), subject_(std::move(subject)), caller_(std::move(caller)) {}

  const std::string& queue() const final { return subject_.adapter.str(); }
  telemetry::SpanContext cause() const final { return caller_.trace; }
  std::string tenant() const final { return caller_.ids.tenant(); }

 protected:
  const std::string& id() const { return subject_.id; }
  const engine::AdapterId& adapter() const { return subject_.adapter; }
  telemetry::Span& span() { return span_; }
  const telemetry::Span& span() const { return span_; }
  // Adds attributes to the span, and numbers and flags to the log event of the end.
  void note(telemetry::Attributes attributes);
  // Returns the share keys, the id and the rank.
  const std::vector<telemetry::Attribute>& keys() const { return keys_; }
  // Returns the time from the arrival to the begin. A subclass may count more of its time as waiting.
  virtual double queue_seconds() const { return to_seconds(started_ - arrived()); }
  Nanos arrived() const { return caller_.arrived; }
  Nanos started() const { return started_; }

  void begin(EngineContext& context);
  bool begun() const { return started_ != 0; }
  // An end for whose record there is no memory is not logged: what was done is done, and is answered.
  void end(const Clock& clock) noexcept;
  void end(const Error& error) noexcept;

 private:
  std::vector<telemetry::Attribute> log_attributes() const;

  const OperationNames names_;
  const Subject subject_;
  const Caller caller_;
  Nanos started_ = 0;
  std::vector<telemetry::Attribute> keys_;
  std::vector<telemetry::Attribute> notes_;
  telemetry::Span span_;
};

// The operation of one method. Subclasses implement run().
template <typename Method>
class MethodOperation : public TracedOperation {
 public:
  using Request = typename Method::Request;
  using Response = typename Method::Response;

  MethodOperation(OperationNames names, Call<Method> call)
      : TracedOperation(names, subject_of(call.request), std::move(call.caller)),
        request_(call.request),
        reply_(std::move(call.reply)) {}

  Progress advance(EngineContext& context) final {
    if (!begun()) begin(context);
    const telemetry::ContextScope scope(span().context());
    auto progress = check().ok() ? run(context, response_) : Result<Progress>(check().error());
    if (!progress.ok()) {
      fail(progress.error());
      return Progress::kDone;
    }
    if (*progress == Progress::kDone) {
      response_.set_queue_seconds(queue_seconds());
      end(context.clock);
      reply_(std::move(response_));
    }
    return *progress;
  }

  void file_failed(const Error& error) final { file_error_ = copy_of(error); }

  void fail(const Error& error) final {
    end(error);
    reply_(copy_of(error));
  }

 protected:
  // Valid until the reply.
  const Request& request() const { return request_; }
  // Runs the next piece. Returns kDone when `response` is complete.
  virtual Result<Progress> run(EngineContext& context, Response& response) = 0;

 private:
  Status check() const {
    if (file_error_) return *file_error_;
    if (id().empty()) return invalid_argument("the request names no adapter or sampler");
    return {};
  }

  const Request& request_;
  const Reply<Response> reply_;
  std::optional<Error> file_error_;
  Response response_;
};

}  // namespace tuft::worker
