#include "control/tests/fake_actor.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

namespace tuft::control {
namespace {

Error died() {
  return unavailable("the worker was ended by signal 9", "worker_died");
}

Error not_begun() {
  return not_found("no such call", "not_begun");
}

constexpr auto adapter_of = [](const auto& request) { return request.adapter_id(); };
constexpr auto sampler_of = [](const auto& request) { return request.sampler_id(); };

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
    } else if (const auto found = failures_.find(name); found != failures_.end()) {
      failure = found->second;
      failures_.erase(found);
    } else if (hold_) {
      held_.push_back({std::move(call), number, options.ids});
      return [this, number] { cancel(number); };
    }
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
  incarnation_ = ++*lives_;
  up_ = true;
  ready_ = true;
  if (on_ready_) on_ready_(incarnation_);
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

std::function<void()> FakeActor::take_action(const std::string& function) {
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

template <typename Method, typename DetailOf, typename WorkOf>
void FakeActor::on(DetailOf detail, WorkOf work) {
  using Request = typename Method::Request;
  on_unrecorded<Method>(std::move(work));
  handlers_[Method::kMethod.function].detail = [detail](const google::protobuf::MessageLite& request) {
    return detail(static_cast<const Request&>(request));
  };
}

template <typename Method, typename WorkOf>
void FakeActor::on_unrecorded(WorkOf work) {
  using Request = typename Method::Request;
  using Response = typename Method::Response;
  handlers_[Method::kMethod.function].work = [work](const google::protobuf::MessageLite& request,
                                                    google::protobuf::MessageLite& response) {
    return work(static_cast<const Request&>(request), static_cast<Response&>(response));
  };
}

Result<int*> FakeActor::find(std::map<std::string, int>& weights, const std::string& id, const char* what) {
  const auto found = weights.find(id);
  if (found == weights.end()) return not_found(std::string("no such ") + what, std::string(what) + "_not_loaded");
  return &found->second;
}

void FakeActor::handle_training() {
  on_unrecorded<rpc::ListHoldings>([this](const auto&, auto& response) -> Status {
    list_holdings(response);
    return {};
  });
  on<rpc::CreateAdapter>(adapter_of, [this](const auto& request, auto& response) -> Status {
    adapters_[request.adapter_id()] = 0;
    last_create_ = request;
    if (request.spec().train_attn()) response.add_target_modules("q_proj");
    if (request.spec().train_mlp()) response.add_target_modules("up_proj");
    if (request.spec().train_unembed()) response.add_target_modules("lm_head");
    return {};
  });
  on<rpc::RemoveAdapter>(adapter_of, [this](const auto& request, auto&) -> Status {
    adapters_.erase(request.adapter_id());
    return {};
  });
  on<rpc::ForwardBackward>([](const auto& request) { return request.adapter_id() + " " + request.request().loss_fn(); },
                           [this](const auto& request, auto& response) -> Status {
                             TUFT_TRY(find(adapters_, request.adapter_id(), "adapter"));
                             last_pass_ = request;
                             tinker_public::ForwardBackwardOutput output;
                             output.set_loss_fn_output_type(request.request().loss_fn());
                             (*output.mutable_metrics())["loss:sum"] = loss_sum_;
                             response.set_output(output.SerializeAsString());
                             response.set_loss_sum(loss_sum_);
                             response.set_tokens(3);
                             response.set_queue_seconds(queue_seconds_);
                             response.set_weight_sum(weight_sum_);
                             return {};
                           });
  on<rpc::OptimStep>(adapter_of, [this](const auto& request, auto& response) -> Status {
    TUFT_ASSIGN(int* const weights, find(adapters_, request.adapter_id(), "adapter"));
    ++*weights;
    response.set_grad_norm(0.5);
    response.set_learning_rate(request.has_dimuon() ? request.dimuon().learning_rate()
                                                    : request.params().learning_rate());
    response.set_clipped(request.params().grad_clip_norm() > 0 && request.params().grad_clip_norm() < 0.5);
    response.set_nonfinite_update(breaks_weights_);
    return {};
  });
  on<rpc::SaveState>(adapter_of, [this](const auto& request, auto& response) -> Status {
    TUFT_ASSIGN(const int* const weights, find(adapters_, request.adapter_id(), "adapter"));
    response.set_size_bytes(100);
    return write_weights(request.directory(), *weights);
  });
  on<rpc::LoadState>(
      [](const auto& request) { return request.adapter_id() + (request.with_optimizer() ? " +optimizer" : ""); },
      [this](const auto& request, auto&) -> Status {
        TUFT_ASSIGN(adapters_[request.adapter_id()], read_weights(request.directory()));
        return {};
      });
}

void FakeActor::handle_samplers() {
  on<rpc::AddSampler>(sampler_of, [this](const auto& request, auto&) -> Status {
    TUFT_ASSIGN(samplers_[request.sampler_id()], read_weights(request.directory()));
    return {};
  });
  on<rpc::RemoveSampler>(sampler_of, [this](const auto& request, auto&) -> Status {
    samplers_.erase(request.sampler_id());
    return {};
  });
  on<rpc::PublishAdapter>(adapter_of, [this](const auto& request, auto& response) -> Status {
    TUFT_ASSIGN(const int* const weights, find(adapters_, request.adapter_id(), "adapter"));
    samplers_[request.sampler_id()] = *weights;
    response.set_size_bytes(100);
    return {};
  });
  on<rpc::SaveSampler>(sampler_of, [this](const auto& request, auto& response) -> Status {
    TUFT_ASSIGN(const int* const weights, find(samplers_, request.sampler_id(), "sampler"));
    response.set_size_bytes(100);
    return write_weights(request.directory(), *weights);
  });
  const auto work = [this](const auto& request, auto& response) { return sample(request, response); };
  on<rpc::Sample>(sampler_of, work);
  on<rpc::StreamSample>(sampler_of, work);
}

void FakeActor::record(worker::v1::SequenceRecord& record) {
  constexpr int32_t kTokens[] = {40, 41, 42};
  constexpr float kLogprobs[] = {-0.5F, -1.5F, -2.5F};
  record.set_tokens(kTokens, sizeof kTokens);
  record.set_logprobs(kLogprobs, sizeof kLogprobs);
}

Status FakeActor::sample(const worker::v1::SampleRequest& request, worker::v1::SampleResponse& response) {
  int32_t number = -1;  // the base model
  if (!request.sampler_id().empty()) {
    TUFT_ASSIGN(const int* const weights, find(samplers_, request.sampler_id(), "sampler"));
    number = *weights;
  }
  last_sample_ = request;
  tinker_public::SampleResponse samples;
  for (int i = 0; i < request.num_samples(); ++i) {
    samples.add_sequences()->set_tokens(&number, sizeof number);
    response.add_sequence_tokens(1);
    if (request.record()) record(*response.add_records());
  }
  if (request.record()) response.set_prompt_tokens(static_cast<int64_t>(request.prompt_tokens().size() / 4));
  response.set_response(samples.SerializeAsString());
  response.set_output_tokens(request.num_samples());
  response.set_queue_seconds(queue_seconds_);
  return {};
}

actor::Cancel FakeActor::stream_sample(worker::v1::SampleRequest request, const actor::CallOptions& options,
                                       OnTokens on_tokens, actor::Callback<worker::v1::SampleResponse> done) {
  using Response = worker::v1::SampleResponse;
  auto stream = [on_tokens = std::move(on_tokens), done = std::move(done)](Result<Response> result) {
    tinker_public::SampleResponse samples;
    if (result.ok() && samples.ParseFromString(result->response())) {
      worker::v1::SampleDelta delta;
      int index = 0;
      for (const auto& sequence : samples.sequences()) {
        worker::v1::SampleTokens& tokens = *delta.add_new_tokens();
        tokens.set_sample(index++);
        tokens.set_tokens(sequence.tokens());
        tokens.set_logprobs(std::string(sequence.tokens().size(), '\0'));
      }
      on_tokens(delta);
    }
    done(std::move(result));
  };
  return call<rpc::StreamSample>(std::move(request), options, std::move(stream));
}

void FakeActor::handle_telemetry() {
  const auto no_detail = [](const auto&) { return std::string(); };
  on_unrecorded<rpc::Describe>([](const auto&, auto& response) -> Status {
    response.set_architecture("FakeForCausalLM");
    response.add_losses("cross_entropy");
    return {};
  });
  on<rpc::CollectMetrics>(no_detail, [this](const auto&, auto& response) -> Status {
    response.set_snapshot(metrics_snapshot_);
    return {};
  });
  on<rpc::CollectTraces>(no_detail, [](const auto&, auto&) -> Status { return {}; });
  on_unrecorded<rpc::TakeTelemetry>([this](const auto& request, auto& response) -> Status {
    const auto is_confirmed = [&](const auto& batch) { return batch.number() <= request.confirmed(); };
    outbox_.erase(std::remove_if(outbox_.begin(), outbox_.end(), is_confirmed), outbox_.end());
    for (const auto& batch : outbox_) *response.add_batches() = batch;
    return {};
  });
  on_unrecorded<rpc::KeepTraces>([this](const auto& request, auto&) -> Status {
    kept_traces_.insert(kept_traces_.end(), request.traces().begin(), request.traces().end());
    return {};
  });
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
