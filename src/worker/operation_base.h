// What the operations have in common: a lane, a span from the first piece to the answer, one reply.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "worker/operation.h"

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

template <typename Response>
class ReplyingOperation : public Operation {
 public:
  ReplyingOperation(telemetry::Name span_name, telemetry::Name id_key, std::string lane, std::string id, Caller caller,
                    Reply<Response> reply)
      : span_name_(span_name),
        id_key_(id_key),
        lane_(std::move(lane)),
        id_(std::move(id)),
        caller_(caller),
        reply_(std::move(reply)) {}

  const std::string& lane() const final { return lane_; }

  Progress advance(Bench& bench) final {
    if (!started_) {
      started_ = bench.clock.monotonic();
      span_ = engine_tracer().start_span(
          span_name_,
          {.attributes = {{id_key_, id_}, {"tuft.queue_seconds", queue_seconds()}}, .parent = caller_.trace});
    }
    const telemetry::ContextScope scope(span_.context());
    auto progress = check().ok() ? run(bench, response_) : Result<Progress>(check().error());
    if (!progress.ok()) {
      fail(progress.error());
      return Progress::kDone;
    }
    if (*progress == Progress::kDone) {
      span_.end();
      reply_(std::move(response_));
    }
    return *progress;
  }

  void file_failed(const Error& error) final { file_error_ = error; }

  void fail(const Error& error) final {
    span_.record_error(error);
    span_.end();
    reply_(error);
  }

 protected:
  // The next piece; kDone when `response` is complete.
  virtual Result<Progress> run(Bench& bench, Response& response) = 0;

  const std::string& id() const { return id_; }
  telemetry::Span& span() { return span_; }
  double queue_seconds() const { return to_seconds(*started_ - caller_.arrived); }

 private:
  Status check() const {
    if (file_error_) return *file_error_;
    if (id_.empty()) return invalid_argument("the request names no adapter or sampler");
    return {};
  }

  const telemetry::Name span_name_;
  const telemetry::Name id_key_;
  const std::string lane_;
  const std::string id_;
  const Caller caller_;
  const Reply<Response> reply_;
  std::optional<Nanos> started_;
  std::optional<Error> file_error_;
  telemetry::Span span_;
  Response response_;
};

}  // namespace tuft::worker
