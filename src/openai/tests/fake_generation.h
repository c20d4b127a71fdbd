// A Generation that a test controls: each start() waits until the test gives it tokens and an end. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "control/sampling/generation.h"

namespace tuft::openai {

class FakeGeneration final : public control::Generation {
 public:
  struct Started {
    control::UserId user;
    control::GenerationRequest request;
    control::GenerationListener listener;
    bool cancelled = false;
    bool ended = false;
  };

  // ---- for tests

  // The models are "base/model" and "tinker://run/sampler_weights/a", which belongs to alice.
  config::ModelConfig model_config;
  std::vector<control::ListedModel> list;
  Error refusal;                             // start() returns it if its message is set
  std::function<void()> on_models = [] {};   // called by models(), without a lock
  std::function<void()> on_resolve = [] {};  // called by resolve(), likewise
  // The memory of requests before start(), and its limit per user.
  std::shared_ptr<ByteAccount> memory = std::make_shared<ByteAccount>();
  int64_t memory_max = int64_t{1} << 30;

  // Blocks until start() was called `count` times.
  void await_started(size_t count) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (started_.size() < count) changed_.wait(mutex_);
  }
  void await_cancelled(size_t index) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (started_.size() <= index || !started_[index].cancelled) changed_.wait(mutex_);
  }
  // While held, start() does not return.
  void hold(bool held) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  size_t count() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return started_.size();
  }
  Started started(size_t index) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return started_[index];
  }
  // Lets go of all that the listeners hold.
  void forget_listeners() TUFT_EXCLUDES(mutex_) {
    std::vector<Started> forgotten;
    MutexLock lock(mutex_);
    for (Started& each : started_) forgotten.push_back(std::exchange(each, Started()));
  }
  // Gives `tokens` to a sample, each with the log-probability -0.5.
  void give(size_t index, int sample, const std::vector<int32_t>& tokens) {
    const Started target = started(index);
    const std::vector<float> logprobs(tokens.size(), -0.5F);
    std::vector<int32_t> topk_tokens;
    std::vector<float> topk_logprobs;
    const int topk = target.request.topk_logprobs;
    for (const int32_t token : tokens) {
      for (int column = 0; column < topk; ++column) {
        topk_tokens.push_back(token + column);
        topk_logprobs.push_back(-0.5F - static_cast<float>(column));
      }
    }
    target.listener.on_tokens({sample, tokens, logprobs, topk, topk_tokens, topk_logprobs});
  }
  // `stopped` has one entry per sample.
  void finish(size_t index, const std::vector<bool>& stopped) {
    tinker_public::SampleResponse response;
    for (const bool stop : stopped) {
      response.add_sequences()->set_stop_reason(stop ? tinker_public::STOP_REASON_STOP
                                                     : tinker_public::STOP_REASON_LENGTH);
    }
    finish(index, std::move(response));
  }
  void finish(size_t index, Result<tinker_public::SampleResponse> result) {
    if (end(index)) started(index).listener.done(std::move(result));
  }

  // ---- Generation

  Result<control::GenerationModel> resolve(const control::UserId& user, std::string_view model) const override {
    on_resolve();
    if (model == "base/model") return control::GenerationModel{"base/model", &model_config, {}};
    if (model == kCheckpoint && user.str() == "alice") {
      return control::GenerationModel{"base/model", &model_config, std::string(model)};
    }
    return not_found("this model does not exist or is not yours", "model_not_found");
  }
  Result<control::ListedModels> models(const control::UserId& user, std::string_view after,
                                       size_t count_max) const override {
    on_models();
    control::ListedModels page;
    bool begun = after.empty();
    for (const control::ListedModel& model : list) {
      if (!model.owner.empty() && model.owner != user) continue;
      page.has_more = begun && page.models.size() == count_max;
      if (begun && !page.has_more) page.models.push_back(model);
      begun = begun || model.id == after;
    }
    if (!begun) return invalid_argument("after names no model of your list", "unknown_cursor");
    return page;
  }
  Result<control::ListedModel> listed(const control::UserId& user, std::string_view model) const override {
    TUFT_TRY(resolve(user, model));
    for (const control::ListedModel& known : list) {
      if (known.id == model) return known;
    }
    return control::ListedModel{std::string(model), {}, "base/model", false, 0};
  }
  Result<ByteAccount::Hold> hold_memory(const control::UserId& user, int64_t bytes) override {
    ByteAccount::Hold hold = memory->open(user.str());
    if (hold.grow_to(bytes, {.each = memory_max}) == ByteAccount::Answer::kTaken) return hold;
    return Error{ErrorCode::kResourceExhausted, "over limits.queued_bytes_per_user_max", "queued_bytes_per_user_max"};
  }
  Result<Number> start(const control::UserId& user, control::GenerationRequest request, const telemetry::SpanContext&,
                       control::GenerationListener listener) override TUFT_EXCLUDES(mutex_) {
    if (!refusal.message.empty()) return refusal;
    MutexLock lock(mutex_);
    started_.push_back({user, std::move(request), std::move(listener)});
    changed_.notify_all();
    const Number number = started_.size();
    while (held_) changed_.wait(mutex_);
    return number;
  }
  void cancel(Number number) override TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      started_[number - 1].cancelled = true;
      changed_.notify_all();
    }
    finish(number - 1, Error{ErrorCode::kCancelled, "the request was cancelled", "cancelled"});
  }

  static constexpr std::string_view kCheckpoint = "tinker://run/sampler_weights/a";

 private:
  bool end(size_t index) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return !std::exchange(started_[index].ended, true);
  }

  Mutex mutex_;
  CondVar changed_;
  bool held_ TUFT_GUARDED_BY(mutex_) = false;
  std::vector<Started> started_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::openai
