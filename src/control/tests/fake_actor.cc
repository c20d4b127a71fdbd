#include "control/tests/fake_actor.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace tuft::control {
namespace {

Error died() {
  return unavailable("the worker was ended by signal 9", "worker_died");
}

Error not_begun() {
  return not_found("no such call", "not_begun");
}

}  // namespace

FakeActor::FakeActor(std::string base_model, std::shared_ptr<std::atomic<uint64_t>> lives)
    : base_model_(std::move(base_model)), lives_(std::move(lives)) {
  handle_training();
  handle_samplers();
  handle_telemetry();
}

Status FakeActor::write(const std::string& directory, const std::map<std::string, std::string>& files) const {
  const std::filesystem::path path(directory);
  if (path.is_absolute() && !std::filesystem::create_directory(path)) {
    return internal_error("cannot create " + directory);
  }
  for (const auto& [name, content] : files) {
    if (path.is_absolute()) {
      std::ofstream(path / name) << content;
    } else {
      TUFT_TRY(bucket_->put((path / name).string(), content));
    }
  }
  return {};
}

// What a real worker writes, as far as the control plane reads it.
Status FakeActor::write_weights(const std::string& directory, int weights) const {
  std::map<std::string, std::string> files = {{"weights", std::to_string(weights)}};
  if (std::filesystem::path(directory).parent_path().filename() == "external_weights") {
    files["adapter_config.json"] = "{}";
    files["adapter_model.safetensors"] = "weights " + std::to_string(weights);
  }
  return write(directory, files);
}

Result<int> FakeActor::read_weights(const std::string& directory) const {
  const std::filesystem::path path = std::filesystem::path(directory) / "weights";
  if (path.is_relative()) {
    TUFT_ASSIGN(const std::string text, bucket_->get(path.string(), 100));
    return std::stoi(text);
  }
  std::ifstream file(path);
  int weights = 0;
  if (!(file >> weights)) return data_loss("cannot read " + directory + "/weights");
  return weights;
}

actor::Cancel FakeActor::send(std::unique_ptr<actor::Call> call, const actor::CallOptions& options) {
  std::optional<Error> failure;
  const std::string name(call->method.function);
  if (const auto action = take_action(name)) action();
  const auto handler = handlers_.find(name);
  if (handler == handlers_.end()) {
    failure = Error{ErrorCode::kUnimplemented, "the fake actor has no handler for " + name, ""};
  } else if (handler->second.detail) {
    const std::string detail = handler->second.detail(call->request());
    std::lock_guard lock(mutex_);
    const uint64_t number = ++last_call_;
    calls_.push_back(detail.empty() ? name : name + " " + detail);
    if (options.incarnation != 0 && options.incarnation != incarnation_) {
      failure = joined_ ? unavailable("gone", std::string(actor::kWorkerDisconnected)) : died();
    } else if (!ready_) {
      failure = unavailable("the worker is starting", "worker_starting");
    } else if ((failure = take_failure_locked(name))) {
      keep_refused_locked(*call, options.ids);
    } else if (hold_) {
      held_.push_back({std::move(call), number, options.ids});
      return [this, number] { cancel(number); };
    }
  } else {
    std::lock_guard lock(mutex_);
    failure = take_failure_locked(name);
  }
  if (failure) {
    call->answer(std::move(*failure));
  } else {
    answer(*call, options.ids);
  }
  return [] {};
}

void FakeActor::answer(actor::Call& call, const worker::v1::CallIds& ids) {
  Status status;
  {
    std::lock_guard lock(mutex_);
    status = run(call, ids);
  }
  call.answer(std::move(status));
}

Status FakeActor::run(actor::Call& call, const worker::v1::CallIds& ids) {
  std::vector<Kept>& kept = kept_[ids.training_run_id()];
  for (const Kept& each : kept) {
    if (each.call.ids().request_id() != ids.request_id() || each.call.method() != call.method.name) continue;
    if (!each.answer) return not_begun();
    return call.response().ParseFromString(*each.answer) ? Status() : internal_error("a kept answer cannot be read");
  }
  Kept newest;
  newest.call.set_method(std::string(call.method.name));
  *newest.call.mutable_ids() = ids;
  if (ids.resumes()) {
    kept.push_back(std::move(newest));
    return not_begun();
  }
  TUFT_TRY(handlers_.at(call.method.function).work(call.request(), call.response()));
  if (ids.request_id().empty() || !adapters_.contains(ids.training_run_id())) {
    kept_.erase(ids.training_run_id());
    return {};
  }
  newest.answer = call.response().SerializeAsString();
  kept.push_back(std::move(newest));
  return {};
}

void FakeActor::keep_refused_locked(const actor::Call& call, const worker::v1::CallIds& ids) {
  if (ids.request_id().empty() || !adapters_.contains(ids.training_run_id())) return;
  Kept refused;
  refused.call.set_method(std::string(call.method.name));
  *refused.call.mutable_ids() = ids;
  kept_[ids.training_run_id()].push_back(std::move(refused));
}

void FakeActor::list_holdings(worker::v1::ListHoldingsResponse& response) const {
  for (const auto& [id, weights] : adapters_) {
    worker::v1::HeldAdapter& held = *response.add_adapters();
    held.set_adapter_id(id);
    const auto found = kept_.find(id);
    if (found == kept_.end()) continue;
    for (const Kept& each : found->second) *held.add_calls() = each.call;
  }
  for (const auto& [id, weights] : samplers_) response.add_samplers(id);
}

void FakeActor::lose_connection() {
  hold_ = false;
  end_held(true, "worker_connection_lost");
  std::lock_guard lock(mutex_);
  kept_.clear();
}

void FakeActor::disconnect(bool finishes) {
  ready_ = up_ = false;
  end_held(finishes, std::string(actor::kWorkerDisconnected));
}

void FakeActor::end_held(bool finishes, const std::string& reason) {
  std::deque<Held> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
    for (const Held& one : held) {
      if (finishes) (void)run(*one.call, one.ids);
    }
  }
  for (const Held& one : held) one.call->answer(unavailable("the connection broke", reason));
}

void FakeActor::move_to(FakeActor& other) {
  std::scoped_lock lock(mutex_, other.mutex_);
  other.adapters_ = std::move(adapters_);
  other.samplers_ = std::move(samplers_);
  other.kept_ = std::move(kept_);
}

void FakeActor::cancel(uint64_t number) {
  Held cancelled;
  {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.number == number; });
    if (found == held_.end()) return;
    cancelled = std::move(*found);
    held_.erase(found);
  }
  cancelled.call->answer(Error{ErrorCode::kCancelled, "the call was cancelled", "cancelled"});
}

bool FakeActor::answer_any(size_t which) {
  Held next;
  {
    std::lock_guard lock(mutex_);
    if (which >= held_.size()) return false;
    const auto at = held_.begin() + static_cast<ptrdiff_t>(which);
    next = std::move(*at);
    held_.erase(at);
  }
  answer(*next.call, next.ids);
  return true;
}

void FakeActor::answer_all() {
  while (answer_next()) {
  }
}

void FakeActor::stop_holding() {
  hold_ = false;
  answer_all();
}

size_t FakeActor::held() const {
  std::lock_guard lock(mutex_);
  return held_.size();
}

void FakeActor::start() {
  come_up();
  say_ready();
}

void FakeActor::come_up() {
  incarnation_ = ++*lives_;
  up_ = true;
  ready_ = true;
}

void FakeActor::say_ready() {
  if (on_ready_) on_ready_(incarnation_);
}

bool FakeActor::up() const {
  const bool is_up = up_;
  if (const auto action = take_action("up")) action();
  return is_up;
}

void FakeActor::die() {
  ready_ = false;
  up_ = false;
  std::deque<Held> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
    adapters_.clear();
    kept_.clear();
    outbox_.clear();
    samplers_.clear();
  }
  for (const Held& one : held) one.call->answer(died());
}

void FakeActor::before_next(const std::string& function, std::function<void()> action) {
  std::lock_guard lock(mutex_);
  actions_[function] = std::move(action);
}

std::optional<Error> FakeActor::take_failure_locked(const std::string& function) {
  const auto node = failures_.extract(function);
  return node.empty() ? std::nullopt : std::optional(node.mapped());
}

std::function<void()> FakeActor::take_action(const std::string& function) const {
  std::lock_guard lock(mutex_);
  const auto node = actions_.extract(function);
  return node.empty() ? std::function<void()>() : node.mapped();
}

void FakeActor::fail_next(const std::string& function, Error error) {
  std::lock_guard lock(mutex_);
  failures_[function] = std::move(error);
}

std::vector<std::string> FakeActor::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeActor::calls_of(const std::string& function) const {
  std::vector<std::string> found;
  for (const std::string& call : calls()) {
    if (call == function || call.starts_with(function + " ")) found.push_back(call);
  }
  return found;
}

void FakeActor::clear_calls() {
  std::lock_guard lock(mutex_);
  calls_.clear();
}

int FakeActor::weights_of(const std::string& adapter) const {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(adapter);
  return found == adapters_.end() ? -1 : found->second;
}

size_t FakeActor::adapters() const {
  std::lock_guard lock(mutex_);
  return adapters_.size();
}

size_t FakeActor::samplers() const {
  std::lock_guard lock(mutex_);
  return samplers_.size();
}

worker::v1::CreateAdapterRequest FakeActor::last_create() const {
  std::lock_guard lock(mutex_);
  return last_create_;
}

worker::v1::ForwardBackwardRequest FakeActor::last_pass() const {
  std::lock_guard lock(mutex_);
  return last_pass_;
}

worker::v1::SampleRequest FakeActor::last_sample() const {
  std::lock_guard lock(mutex_);
  return last_sample_;
}

void FakeActor::set_metrics_snapshot(std::string snapshot) {
  std::lock_guard lock(mutex_);
  metrics_snapshot_ = std::move(snapshot);
}

void FakeActor::put_into_outbox(worker::v1::TakeTelemetryResponse::Batch batch) {
  std::lock_guard lock(mutex_);
  outbox_.push_back(std::move(batch));
}

size_t FakeActor::outbox_size() const {
  std::lock_guard lock(mutex_);
  return outbox_.size();
}

std::vector<worker::v1::TraceId> FakeActor::kept_traces() const {
  std::lock_guard lock(mutex_);
  return kept_traces_;
}

int sampled_number(const std::string& bytes) {
  tinker_public::SampleResponse response;
  int32_t number = -2;
  if (!response.ParseFromString(bytes) || response.sequences_size() == 0) return number;
  std::memcpy(&number, response.sequences(0).tokens().data(), sizeof number);
  return number;
}

}  // namespace tuft::control
