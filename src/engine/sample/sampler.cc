#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/id.h"
#include "engine/sample/check_request.h"
#include "engine/sample/draws.h"
#include "engine/sample/prompt_scores.h"
#include "engine/sample/request_state.h"
#include "engine/sample/schedule.h"
#include "engine/sample/step_cost.h"
#include "engine/sample/step_metrics.h"
#include "engine/sample/step_trace.h"
#include "telemetry/context.h"

namespace tuft::engine {
namespace {

Error cancelled() noexcept {
  try {
    return {ErrorCode::kCancelled, "the sample request was cancelled", "cancelled"};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kCancelled, "cancelled", "cancelled"};
  }
}

void append_logprobs(const Request& request, SampledSequence& output, Drawn& drawn) {
  output.logprobs.push_back(drawn.logprob);
  if (request.what.topk_logprobs > 0) output.topk_logprobs.push_back(std::move(drawn.top));
}

// It has more than 25 methods: those of the port, and a short private one for each part of a step.
class BatchSampler final : public Sampler {
 public:
  BatchSampler(const ModelSpec& model, const AdapterStore& adapters, DecodeEngine& engine,
               const SamplerOptions& options, TokenBytes token_bytes, const Clock& clock)
      : model_(model),
        adapters_(adapters),
        engine_(engine),
        options_(options),
        token_bytes_(std::move(token_bytes)),
        clock_(clock),
        metrics_(options.base_model, options.batch_tokens, options.memory_bytes),
        trace_(options.base_model),
        draws_(engine),
        schedule_(engine, model, options_, metrics_, cost_) {
    TUFT_CHECK(options.batch_tokens >= 1 && options.tokens_max >= 1 && options.sequences_max >= 1,
               "sampler options must be positive");
    update_metrics();  // zeros, not gaps, before the first request
  }

  Result<RequestNumber> submit(SampleRequest request, Done done) override;
  void cancel(RequestNumber number) override;
  bool idle() const override { return schedule_.waiting() == 0 && schedule_.active().empty(); }
  void step() override;
  int running() const override { return schedule_.places_taken(); }
  int active() const override { return static_cast<int>(schedule_.active().size()); }
  int waiting() const override { return static_cast<int>(schedule_.waiting()); }
  Phases phases() const override;
  Nanos last_step_end() const override { return last_step_end_; }
  void pause() override { follows_ = false; }

 private:
  Result<RequestNumber> enqueue(SampleRequest request, Done done);
  Result<int> output_max(const SampleRequest& request) const;
  void run_step();
  void lacked_memory();
  void start_samples();
  void draw_first_tokens();
  bool start_sample(Request& request);
  void take_logits(std::span<const LogitsRow> rows);
  void take_token(Running& running, LogitsTask& task);
  bool append_token(Request& request, int sample, StopText& stop_text, int32_t token);
  void add_draw(const Request& request, int sample, std::span<const float> logits);
  void record_token_times();
  void stream_tokens() const;
  void stream_tokens(Request& request) const;
  void deliver();
  std::vector<std::unique_ptr<Request>> remove_ended();
  void answer(Request& request) const;
  void report_nonfinite(Request& request);
  void update_metrics() const;

  const ModelSpec& model_;
  const AdapterStore& adapters_;
  DecodeEngine& engine_;
  const SamplerOptions options_;
  const TokenBytes token_bytes_;
  const Clock& clock_;
  const StepMetrics metrics_;
  StepTrace trace_;
  Draws draws_;
  std::vector<LogitsTask> tasks_;   // of the rows that are taken now
  std::vector<Request*> first_of_;  // the requests whose first tokens are drawn now, one for each of tasks_

  RequestNumber last_number_ = 0;
  std::unordered_map<std::string, uint64_t> scopes_;  // as many as there are tenants
  StepCost cost_;
  Schedule schedule_;
  Nanos now_ = 0;  // begin, then end of the step
  Nanos last_step_end_ = 0;
  bool follows_ = false;  // the step before this one has just ended
};

Result<Sampler::RequestNumber> BatchSampler::submit(SampleRequest request, Done done) try {
  auto number = enqueue(std::move(request), std::move(done));
  if (!number.ok()) metrics_.rejected(number.error());
  return number;
} catch (const std::bad_alloc&) {
  Error error = out_of_memory();
  metrics_.rejected(error);
  return error;
}

Result<Sampler::RequestNumber> BatchSampler::enqueue(SampleRequest request, Done done) {
  TUFT_TRY(check_request(request, model_, adapters_, options_.tokens_max, static_cast<bool>(token_bytes_)));
  if (schedule_.waiting() >= static_cast<size_t>(options_.queue_max)) {
    return Error{ErrorCode::kResourceExhausted,
                 "the sampler's queue is full (" + std::to_string(options_.queue_max) + " requests); try again later",
                 "sampler_queue_full"};
  }
  auto entry = std::make_unique<Request>();
  TUFT_ASSIGN(entry->output_max, output_max(request));
  entry->scope = scopes_.try_emplace(request.scope, scopes_.size()).first->second;
  entry->seed = request.params.seed ? *request.params.seed : random_u64();
  entry->number = ++last_number_;
  entry->times.arrived = request.arrived != 0 ? request.arrived : clock_.monotonic();
  entry->result.sequences.resize(static_cast<size_t>(request.num_samples));
  if (request.on_tokens) entry->streamed.resize(static_cast<size_t>(request.num_samples));
  entry->what = std::move(request);
  begin_prompt_scores(*entry);
  entry->done = std::move(done);
  schedule_.enqueue(std::move(entry));
  return last_number_;
}

// Limits the tokens of a sample by max_model_len and by the size of the cache.
Result<int> BatchSampler::output_max(const SampleRequest& request) const {
  const auto prompt = static_cast<int>(request.prompt.size());
  const int room = options_.tokens_max - prompt;
  const int wanted = std::min(request.params.max_tokens.value_or(room), room);
  const int fits = schedule_.tokens_max();  // the newest token is never fed
  if (wanted <= 0 ? prompt <= fits : prompt <= fits - wanted + 1) return wanted;
  // A request for all that max_model_len allows gets as many as the cache can hold.
  if (wanted == room && prompt <= fits) return fits - prompt + 1;
  const KvUsage usage = engine_.kv_usage();
  return invalid_argument("the prompt has " + std::to_string(prompt) + " tokens, and max_tokens allows " +
                              std::to_string(wanted) + " more, but the base model's KV cache holds " +
                              std::to_string(fits) + " (kv_cache_bytes is " + std::to_string(usage.limit) +
                              "); request fewer tokens, or raise the limit",
                          "kv_cache_limit");
}

void BatchSampler::cancel(RequestNumber number) {
  const std::unique_ptr<Request> request = schedule_.remove(number);
  if (request == nullptr) return;
  const telemetry::ContextScope scope(request->what.trace);
  metrics_.ended(clock_.monotonic() - request->times.arrived);
  update_metrics();
  request->done(cancelled());
}

void BatchSampler::step() {
  try {
    run_step();
  } catch (const std::bad_alloc&) {
    lacked_memory();
  }
  deliver();
}

// Fails what is active, since its state may be incomplete, and nothing else. If nothing is active, the step failed on
// what waits, and the oldest gives way.
void BatchSampler::lacked_memory() {
  for (const auto& request : schedule_.active()) request->fail(out_of_memory());
  if (!schedule_.active().empty()) return;
  if (const auto request = schedule_.remove_oldest_waiting()) {
    request->fail(out_of_memory());
    answer(*request);
  }
}

Sampler::Phases BatchSampler::phases() const {
  Phases phases{.pending = static_cast<size_t>(schedule_.waiting())};
  for (const auto& request : schedule_.active()) {
    const bool pending = request->times.started == 0;
    ++(pending ? phases.pending : request->prompt_was_done ? phases.decoding : phases.prefilling);
  }
  return phases;
}

void BatchSampler::run_step() {
  const Nanos begin = now_ = clock_.monotonic();
  if (std::exchange(follows_, false)) metrics_.overhead(begin - last_step_end_);
  start_samples();
  schedule_.plan(now_);
  metrics_.scheduled(schedule_.step(), schedule_.active().size(), schedule_.waiting());
  if (!schedule_.feeds().empty()) {
    const Status status =
        engine_.step(schedule_.feeds(), [this](std::span<const LogitsRow> rows) { take_logits(rows); });
    now_ = last_step_end_ = clock_.monotonic();
    metrics_.stepped(schedule_.step(), now_ - begin);
    trace_.stepped(schedule_.step(), schedule_.slots(), {begin, now_}, engine_.kv_usage(), status);
    if (status.ok()) {
      cost_.stepped(schedule_.step_cost(), now_ - begin);
      schedule_.fed();
      record_token_times();
      schedule_.remove_finished();
    } else {
      for (const Slot& slot : schedule_.slots()) slot.request().fail(status.error());
    }
    start_samples();
    follows_ = true;
  }
}

// Starts samples of finished prompts while there are places; the others wait.
void BatchSampler::start_samples() {
  draw_first_tokens();
  for (const auto& request : schedule_.active()) {
    if (request->failure) continue;
    while (!request->first_tokens.empty() && schedule_.has_place(*request)) {
      if (!start_sample(*request)) break;
    }
  }
}

// Draws for as many samples as there are places. What cannot start keeps its token.
void BatchSampler::draw_first_tokens() {
  tasks_.clear();
  first_of_.clear();
  int places = std::max(0, options_.sequences_max - schedule_.places_taken());
  for (const auto& request : schedule_.active()) {
    if (!request->prompt_was_done || request->failure) continue;
    const int samples = request->what.num_samples;
    if (request->output_max == 0) request->samples_started = request->samples_finished = samples;
    if (!schedule_.has_place(*request)) continue;
    // Without a stem one sample starts at a time; each tenant has a place in any case.
    const int wanted = std::min(samples - request->samples_started, request->stem ? std::max(1, places) : 1);
    for (int next = static_cast<int>(request->first_tokens.size()); next < wanted; ++next) {
      add_draw(*request, request->samples_started + next, request->prompt_logits);
      first_of_.push_back(request.get());
    }
    places -= wanted;
  }
  draws_.run(tasks_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].finite) {
      first_of_[i]->first_tokens.push_back(std::move(tasks_[i].drawn));
    } else if (!first_of_[i]->failure) {
      report_nonfinite(*first_of_[i]);
    }
  }
}

// Gives the sample a sequence, unless it ends with its first token. Returns false if none can start now.
bool BatchSampler::start_sample(Request& request) {
  const int sample = request.samples_started;
  const bool last = sample + 1 == request.what.num_samples;
  const bool waits = !request.stem;
  Drawn& first = request.first_tokens.front();
  auto running = std::make_unique<Running>(request);
  running->sample = sample;
  running->last = first.token;
  running->last_time = now_;
  const bool ends = append_token(request, sample, running->stop_text, first.token);
  SampledSequence& output = request.result.sequences[static_cast<size_t>(sample)];
  if (!ends && !schedule_.start(running)) {
    output = {};
    return false;
  }
  append_logprobs(request, output, first);
  request.first_tokens.pop_front();
  if (request.times.first_token == 0) {
    request.times.first_token = now_;
    // Exemplars lead from the histograms to the request's trace.
    const telemetry::ContextScope scope(request.what.trace);
    metrics_.first_token(now_ - request.times.arrived);
  }
  ++request.samples_started;
  if (ends) ++request.samples_finished;
  if (last) {
    std::vector<float>().swap(request.prompt_logits);
    schedule_.close_stem(request);
  }
  return ends || !waits;
}

// Draws from all rows together, and then takes the results in order.
void BatchSampler::take_logits(std::span<const LogitsRow> rows) {
  const auto position_of = [](const Request& request, int row) {
    return request.prompt_fed + static_cast<size_t>(row) + 1;
  };
  const auto is_last_of_prompt = [&](const Slot& slot, int row) {
    return slot.running == nullptr && position_of(*slot.prompt, row) == slot.prompt->what.prompt.size();
  };
  tasks_.clear();
  for (const LogitsRow& one : rows) {
    const Slot& slot = schedule_.slots()[one.feed];
    if (is_last_of_prompt(slot, one.row)) {
      slot.prompt->prompt_logits.assign(one.logits.begin(), one.logits.end());
    } else if (slot.running != nullptr) {
      add_draw(*slot.running->request, slot.running->sample, one.logits);
    } else {
      LogitsTask& task = tasks_.emplace_back();
      task.logits = one.logits;
      ask_for_scores(*slot.prompt, position_of(*slot.prompt, one.row), task);
    }
  }
  draws_.run(tasks_);
  auto task = tasks_.begin();
  for (const LogitsRow& one : rows) {
    const Slot& slot = schedule_.slots()[one.feed];
    if (is_last_of_prompt(slot, one.row)) continue;
    if (slot.running != nullptr) {
      take_token(*slot.running, *task);
    } else if (task->finite) {
      keep_scores(*slot.prompt, *task);
    } else {
      report_nonfinite(*slot.prompt);
    }
    ++task;
  }
}

void BatchSampler::take_token(Running& running, LogitsTask& task) {
  Request& request = *running.request;
  if (!task.finite) return report_nonfinite(request);
  running.next = task.drawn.token;
  running.fresh = true;
  running.finished = append_token(request, running.sample, running.stop_text, running.next);
  append_logprobs(request, request.result.sequences[static_cast<size_t>(running.sample)], task.drawn);
}

// The number of the draw belongs to the position in the sample, so that it depends on nothing else.
void BatchSampler::add_draw(const Request& request, int sample, std::span<const float> logits) {
  const size_t position = request.result.sequences[static_cast<size_t>(sample)].tokens.size();
  LogitsTask& task = tasks_.emplace_back();
  task.logits = logits;
  task.params = &request.what.params;
  task.uniform = uniform_at(request.seed, static_cast<uint64_t>(sample), position);
  task.top = request.what.topk_logprobs;
}

void BatchSampler::report_nonfinite(Request& request) {
  // A prompt is one sequence but has many rows; count it once.
  const bool adapter = request.what.adapter.has_value();
  if (!request.failure || request.prompt_was_done) metrics_.nonfinite_logits(adapter);
  // What a user's own weights do is no fault of the server, and no alert of its operator.
  request.fail(adapter ? failed_precondition("the weights of this adapter give logits that are not finite; sample from "
                                             "an earlier checkpoint of the run",
                                             "nonfinite_logits")
                       : internal_error("the base model returned logits that are not finite", "nonfinite_logits"));
}

// Returns true if the sample ends with this token.
bool BatchSampler::append_token(Request& request, int sample, StopText& stop_text, int32_t token) {
  SampledSequence& output = request.result.sequences[static_cast<size_t>(sample)];
  output.tokens.push_back(token);
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const SamplingParams& params = request.what.params;
  bool stops = (params.ends_at_eos && holds(model_.eos_token_ids)) || holds(params.stop_tokens);
  if (!stops && !params.stop_strings.empty()) stops = stop_text.append(token_bytes_(token));
  output.reason = stops ? StopReason::kStop : StopReason::kLength;
  return stops || output.tokens.size() >= static_cast<size_t>(request.output_max);
}

// Usually all sequences got their last token in the previous step and share one record.
void BatchSampler::record_token_times() {
  Nanos since = 0;
  size_t tokens = 0;
  const auto record = [&] {
    if (tokens > 0) metrics_.tokens_after(now_ - since, tokens);
  };
  for (const Slot& slot : schedule_.slots()) {
    if (slot.running == nullptr || !std::exchange(slot.running->fresh, false)) continue;
    if (slot.running->last_time != since) {
      record();
      since = slot.running->last_time;
      tokens = 0;
    }
    slot.running->last_time = now_;
    ++tokens;
  }
  record();
}

void BatchSampler::stream_tokens() const {
  for (const auto& request : schedule_.active()) {
    if (request->failure) continue;
    try {
      stream_tokens(*request);
    } catch (const std::bad_alloc&) {
      request->fail(out_of_memory());
    }
  }
}

void BatchSampler::stream_tokens(Request& request) const {
  for (size_t sample = 0; sample < request.streamed.size(); ++sample) {
    const SampledSequence& output = request.result.sequences[sample];
    const size_t had = std::exchange(request.streamed[sample], output.tokens.size());
    if (had == output.tokens.size()) continue;
    request.what.on_tokens(static_cast<int>(sample), std::span(output.tokens).subspan(had),
                           std::span(output.logprobs).subspan(had),
                           output.topk_logprobs.empty() ? std::span<const std::vector<TokenLogprob>>()
                                                        : std::span(output.topk_logprobs).subspan(had));
  }
}

// Callbacks run last, when the state is consistent again, because they may submit and cancel.
void BatchSampler::deliver() {
  stream_tokens();
  const auto ended = remove_ended();
  update_metrics();
  for (const auto& request : ended) answer(*request);
}

// Without memory for the list nothing is removed; the next step delivers.
std::vector<std::unique_ptr<Request>> BatchSampler::remove_ended() {
  std::vector<std::unique_ptr<Request>> ended;
  const auto& active = schedule_.active();
  try {
    ended.reserve(active.size());
  } catch (const std::bad_alloc&) {
    return ended;
  }
  for (size_t i = 0; i < active.size();) {
    if (active[i]->failure || active[i]->finished()) {
      ended.push_back(schedule_.remove(*active[i]));
    } else {
      ++i;
    }
  }
  return ended;
}

void BatchSampler::answer(Request& request) const {
  const telemetry::ContextScope scope(request.what.trace);
  metrics_.ended(now_ - request.times.arrived);
  if (request.failure) {
    if (request.times.started == 0) metrics_.rejected(*request.failure);
    return request.done(std::move(*request.failure));
  }
  if (request.times.first_token == 0) request.times.first_token = now_;
  request.times.ended = now_;
  request.result.times = request.times;
  request.done(std::move(request.result));
}

void BatchSampler::update_metrics() const {
  metrics_.kv_cache(engine_.kv_usage());
  metrics_.kv_blocks(engine_.take_kv_block_times());
  if (idle()) metrics_.idle();
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(const ModelSpec& model, const AdapterStore& adapters, DecodeEngine& engine,
                                      const SamplerOptions& options, TokenBytes token_bytes, const Clock& clock) {
  return std::make_unique<BatchSampler>(model, adapters, engine, options, std::move(token_bytes), clock);
}

}  // namespace tuft::engine
