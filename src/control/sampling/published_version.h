// The weights of a run at one moment, as a copy in the memory of the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "control/workers/model_backend.h"

namespace tuft::control {

// A version that no sampling session uses yet. The destructor removes it from the worker unless release() was called.
// Not thread-safe.
class PublishedVersion {
 public:
  PublishedVersion(ModelBackendPtr backend, std::string worker_id)
      : backend_(std::move(backend)), worker_id_(std::move(worker_id)), incarnation_(backend_->actor().incarnation()) {}
  ~PublishedVersion() {
    if (!in_worker_) return;
    worker::v1::RemoveSamplerRequest request;
    request.set_sampler_id(worker_id_);
    backend_->actor().remove_sampler(std::move(request), {}, [](const Result<worker::v1::RemoveSamplerResponse>&) {});
  }
  PublishedVersion(const PublishedVersion&) = delete;
  PublishedVersion& operator=(const PublishedVersion&) = delete;

  const ModelBackend& worker() const { return *backend_; }
  const std::string& worker_id() const { return worker_id_; }
  uint64_t incarnation() const { return incarnation_; }  // of the worker that holds it
  void note_published() { in_worker_ = true; }
  // Somebody else removes it from the worker.
  void release() { in_worker_ = false; }

 private:
  const ModelBackendPtr backend_;
  const std::string worker_id_;
  const uint64_t incarnation_;
  bool in_worker_ = false;
};

}  // namespace tuft::control
