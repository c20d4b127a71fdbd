// What a FakeActor answers to each method.
#include <algorithm>

#include "control/tests/fake_actor.h"

namespace tuft::control {
namespace {

constexpr auto adapter_of = [](const auto& request) { return request.adapter_id(); };
constexpr auto sampler_of = [](const auto& request) { return request.sampler_id(); };

}  // namespace

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
    response.set_stepped(!without_gradient_ && !nonfinite_gradient_);
    response.set_nonfinite(nonfinite_gradient_);
    if (response.stepped()) ++*weights;
    response.set_grad_norm(without_gradient_ ? 0.0 : 0.5);
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
    int64_t bytes = 0;
    for (const auto& batch : outbox_) {
      bytes += static_cast<int64_t>(batch.request().size());
      if (response.batches_size() > 0 && bytes > request.bytes_max()) break;
      *response.add_batches() = batch;
    }
    if (response.ByteSizeLong() <= link_bytes_) return {};
    return Error{ErrorCode::kDeadlineExceeded, "the answer did not come in time", "worker_timeout"};
  });
  on_unrecorded<rpc::KeepTraces>([this](const auto& request, auto&) -> Status {
    kept_traces_.insert(kept_traces_.end(), request.traces().begin(), request.traces().end());
    return {};
  });
}

}  // namespace tuft::control
