#include "control/sampling/sample_streams.h"

#include <cstring>
#include <utility>
#include <vector>

#include "control/sampling/sample_request.h"
#include "control/types/errors.h"
#include "control/types/operation_keys.h"
#include "metrics/tenants.h"

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

actor::ModelActor::OnTokens relay_to(const std::shared_ptr<const GenerationListener>& listener) {
  if (!listener->on_tokens) return [](const worker::v1::SampleDelta&) {};
  return [listener, numbers = DeltaNumbers()](const worker::v1::SampleDelta& delta) mutable {
    relay(delta, *listener, numbers);
  };
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

class SampleStreams::Sink final : public SampleSink {
 public:
  Sink(std::weak_ptr<SampleStreams> streams, Generation::Number number, GenerationListener listener)
      : streams_(std::move(streams)),
        number_(number),
        listener_(std::make_shared<const GenerationListener>(std::move(listener))) {}

  bool is_cancelled() const override {
    MutexLock lock(mutex_);
    return cancelled_;
  }
  // A cancel may come before the call exists.
  void send(actor::ModelActor& worker, std::shared_ptr<const worker::v1::SampleRequest> request,
            const actor::CallOptions& options, actor::Callback<worker::v1::SampleResponse> done) override {
    actor::Cancel end_call = worker.stream_sample(*request, options, relay_to(listener_), std::move(done));
    {
      MutexLock lock(mutex_);
      if (!cancelled_) return end_call_.swap(end_call);
    }
    end_call();
  }
  bool may_repeat() const override { return !listener_->on_tokens; }
  void finish(Result<worker::v1::SampleResponse> result) override {
    actor::Cancel unused = take_call();
    const auto streams = streams_.lock();
    if (streams != nullptr && !streams->end(number_, result.ok() ? nullptr : &result.error())) return;
    if (!result.ok()) return listener_->done(std::move(result).error());
    tinker_public::SampleResponse samples;
    if (!samples.ParseFromString(result->response())) {
      return listener_->done(internal_error("the worker's answer to a sample cannot be read"));
    }
    listener_->done(std::move(samples));
  }
  void abandon() override { listener_->done(unavailable("the server is shutting down")); }

  // Returns the function that ends the call; empty if there is none.
  actor::Cancel cancel() {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    return take_call();
  }

 private:
  actor::Cancel take_call() {
    MutexLock lock(mutex_);
    return std::exchange(end_call_, nullptr);
  }

  const std::weak_ptr<SampleStreams> streams_;
  const Generation::Number number_;
  const std::shared_ptr<const GenerationListener> listener_;
  mutable Mutex mutex_;
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  actor::Cancel end_call_ TUFT_GUARDED_BY(mutex_);
};

Result<Generation::Number> SampleStreams::start(const UserId& user, const StreamSource& source,
                                                GenerationRequest request, const telemetry::SpanContext& trace,
                                                GenerationListener listener) {
  const config::ModelConfig& model = source.model->config();
  auto keys = std::make_shared<OperationKeys>();
  keys->operation = OperationType::kSample;
  keys->user = user;
  keys->request = request.request;
  keys->sampler = source.sampler;
  keys->base_model = source.model->name();
  const int topk_logprobs = request.topk_logprobs;
  const telemetry::SpanContext previous = request.previous;
  const Nanos now = clock_.monotonic();
  TUFT_ASSIGN(worker::v1::SampleRequest work, make_sample_request(model, user, as_sample(std::move(request))));
  work.set_topk_logprobs(topk_logprobs);
  const int64_t bytes = static_cast<int64_t>(work.SpaceUsedLong()) + answer_bytes_max(work);
  TUFT_ASSIGN(ByteAccount::Hold memory, budget_.begin_stream(user, bytes));
  Result<SamplerTable::Used> used = acquire(user, source, *keys);
  if (!used.ok()) {
    budget_.end_stream(user);
    return std::move(used).error();
  }
  source.model->facts().instruments().record_sample_request(work);
  const Generation::Number number = ++last_;
  const auto sink = std::make_shared<Sink>(weak_from_this(), number, std::move(listener));
  const int64_t cost = sample_cost(model, work);
  const auto operation = std::make_shared<SampleOperation>(user, used->adapter, std::move(keys), sink, now, cost,
                                                           std::move(work), std::move(memory));
  operation->home = std::move(used->home);
  TUFT_TRY(add(number, {operation, sink, std::move(used->adapter)}));
  operation->previous = previous;
  SamplingTelemetry::begin(*operation, trace);
  operation->span.share(KeyAttributes(*operation->keys));
  executor_->execute(operation);
  return number;
}

// Completes `keys` with what the stream samples from.
Result<SamplerTable::Used> SampleStreams::acquire(const UserId& user, const StreamSource& source, OperationKeys& keys) {
  SamplerTable::Used used;
  if (source.sampler.empty()) {
    used.adapter = adapters_->acquire(source.model, source.checkpoint);
  } else {
    TUFT_ASSIGN(used, samplers_.use(user, source.sampler));
    adapters_->acquire(*used.adapter);
    keys.session = used.session;
  }
  keys.lora_rank = used.adapter->lora_rank();
  return used;
}

Status SampleStreams::add(Generation::Number number, Stream stream) {
  {
    MutexLock lock(mutex_);
    if (!is_shut_down_) {
      streams_.emplace(number, std::move(stream));
      return {};
    }
  }
  adapters_->release_stream(*stream.acquired);
  budget_.end_stream(stream.operation->user);
  return shutting_down();
}

void SampleStreams::cancel(Generation::Number number) {
  Stream stream;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(number);
    if (found == streams_.end()) return;
    stream = found->second;
  }
  const actor::Cancel end_call = stream.sink->cancel();
  if (adapters_->stop_waiting(stream.operation)) {
    return executor_->fail(stream.operation, Error{ErrorCode::kCancelled, "the request was cancelled", "cancelled"});
  }
  stream.operation->let_go(false);
  if (end_call) end_call();
}

void SampleStreams::shut_down() {
  std::vector<Generation::Number> numbers;
  {
    MutexLock lock(mutex_);
    is_shut_down_ = true;
    numbers.reserve(streams_.size());
    for (const auto& entry : streams_) numbers.push_back(entry.first);
  }
  for (const Generation::Number number : numbers) cancel(number);
}

bool SampleStreams::end(Generation::Number number, const Error* error) {
  Stream ended;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(number);
    if (found == streams_.end()) return false;
    ended = std::move(found->second);
    streams_.erase(found);
  }
  const SampleOperationPtr& operation = ended.operation;
  adapters_->release_stream(*ended.acquired);
  budget_.end_stream(operation->user);
  metrics::tenants().requests_terminal.add(1, {{"operation_type", operation_name(OperationType::kSample)},
                                               {"base_model", operation->keys->base_model},
                                               {"status", terminal_status(error)}});
  return true;
}

}  // namespace tuft::control
