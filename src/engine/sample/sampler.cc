#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/id.h"
#include "engine/sample/check_request.h"
#include "engine/sample/distribution.h"
#include "engine/sample/request_state.h"
#include "engine/sample/step_metrics.h"

namespace tuft::engine {
namespace {

class BatchSampler final : public Sampler {
 public:
  BatchSampler(Engine& engine, const SamplerOptions& options, TokenBytes token_bytes, const Clock& clock)
      : engine_(engine),
        options_(options),
        token_bytes_(std::move(token_bytes)),
        clock_(clock),
        metrics_(options.base_model, options.batch_tokens, options.memory_bytes) {
    TUFT_CHECK(options.batch_tokens >= 1 && options.tokens_max >= 1 && options.sequences_max >= 1,
               "sampler options must be positive");
    publish();  // zeros, not gaps, before the first request
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
  int active() const override { return static_cast<int>(active_.size()); }
  int waiting() const override { return static_cast<int>(waiting_.size()); }
  Nanos last_step_end() const override { return last_step_end_; }
  void pause() override { follows_ = false; }

 private:
  Result<RequestNumber> enqueue(SampleRequest request, Done done);
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
  bool has_failed(const Request& request) const;
  void drop(const Request& request);
  void close_stem(Request& request);
  void deliver();
  void stream_tokens() const;
  void fail(Request& request, const Error& error);
  void report_nonfinite(Request& request);
  void count_adapters();
  void record_token_times();
  void publish() const;

  Engine& engine_;
  const SamplerOptions options_;
  const TokenBytes token_bytes_;
  const Clock& clock_;
  const StepMetrics metrics_;
  Distribution distribution_;

  RequestNumber last_number_ = 0;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> active_;  // in order of admission
  std::vector<std::unique_ptr<Running>> running_;
  int prefilling_ = 0;  // active requests whose prompt is not done
  std::vector<Feed> feeds_;
  std::vector<Slot> slots_;
  std::unordered_map<AdapterId, AdapterUse> adapters_;
  StepMetrics::Step step_;
  uint64_t step_number_ = 0;
  Nanos now_ = 0;  // begin, then end of the step
  Nanos last_step_end_ = 0;
  bool follows_ = false;  // the step before this one has just ended
  std::vector<std::pair<Request*, Error>> failed_;
  std::vector<std::pair<Done, Result<SampleResult>>> outbox_;
};

Result<Sampler::RequestNumber> BatchSampler::submit(SampleRequest request, Done done) {
  auto number = enqueue(std::move(request), std::move(done));
  if (!number.ok()) metrics_.rejected(number.error());
  return number;
}

Result<Sampler::RequestNumber> BatchSampler::enqueue(SampleRequest request, Done done) {
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
  entry->times.arrived = request.arrived != 0 ? request.arrived : clock_.monotonic();
  entry->result.sequences.resize(static_cast<size_t>(request.num_samples));
  if (request.prompt_logprobs) entry->result.prompt_logprobs.assign(1, std::numeric_limits<float>::quiet_NaN());
  if (request.topk_prompt_logprobs > 0) entry->result.topk_prompt_logprobs.resize(1);
  if (request.on_tokens) entry->streamed.resize(static_cast<size_t>(request.num_samples));
  entry->what = std::move(request);
  entry->done = std::move(done);
  waiting_.push_back(std::move(entry));
  return last_number_;
}

void BatchSampler::cancel(RequestNumber number) {
  Done done;
  Nanos arrived = 0;
  const auto is_it = [number](const auto& request) { return request->number == number; };
  if (const auto queued = std::find_if(waiting_.begin(), waiting_.end(), is_it); queued != waiting_.end()) {
    done = std::move((*queued)->done);
    arrived = (*queued)->times.arrived;
    waiting_.erase(queued);
  } else if (const auto found = std::find_if(active_.begin(), active_.end(), is_it); found != active_.end()) {
    done = std::move((*found)->done);
    arrived = (*found)->times.arrived;
    drop(**found);
  } else {
    return;
  }
  metrics_.ended(clock_.monotonic() - arrived);
  publish();
  done(Error{ErrorCode::kCancelled, "the sample request was cancelled", "cancelled"});
}

void BatchSampler::step() {
  const Nanos begin = now_ = clock_.monotonic();
  if (std::exchange(follows_, false)) metrics_.overhead(begin - last_step_end_);
  start_samples();
  admit();
  collect_feeds();
  metrics_.scheduled(step_, active_.size(), waiting_.size());
  if (!feeds_.empty()) {
    const Status status = engine_.step(
        feeds_, [this](size_t feed, int row, std::span<const float> logits) { take_logits(feed, row, logits); });
    now_ = last_step_end_ = clock_.monotonic();
    metrics_.stepped(step_, now_ - begin);
    if (status.ok()) {
      after_step();
    } else {
      fail_step(status.error());
    }
    start_samples();
    follows_ = true;
  }
  deliver();
}

// Samples of prompts that are done, as long as there are places; the others wait for one.
void BatchSampler::start_samples() {
  for (const auto& request : active_) {
    if (!request->prompt_done() || request->finished() || has_failed(*request)) continue;
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
  running->last_time = now_;
  if (request.times.first_token == 0) {
    request.times.first_token = now_;
    metrics_.first_token(now_ - request.times.arrived);
  }
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
      metrics_.rejected(opened.error());
      fail(request, opened.error());
      waiting_.pop_front();
      continue;
    }
    request.stem = *opened;
    request.stem_open = true;
    request.times.started = now_;
    metrics_.queued(now_ - request.times.arrived);
    if (request.what.adapter) {
      request.adapter = &adapters_[*request.what.adapter];
      ++request.adapter->requests;
    }
    tokens += request.what.prompt.size();
    ++prefilling_;
    active_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void BatchSampler::collect_feeds() {
  feeds_.clear();
  slots_.clear();
  step_ = {};
  for (const auto& running : running_) {
    feeds_.push_back({running->sequence, {&running->last, 1}, 1});
    slots_.push_back({running.get(), nullptr, 1});
    ++step_.decode_tokens;
  }
  const auto budget = static_cast<size_t>(options_.batch_tokens);
  size_t left = budget > step_.decode_tokens ? budget - step_.decode_tokens : 0;
  for (const auto& request : active_) {
    if (left == 0) break;
    if (request->prompt_done()) continue;
    const std::span<const int32_t> prompt(request->what.prompt);
    const size_t count = std::min(left, prompt.size() - request->prompt_fed);
    const bool ends = request->prompt_fed + count == prompt.size();
    const int rows = request->wants_prompt_rows() ? static_cast<int>(count) : (ends ? 1 : 0);
    feeds_.push_back({request->stem, prompt.subspan(request->prompt_fed, count), rows});
    slots_.push_back({nullptr, request.get(), count});
    step_.prefill_tokens += count;
    left -= count;
  }
  step_.sequences = slots_.size();
  count_adapters();
}

void BatchSampler::count_adapters() {
  ++step_number_;
  for (const Slot& slot : slots_) {
    AdapterUse* const use = slot.prompt != nullptr ? slot.prompt->adapter : slot.running->request->adapter;
    if (use == nullptr || std::exchange(use->last_step, step_number_) == step_number_) continue;
    ++step_.adapters;
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
    report_nonfinite(request);
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
  running.fresh = true;
  running.finished = append_token(request, running.sample, running.stop_text, *token);
}

std::optional<int32_t> BatchSampler::draw(Request& request, int sample, std::span<const float> logits) {
  if (!distribution_.load(logits)) {
    report_nonfinite(request);
    return std::nullopt;
  }
  const SamplingParams& params = request.what.params;
  SampledSequence& output = request.result.sequences[static_cast<size_t>(sample)];
  const double uniform = uniform_at(request.seed, static_cast<uint64_t>(sample), output.tokens.size());
  const int32_t token = distribution_.draw(params.temperature, params.top_k, params.top_p, uniform);
  output.logprobs.push_back(distribution_.logprob(token));
  if (request.what.topk_logprobs > 0) output.topk_logprobs.push_back(distribution_.top(request.what.topk_logprobs));
  return token;
}

void BatchSampler::report_nonfinite(Request& request) {
  const size_t before = failed_.size();
  mark_failed(request, internal_error("the model gave logits that are not numbers", "nonfinite_logits"));
  // A prompt has as many rows as tokens, and is one sequence.
  if (failed_.size() > before || request.prompt_done()) metrics_.nonfinite_logits();
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
  record_token_times();
  std::erase_if(running_, [this](const auto& running) {
    if (!running->finished) return false;
    ++running->request->samples_finished;
    engine_.close_sequence(running->sequence);
    return true;
  });
}

// Nearly always all of them got their last token in the step before: one record for all.
void BatchSampler::record_token_times() {
  Nanos since = 0;
  size_t tokens = 0;
  const auto record = [&] {
    if (tokens > 0) metrics_.tokens_after(now_ - since, tokens);
  };
  for (const auto& running : running_) {
    if (!std::exchange(running->fresh, false)) continue;
    if (running->last_time != since) {
      record();
      since = running->last_time;
      tokens = 0;
    }
    running->last_time = now_;
    ++tokens;
  }
  record();
}

void BatchSampler::fail_step(const Error& error) {
  for (const Slot& slot : slots_) mark_failed(slot.prompt != nullptr ? *slot.prompt : *slot.running->request, error);
}

void BatchSampler::mark_failed(Request& request, const Error& error) {
  if (!has_failed(request)) failed_.emplace_back(&request, error);
}

bool BatchSampler::has_failed(const Request& request) const {
  return std::any_of(failed_.begin(), failed_.end(), [&](const auto& failed) { return failed.first == &request; });
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
  if (request.adapter != nullptr && --request.adapter->requests == 0) adapters_.erase(*request.what.adapter);
  active_.erase(found);
}

void BatchSampler::fail(Request& request, const Error& error) {
  metrics_.ended(now_ - request.times.arrived);
  outbox_.emplace_back(std::move(request.done), error);
}

void BatchSampler::stream_tokens() const {
  for (const auto& request : active_) {
    for (size_t sample = 0; sample < request->streamed.size(); ++sample) {
      const SampledSequence& output = request->result.sequences[sample];
      const size_t had = std::exchange(request->streamed[sample], output.tokens.size());
      if (had == output.tokens.size()) continue;
      request->what.on_tokens(static_cast<int>(sample), std::span(output.tokens).subspan(had),
                              std::span(output.logprobs).subspan(had));
    }
  }
}

// Callbacks run last, when everything here is in order again: they may submit and cancel.
void BatchSampler::deliver() {
  for (const auto& [request, error] : std::exchange(failed_, {})) {
    fail(*request, error);
    drop(*request);
  }
  stream_tokens();
  for (size_t i = 0; i < active_.size();) {
    Request& request = *active_[i];
    if (!request.finished()) {
      ++i;
      continue;
    }
    if (request.times.first_token == 0) request.times.first_token = now_;
    request.times.ended = now_;
    request.result.times = request.times;
    metrics_.ended(now_ - request.times.arrived);
    outbox_.emplace_back(std::move(request.done), std::move(request.result));
    drop(request);
  }
  publish();
  for (auto& [done, result] : std::exchange(outbox_, {})) done(std::move(result));
}

void BatchSampler::publish() const {
  metrics_.kv_cache(engine_.kv_usage());
  if (idle()) metrics_.idle();
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(Engine& engine, const SamplerOptions& options, TokenBytes token_bytes,
                                      const Clock& clock) {
  return std::make_unique<BatchSampler>(engine, options, std::move(token_bytes), clock);
}

}  // namespace tuft::engine
