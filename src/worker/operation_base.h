// What the operations have in common: a lane, a span from the first piece to the answer, log events, one reply.
#pragma once

#include <filesystem>
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

// Absolute, so that what a client could reach is the control plane's decision alone.
inline Status check_directory(const std::string& directory) {
  if (std::filesystem::path(directory).is_absolute()) return {};
  return invalid_argument("the checkpoint directory must be an absolute path");
}

// The names of an operation's span and log events.
struct OperationNames {
  telemetry::Name span;
  telemetry::Name begin;
  telemetry::Name completed;
  telemetry::Name failed;
  bool life_cycle = false;  // `completed` is INFO, else DEBUG
};

// What an operation works on.
struct Subject {
  telemetry::Name id_key;
  std::string id;
  engine::AdapterId adapter;  // also the lane
};

inline Subject training_subject(const std::string& adapter_id) {
  return {"tuft.lora_id", adapter_id, training_adapter(adapter_id)};
}
inline Subject sampler_subject(const std::string& sampler_id) {
  return {"tuft.sampler_id", sampler_id, sampler_adapter(sampler_id)};
}

// What of an operation does not depend on its reply. The ids are borrowed by its attributes: it must not move.
class TracedOperation : public Operation {
 public:
  TracedOperation(OperationNames names, Subject subject, Caller caller)
      : names_(names), subject_(std::move(subject)), caller_(std::move(caller)) {}

  const std::string& lane() const final { return subject_.adapter.str(); }
  telemetry::SpanContext cause() const final { return caller_.trace; }

 protected:
  const std::string& id() const { return subject_.id; }
  const engine::AdapterId& adapter() const { return subject_.adapter; }
  telemetry::Span& span() { return span_; }
  const telemetry::Span& span() const { return span_; }
  // On the span, and numbers and flags on the log of its end too.
  void note(telemetry::Attributes attributes);
  // Share keys, the id and the rank.
  const std::vector<telemetry::Attribute>& keys() const { return keys_; }
  // Until it was begun, or what else an operation calls waiting.
  virtual double queue_seconds() const { return to_seconds(started_ - arrived()); }
  Nanos arrived() const { return caller_.arrived; }
  Nanos started() const { return started_; }

  void begin(Bench& bench);
  bool begun() const { return started_ != 0; }
  void end(const Clock& clock);
  void end(const Error& error);

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

template <typename Response>
class ReplyingOperation : public TracedOperation {
 public:
  ReplyingOperation(OperationNames names, Subject subject, Caller caller, Reply<Response> reply)
      : TracedOperation(names, std::move(subject), std::move(caller)), reply_(std::move(reply)) {}

  Progress advance(Bench& bench) final {
    if (!begun()) begin(bench);
    const telemetry::ContextScope scope(span().context());
    auto progress = check().ok() ? run(bench, response_) : Result<Progress>(check().error());
    if (!progress.ok()) {
      fail(progress.error());
      return Progress::kDone;
    }
    if (*progress == Progress::kDone) {
      response_.set_queue_seconds(queue_seconds());
      end(bench.clock);
      reply_(std::move(response_));
    }
    return *progress;
  }

  void file_failed(const Error& error) final { file_error_ = error; }

  void fail(const Error& error) final {
    end(error);
    reply_(error);
  }

 protected:
  // The next piece; kDone when `response` is complete.
  virtual Result<Progress> run(Bench& bench, Response& response) = 0;

 private:
  Status check() const {
    if (file_error_) return *file_error_;
    if (id().empty()) return invalid_argument("the request names no adapter or sampler");
    return {};
  }

  const Reply<Response> reply_;
  std::optional<Error> file_error_;
  Response response_;
};

}  // namespace tuft::worker
