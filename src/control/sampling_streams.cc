// Streams: samples without a future, whose tokens go to a listener as they are drawn.
#include <cstring>
#include <utility>
#include <vector>

#include "control/operation_keys.h"
#include "control/sample_request.h"
#include "control/sampling_controller.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

// Token ids and log-probabilities travel as little-endian bytes.
template <typename Number>
void read_numbers(const std::string& bytes, std::vector<Number>& out) {
  out.resize(bytes.size() / sizeof(Number));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Number));
}

struct DeltaNumbers {
  std::vector<int32_t> tokens, topk_tokens;
  std::vector<float> logprobs, topk_logprobs;
};

void relay(const worker::v1::SampleDelta& delta, const GenerationListener& listener, DeltaNumbers& numbers) {
  for (const worker::v1::SampleTokens& fresh : delta.new_tokens()) {
    read_numbers(fresh.tokens(), numbers.tokens);
    read_numbers(fresh.logprobs(), numbers.logprobs);
    read_numbers(fresh.topk_tokens(), numbers.topk_tokens);
    read_numbers(fresh.topk_logprobs(), numbers.topk_logprobs);
    const auto cells = static_cast<size_t>(fresh.topk()) * numbers.tokens.size();
    if (numbers.logprobs.size() != numbers.tokens.size() || numbers.topk_tokens.size() != cells ||
        numbers.topk_logprobs.size() != cells) {
      continue;  // not from our worker
    }
    listener.on_tokens(
        {fresh.sample(), numbers.tokens, numbers.logprobs, fresh.topk(), numbers.topk_tokens, numbers.topk_logprobs});
  }
}

Sample as_sample(GenerationRequest request) {
  Sample sample;
  sample.prompt_tokens = std::move(request.prompt_tokens);
  sample.num_samples = request.num_samples;
  sample.params = std::move(request.params);
  sample.prompt_logprobs = request.prompt_logprobs;
  sample.topk_prompt_logprobs = request.topk_prompt_logprobs;
  return sample;
}

}  // namespace

Result<Generation::Number> SamplingController::start_stream(const UserId& user, const StreamSource& source,
                                                            GenerationRequest request,
                                                            const telemetry::SpanContext& trace,
                                                            GenerationListener listener) {
  auto operation = std::make_shared<Operation>();
  operation->stream = std::make_unique<Stream>();
  operation->stream->listener = std::move(listener);
  operation->user = user;
  operation->backend = source.backend;
  operation->num_samples = request.num_samples;
  operation->placed = parts_.clock.monotonic();
  auto keys = std::make_shared<OperationKeys>();
  keys->operation = OperationType::kSample;
  keys->request = request.request;
  keys->sampler = source.sampler;
  keys->base_model = source.backend->name();
  const int topk_logprobs = request.topk_logprobs;
  TUFT_ASSIGN(operation->request, make_sample_request(source.backend->config(), as_sample(std::move(request))));
  operation->request.set_topk_logprobs(topk_logprobs);
  operation->request.set_cache_scope(user.str());
  operation->cost = sample_cost(source.backend->config(), operation->request);
  const auto payload_bytes = static_cast<int64_t>(operation->request.SpaceUsedLong());
  TUFT_ASSIGN(operation->memory, parts_.futures.take_sample(user, payload_bytes));
  const auto started = add_stream(source, operation, *keys);
  if (!started.ok()) {
    parts_.futures.give_back_sample(user);
    return started.error();
  }
  const AdapterPtr& adapter = operation->stream->adapter;
  keys->lora_rank = adapter->checkpoint == nullptr ? 0 : adapter->checkpoint->lora_rank;
  operation->keys = std::move(keys);
  operation->span = sampling_controller_tracer().start_span(
      "sampling_controller.run_sample",
      {.attributes = KeyAttributes(*operation->keys, {{"tuft.num_samples", operation->num_samples}}), .parent = trace});
  operation->backend->instruments().record_sample_request(operation->request);
  const Generation::Number number = operation->stream->number;
  dispatch(adapter, operation);
  return number;
}

// Notes it, with what it samples from, in `keys` too.
Status SamplingController::add_stream(const StreamSource& source, const OperationPtr& operation, OperationKeys& keys) {
  AdapterPtr adapter;
  MutexLock lock(mutex_);
  if (shut_down_) return unavailable("the server is shutting down", "shutting_down");
  if (source.sampler.empty()) {
    adapter = adapter_for_locked(source.backend, source.checkpoint);
  } else {
    const auto found = samplers_.find(source.sampler);
    if (found == samplers_.end() || found->second.user != operation->user) {
      return not_found("this sampling session does not exist or was given up", "sampler_not_found");
    }
    found->second.last_used = operation->placed;
    keys.session = found->second.session;
    adapter = found->second.adapter;
  }
  ++adapter->users;
  adapter->last_used = operation->placed;
  operation->stream->adapter = adapter;
  operation->stream->number = ++last_stream_;
  streams_.emplace(operation->stream->number, operation);
  return {};
}

actor::ModelActor::OnTokens SamplingController::token_relay(const OperationPtr& operation) {
  if (!operation->stream->listener.on_tokens) return [](const worker::v1::SampleDelta&) {};
  return [operation, numbers = DeltaNumbers()](const worker::v1::SampleDelta& delta) mutable {
    relay(delta, operation->stream->listener, numbers);
  };
}

// A cancel may have come before there was a call to end.
void SamplingController::hold_cancel(const OperationPtr& operation, actor::Cancel cancel) {
  {
    MutexLock lock(mutex_);
    if (!operation->stream->cancelled) {
      operation->stream->cancel_call = std::move(cancel);
      return;
    }
  }
  cancel();
}

void SamplingController::cancel_stream(Generation::Number number) {
  OperationPtr operation;
  bool was_waiting = false;
  actor::Cancel cancel_call;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(number);
    if (found == streams_.end()) return;
    operation = found->second;
    operation->stream->cancelled = true;
    was_waiting = std::erase(operation->stream->adapter->waiting, operation) > 0;
    if (!was_waiting) cancel_call = std::move(operation->stream->cancel_call);
  }
  if (was_waiting) return fail(operation, Error{ErrorCode::kCancelled, "the request was cancelled", "cancelled"});
  let_go(*operation, false);
  if (cancel_call) cancel_call();
}

void SamplingController::cancel_streams() {
  std::vector<Generation::Number> numbers;
  {
    MutexLock lock(mutex_);
    numbers.reserve(streams_.size());
    for (const auto& entry : streams_) numbers.push_back(entry.first);
  }
  for (const Generation::Number number : numbers) cancel_stream(number);
}

void SamplingController::end_stream(Operation& operation, Result<worker::v1::SampleResponse> result) {
  Stream& stream = *operation.stream;
  actor::Cancel unused;
  {
    MutexLock lock(mutex_);
    if (streams_.erase(stream.number) == 0) return;
    --stream.adapter->users;
    unused = std::move(stream.cancel_call);
  }
  parts_.futures.give_back_sample(operation.user);
  const Error* error = result.ok() ? nullptr : &result.error();
  telemetry::get_metrics().requests_terminal.add(1, {{"operation_type", operation_name(OperationType::kSample)},
                                                     {"base_model", operation.keys->base_model},
                                                     {"status", terminal_status(error)}});
  if (error != nullptr) {
    stream.listener.done(*error);
  } else {
    stream.listener.done(std::move(*result->mutable_response()));
  }
}

void SamplingController::drop_unused_adapters() {
  const Nanos oldest = parts_.clock.monotonic() - kUnusedAdapterKept;
  std::vector<AdapterPtr> unused;
  {
    MutexLock lock(mutex_);
    std::erase_if(adapters_, [&](const auto& entry) {
      const Adapter& adapter = *entry.second;
      const bool used = adapter.checkpoint == nullptr || adapter.users > 0 || adapter.running > 0 || adapter.loading;
      // A deleted checkpoint will not be asked for again, so its files need not wait for that.
      const bool deleted = adapter.files != nullptr && adapter.files->abandoned();
      const bool drop = !used && (deleted || adapter.last_used <= oldest);
      if (drop) unused.push_back(entry.second);
      return drop;
    });
  }
  for (const AdapterPtr& adapter : unused) release(adapter);
}

}  // namespace tuft::control
