#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/id.h"
#include "engine/sample/check_request.h"
#include "engine/sample/distribution.h"
#include "engine/sample/stop_text.h"
#include "telemetry/metrics.h"

namespace tuft::engine {
namespace {

struct Request {
  uint64_t number = 0;
  SampleRequest what;
  Sampler::Done done;
  uint64_t seed = 0;
  int output_max = 0;  // tokens of one sample
  Nanos submitted = 0;
  Nanos started = 0;
  Nanos first_token = 0;

  // The prompt's sequence. The last sample goes on in it; the ones before are forks of it.
  SequenceId stem = 0;
  bool stem_open = false;
  size_t prompt_fed = 0;
  std::vector<float> prompt_logits;  // of the last prompt token, for the first token of each sample
  int samples_started = 0;
  int samples_finished = 0;
  SampleResult result;

  bool prompt_done() const { return prompt_fed == what.prompt.size(); }
  bool wants_prompt_rows() const { return what.prompt_logprobs || what.topk_prompt_logprobs > 0; }
  bool finished() const { return samples_finished == what.num_samples; }
};

struct Running {
  Request* request = nullptr;
  int sample = 0;
  SequenceId sequence = 0;
  int32_t last = 0;  // sampled, not fed yet
  StopText stop_text;
  bool finished = false;

  explicit Running(Request& owner) : request(&owner), stop_text(owner.what.params.stop_strings) {}
};

// One feed of a step: the last token of a running sequence, or a piece of a prompt.
struct Slot {
  Running* running = nullptr;
  Request* prompt = nullptr;
  size_t tokens = 1;
};

class BatchSampler final : public Sampler {
 public:
  BatchSampler(Engine& engine, const SamplerOptions& options, TokenBytes token_bytes, const Clock& clock)
      : engine_(engine), options_(options), token_bytes_(std::move(token_bytes)), clock_(clock) {
    TUFT_CHECK(options.batch_tokens >= 1 && options.tokens_max >= 1 && options.sequences_max >= 1,
               "sampler options must be positive");
  }
  ~BatchSampler() override {
    for (const auto& running : running_) engine_.close_sequence(running->sequence);
    for (const auto& request : active_) close_stem(*request);
  }

  Result<RequestNumber> submit(SampleRequest request, Done done) override;
  void cancel(RequestNumber number) override;
  bool idle() const override { return waiting_.empty() && active_.empty(); }
  void step() override;
  int running() const override { return static_cast<int>(running_.size()) + prefilling_; }
  int waiting() const override { return static_cast<int>(waiting_.size()); }

 private:
  void start_samples();
  bool start_sample(Request& request);
  void admit();
  void collect_feeds();
  void take_logits(size_t feed, int row, std::span<const float> logits);
  void take_prompt_row(Request& request, size_t position, std::span<const float> logits);
  void take_token(Running& running, std::span<const float> logits);
  bool append_token(Request& request, int sample, StopText& stop_text, int32_t token);
  std::optional<int32_t> draw(Request& request, int sample, std::span<const float> logits);
  void after_step();
  void fail_step(const Error& error);
  void mark_failed(Request& request, const Error& error);
  void drop(const Request& request);
  void close_stem(Request& request);
  void deliver();
  void record_step(double seconds) const;

  Engine& engine_;
  const SamplerOptions options_;
  const TokenBytes token_bytes_;
  const Clock& clock_;
  Distribution distribution_;

  RequestNumber last_number_ = 0;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> active_;  // in order of admission
  std::vector<std::unique_ptr<Running>> running_;
  int prefilling_ = 0;  // active requests whose prompt is not done
  std::vector<Feed> feeds_;
  std::vector<Slot> slots_;
  size_t decode_tokens_ = 0;
  size_t prefill_tokens_ = 0;
  std::vector<std::pair<Request*, Error>> failed_;
  std::vector<std::pair<Done, Result<SampleResult>>> outbox_;
};

Result<Sampler::RequestNumber> BatchSampler::submit(SampleRequest request, Done done) {
  TUFT_TRY(check_request(request, engine_, options_.tokens_max, static_cast<bool>(token_bytes_)));
  if (waiting_.size() >= static_cast<size_t>(options_.queue_max)) {
    return Error{ErrorCode::kResourceExhausted,
                 "the sampler's queue is full (" + std::to_string(options_.queue_max) + " requests); try again later",
                 "sampler_queue_full"};
  }
  auto entry = std::make_unique<Request>();
  const int room = options_.tokens_max - static_cast<int>(request.prompt.size());
  entry->output_max = std::min(request.params.max_tokens.value_or(room), room);
  entry->seed = request.params.seed ? *request.params.seed : random_u64();
  entry->number = ++last_number_;
  entry->submitted = clock_.monotonic();
  entry->result.sequences.resize(static_cast<size_t>(request.num_samples));
  if (request.prompt_logprobs) entry->result.prompt_logprobs.assign(1, std::numeric_limits<float>::quiet_NaN());
  if (request.topk_prompt_logprobs > 0) entry->result.topk_prompt_logprobs.resize(1);
  entry->what = std::move(request);
  entry->done = std::move(done);
  waiting_.push_back(std::move(entry));
  return last_number_;
}

void BatchSampler::cancel(RequestNumber number) {
  Done done;
  const auto is_it = [number](const auto& request) { return request->number == number; };
  if (const auto queued = std::find_if(waiting_.begin(), waiting_.end(), is_it); queued != waiting_.end()) {
    done = std::move((*queued)->done);
    waiting_.erase(queued);
  } else if (const auto found = std::find_if(active_.begin(), active_.end(), is_it); found != active_.end()) {
    done = std::move((*found)->done);
    drop(**found);
  } else {
    return;
  }
  done(Error{ErrorCode::kCancelled, "the sample request was cancelled", "cancelled"});
}

void BatchSampler::step() {
  const Nanos begin = clock_.monotonic();
  start_samples();
  admit();
  collect_feeds();
  if (!feeds_.empty()) {
    const Status status = engine_.step(
        feeds_, [this](size_t feed, int row, std::span<const float> logits) { take_logits(feed, row, logits); });
    if (status.ok()) {
      after_step();
    } else {
      fail_step(status.error());
    }
    record_step(to_seconds(clock_.monotonic() - begin));
    start_samples();
  }
  deliver();
}

// Samples of prompts that are done, as long as there are places; the others wait for one.
void BatchSampler::start_samples() {
  for (const auto& request : active_) {
    if (!request->prompt_done() || request->finished()) continue;
    if (request->output_max == 0) {
      request->samples_started = request->samples_finished = request->what.num_samples;
      continue;
    }
    while (request->samples_started < request->what.num_samples && running() < options_.sequences_max) {
      if (!start_sample(*request)) break;
    }
  }
}

// Draws the sample's first token and gives it a sequence to go on in, if it goes on. False: no sequence to be had now.
bool BatchSampler::start_sample(Request& request) {
  const int sample = request.samples_started;
  const bool last = sample + 1 == request.what.num_samples;
  const auto token = draw(request, sample, request.prompt_logits);
  if (!token) return false;
  auto running = std::make_unique<Running>(request);
  running->sample = sample;
  running->last = *token;
  if (request.first_token == 0) request.first_token = clock_.monotonic();
  const bool ends = append_token(request, sample, running->stop_text, *token);
  if (!ends && last) {
    running->sequence = request.stem;
    request.stem_open = false;
  } else if (!ends) {
    const int tokens_max = static_cast<int>(request.what.prompt.size()) + request.output_max;
    auto forked = engine_.fork_sequence(request.stem, tokens_max);
    if (!forked.ok()) {
      request.result.sequences[static_cast<size_t>(sample)] = {};
      const bool room_will_come = forked.error().code == ErrorCode::kResourceExhausted && !running_.empty();
      if (!room_will_come) mark_failed(request, forked.error());
      return false;
    }
    running->sequence = *forked;
  }
  ++request.samples_started;
  if (ends) {
    ++request.samples_finished;
  } else {
    running_.push_back(std::move(running));
  }
  if (last) std::vector<float>().swap(request.prompt_logits);
  return true;
}

void BatchSampler::admit() {
  size_t tokens = running_.size();
  for (const auto& request : active_) tokens += request->what.prompt.size() - request->prompt_fed;
  while (!waiting_.empty() && tokens < static_cast<size_t>(options_.batch_tokens) &&
         running() < options_.sequences_max) {
    Request& request = *waiting_.front();
    auto opened =
        engine_.open_sequence(request.what.adapter, static_cast<int>(request.what.prompt.size()) + request.output_max);
    if (!opened.ok()) {
      if (opened.error().code == ErrorCode::kResourceExhausted && !active_.empty()) return;
      outbox_.emplace_back(std::move(request.done), opened.error());
      waiting_.pop_front();
      continue;
    }
    request.stem = *opened;
    request.stem_open = true;
    request.started = clock_.monotonic();
    tokens += request.what.prompt.size();
    ++prefilling_;
    active_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void BatchSampler::collect_feeds() {
  feeds_.clear();
  slots_.clear();
  decode_tokens_ = prefill_tokens_ = 0;
  for (const auto& running : running_) {
    feeds_.push_back({running->sequence, {&running->last, 1}, 1});
    slots_.push_back({running.get(), nullptr, 1});
    ++decode_tokens_;
  }
  const auto budget = static_cast<size_t>(options_.batch_tokens);
  size_t left = budget > decode_tokens_ ? budget - decode_tokens_ : 0;
  for (const auto& request : active_) {
    if (left == 0) break;
    if (request->prompt_done()) continue;
    const std::span<const int32_t> prompt(request->what.prompt);
    const size_t count = std::min(left, prompt.size() - request->prompt_fed);
    const bool ends = request->prompt_fed + count == prompt.size();
    const int rows = request->wants_prompt_rows() ? static_cast<int>(count) : (ends ? 1 : 0);
    feeds_.push_back({request->stem, prompt.subspan(request->prompt_fed, count), rows});
    slots_.push_back({nullptr, request.get(), count});
    prefill_tokens_ += count;
    left -= count;
  }
}

void BatchSampler::take_logits(size_t feed, int row, std::span<const float> logits) {
  const Slot& slot = slots_[feed];
  if (slot.running != nullptr) {
    take_token(*slot.running, logits);
  } else {
    take_prompt_row(*slot.prompt, slot.prompt->prompt_fed + static_cast<size_t>(row), logits);
  }
}

void BatchSampler::take_prompt_row(Request& request, size_t position, std::span<const float> logits) {
  const auto& prompt = request.what.prompt;
  if (position + 1 == prompt.size()) {
    request.prompt_logits.assign(logits.begin(), logits.end());
    return;
  }
  if (!distribution_.load(logits)) {
    mark_failed(request, internal_error("the model gave logits that are not numbers", "nonfinite_logits"));
    return;
  }
  if (request.what.prompt_logprobs) {
    request.result.prompt_logprobs.push_back(distribution_.logprob(prompt[position + 1]));
  }
  if (request.what.topk_prompt_logprobs > 0) {
    request.result.topk_prompt_logprobs.push_back(distribution_.top(request.what.topk_prompt_logprobs));
  }
}

void BatchSampler::take_token(Running& running, std::span<const float> logits) {
  Request& request = *running.request;
  const auto token = draw(request, running.sample, logits);
  if (!token) return;
  running.last = *token;
  running.finished = append_token(request, running.sample, running.stop_text, *token);
}

std::optional<int32_t> BatchSampler::draw(Request& request, int sample, std::span<const float> logits) {
  if (!distribution_.load(logits)) {
    mark_failed(request, internal_error("the model gave logits that are not numbers", "nonfinite_logits"));
    return std::nullopt;
  }
  const SamplingParams& params = request.what.params;
  SampledSequence& output = request.result.sequences[static_cast<size_t>(sample)];
  const double uniform = uniform_at(request.seed, static_cast<uint64_t>(sample), output.tokens.size());
  const int32_t token = distribution_.draw(params.temperature, params.top_k, params.top_p, uniform);
  output.logprobs.push_back(distribution_.logprob(token));
  return token;
}

// True when the sample ends with this token.
bool BatchSampler::append_token(Request& request, int sample, StopText& stop_text, int32_t token) {
  SampledSequence& output = request.result.sequences[static_cast<size_t>(sample)];
  output.tokens.push_back(token);
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const SamplingParams& params = request.what.params;
  bool stops = holds(engine_.model().eos_token_ids) || holds(params.stop_tokens);
  if (!stops && !params.stop_strings.empty()) stops = stop_text.append(token_bytes_(token));
  output.reason = stops ? StopReason::kStop : StopReason::kLength;
  return stops || output.tokens.size() >= static_cast<size_t>(request.output_max);
}

void BatchSampler::after_step() {
  for (const Slot& slot : slots_) {
    if (slot.prompt == nullptr) continue;
    slot.prompt->prompt_fed += slot.tokens;
    if (slot.prompt->prompt_done()) --prefilling_;
  }
  std::erase_if(running_, [this](const auto& running) {
    if (!running->finished) return false;
    ++running->request->samples_finished;
    engine_.close_sequence(running->sequence);
    return true;
  });
}

void BatchSampler::fail_step(const Error& error) {
  for (const Slot& slot : slots_) mark_failed(slot.prompt != nullptr ? *slot.prompt : *slot.running->request, error);
}

void BatchSampler::mark_failed(Request& request, const Error& error) {
  const bool known = std::any_of(failed_.begin(), failed_.end(), [&](const auto& f) { return f.first == &request; });
  if (!known) failed_.emplace_back(&request, error);
}

void BatchSampler::close_stem(Request& request) {
  if (request.stem_open) engine_.close_sequence(request.stem);
  request.stem_open = false;
}

void BatchSampler::drop(const Request& request) {
  std::erase_if(running_, [&](const auto& running) {
    if (running->request != &request) return false;
    engine_.close_sequence(running->sequence);
    return true;
  });
  if (!request.prompt_done()) --prefilling_;
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const auto& entry) { return entry.get() == &request; });
  close_stem(**found);
  active_.erase(found);
}

// Callbacks run last, when everything here is in order again: they may submit and cancel.
void BatchSampler::deliver() {
  for (auto& [request, error] : std::exchange(failed_, {})) {
    outbox_.emplace_back(std::move(request->done), std::move(error));
    drop(*request);
  }
  const Nanos now = clock_.monotonic();
  for (size_t i = 0; i < active_.size();) {
    Request& request = *active_[i];
    if (!request.finished()) {
      ++i;
      continue;
    }
    if (request.first_token == 0) request.first_token = now;
    request.result.queue_seconds = to_seconds(request.started - request.submitted);
    request.result.prefill_seconds = to_seconds(request.first_token - request.started);
    request.result.decode_seconds = to_seconds(now - request.first_token);
    outbox_.emplace_back(std::move(request.done), std::move(request.result));
    drop(request);
  }
  for (auto& [done, result] : std::exchange(outbox_, {})) done(std::move(result));
}

void BatchSampler::record_step(double seconds) const {
  const auto& metrics = telemetry::get_metrics();
  static const auto decode_step = metrics.scheduler_step_duration.with({{"phase", "decode"}});
  static const auto prefill_step = metrics.scheduler_step_duration.with({{"phase", "prefill"}});
  static const auto mixed_step = metrics.scheduler_step_duration.with({{"phase", "mixed"}});
  static const auto batch_tokens = metrics.scheduler_batch_tokens.with({});
  batch_tokens.record(static_cast<double>(prefill_tokens_ + decode_tokens_));
  const bool both = prefill_tokens_ > 0 && decode_tokens_ > 0;
  (both ? mixed_step : prefill_tokens_ > 0 ? prefill_step : decode_step).record(seconds);
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(Engine& engine, const SamplerOptions& options, TokenBytes token_bytes,
                                      const Clock& clock) {
  return std::make_unique<BatchSampler>(engine, options, std::move(token_bytes), clock);
}

}  // namespace tuft::engine
