// Weights of a run as they were at one moment, as a copy in the memory of the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "control/model_backend.h"

namespace tuft::control {

// One that no sampler has yet: it leaves the worker with this object, unless somebody took it before. One thread at a
// time.
class PublishedVersion {
 public:
  PublishedVersion(std::shared_ptr<ModelBackend> backend, std::string worker_id)
      : backend_(std::move(backend)), worker_id_(std::move(worker_id)), generation_(backend_->actor().generation()) {}
  ~PublishedVersion() {
    if (!in_worker_) return;
    worker::v1::RemoveSamplerRequest request;
    request.set_sampler_id(worker_id_);
    backend_->actor().remove_sampler(std::move(request), {}, [](const Result<worker::v1::RemoveSamplerResponse>&) {});
  }
  PublishedVersion(const PublishedVersion&) = delete;
  PublishedVersion& operator=(const PublishedVersion&) = delete;

  const std::string& worker_id() const { return worker_id_; }
  uint64_t generation() const { return generation_; }  // the worker's life that it is in
  bool in_worker() const { return in_worker_; }
  void note_published() { in_worker_ = true; }
  void take() { in_worker_ = false; }

 private:
  const std::shared_ptr<ModelBackend> backend_;
  const std::string worker_id_;
  const uint64_t generation_;
  bool in_worker_ = false;
};

}  // namespace tuft::control
