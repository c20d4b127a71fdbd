#include "openai/completion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "control/queues/text_pieces.h"
#include "openai/errors.h"
#include "openai/service.h"

namespace tuft::openai {
namespace {

// The cost of composing an answer in the user's turns.
constexpr int64_t kAnswerCost = kRequestBytes * kCostOfByte;

// The cost of composing a piece of a long answer. The tree of a token is some ten times as large as its text.
constexpr int64_t kPieceCost = static_cast<int64_t>(kAnswerPieceBytes) * kCostOfByte;

// What a choice adds to the events at a time: they may be composed on the thread of a connection.
constexpr size_t kEventTokensMax = 64;

// A long answer, composed on the work threads in the user's turns, as fast as its client reads it.
class LongAnswer final : public EventStream {
 public:
  // `completion` owns what the pieces refer to besides `choices`.
  LongAnswer(std::shared_ptr<const Completion> completion, const Completion::Parts& parts, const AnswerHead& head,
             std::vector<WholeChoice> choices, const TokenUsage& usage)
      : work_(parts.work), user_(parts.user), state_(std::make_shared<State>()) {
    state_->completion = std::move(completion);
    state_->choices = std::move(choices);
    state_->pieces.emplace(answer_pieces(head, *parts.text, state_->choices, usage));
  }
  void next(std::function<void(Result<std::string>)> done) override {
    // The task keeps the state of which the pieces are a part.
    std::shared_ptr<AnswerPieces> pieces(state_, &*state_->pieces);
    control::write_next_piece(*work_, user_, kPieceCost, std::move(pieces), done);
  }

 private:
  struct State {
    std::shared_ptr<const Completion> completion;
    std::vector<WholeChoice> choices;
    std::optional<AnswerPieces> pieces;  // refer to the other members
  };
  const std::shared_ptr<control::WorkPool> work_;
  const control::UserId user_;
  const std::shared_ptr<State> state_;
};

// Destroyed when the client has disconnected or has read everything.
class CompletionEvents final : public EventStream {
 public:
  explicit CompletionEvents(std::shared_ptr<Completion> completion) : completion_(std::move(completion)) {}
  ~CompletionEvents() override { completion_->cancel(); }
  void next(std::function<void(Result<std::string>)> done) override { completion_->next(std::move(done)); }

 private:
  const std::shared_ptr<Completion> completion_;
};

template <typename Number>
std::vector<Number> read_numbers(const std::string& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

Error client_went_away() {
  return {ErrorCode::kCancelled, "the client disconnected", "cancelled"};
}

AnswerHead head_of(const Completion::Parts& parts) {
  const Request& request = parts.request;
  AnswerHead head;
  head.endpoint = request.endpoint;
  head.id = (request.endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-") + parts.id.str();
  head.model = request.model;
  head.created = parts.created;
  head.logprobs = request.logprobs;
  head.top_logprobs = request.top_logprobs;
  head.usage_in_chunks = request.include_usage;
  return head;
}

}  // namespace

Reply error_reply(const Error& error, std::string_view param) {
  return {http_status(error), error_body(error, param), nullptr};
}

int64_t kept_bytes(const Request& request, const KeptParts& parts) {
  constexpr int64_t kTextBytes = 8;
  constexpr auto kTokenBytes = static_cast<int64_t>(sizeof(int32_t));
  constexpr auto kShownBytes = static_cast<int64_t>(sizeof(ShownToken)) + 32;  // in a growing list, with its own list
  const int64_t shown = parts.output_tokens + (request.echo ? parts.prompt_tokens * request.choices : 0);
  int64_t bytes = parts.prompt_tokens * kTokenBytes + parts.echoed_bytes;
  bytes += std::max(shown * kTextBytes, parts.text_bytes);
  if (!request.logprobs) return bytes;
  return bytes + shown * (kShownBytes + request.top_logprobs * static_cast<int64_t>(sizeof(TokenChoice)));
}

Completion::Completion(Parts parts, CompletionTelemetry telemetry, ReplyDone reply, ByteAccount::Hold memory)
    : parts_(std::move(parts)),
      head_(head_of(parts_)),
      telemetry_(std::move(telemetry)),
      reply_(std::move(reply)),
      memory_(std::move(memory)) {
  const size_t prompts = parts_.prompts.size();
  prompts_left_ = prompts;
  scores_.resize(prompts);
  for (const auto& prompt : parts_.prompts) usage_.prompt += static_cast<int64_t>(prompt.size());
  for (size_t i = 0; i < prompts * static_cast<size_t>(parts_.request.choices); ++i) {
    choices_.push_back(std::make_unique<Choice>(
        Choice{TextStream(*parts_.text, parts_.request.stops, parts_.request.logprobs), false, false}));
  }
}

// ---- the generations

void Completion::start() {
  for (size_t prompt = 0; prompt < parts_.prompts.size(); ++prompt) {
    // A request that was cancelled before its first generation ends here; otherwise it has already ended.
    if (!start_prompt(prompt)) return fail(client_went_away());
  }
}

bool Completion::start_prompt(size_t prompt) {
  telemetry::SpanContext trace;
  {
    MutexLock lock(mutex_);
    if (ended_ || cancelled_) return false;
    trace = telemetry_.context();
  }
  control::GenerationListener listener;
  listener.on_tokens = [self = shared_from_this(), prompt](const control::GenerationDelta& delta) {
    self->on_tokens(prompt, delta);
  };
  listener.done = [self = shared_from_this(), prompt](Result<tinker_public::SampleResponse> result) {
    self->on_done(prompt, std::move(result));
  };
  const auto number = parts_.generation.start(parts_.user, generation_request(prompt), trace, std::move(listener));
  if (!number.ok()) {
    fail(number.error());
    return false;
  }
  {
    MutexLock lock(mutex_);
    running_.push_back(*number);
    if (!ended_ && !cancelled_) return true;
    if (!cancelled_ && !failure_) return true;  // it has already been completed
  }
  parts_.generation.cancel(*number);
  return false;
}

control::GenerationRequest Completion::generation_request(size_t prompt) const {
  const Request& request = parts_.request;
  control::GenerationRequest generation;
  generation.model = request.model;
  generation.prompt_tokens = parts_.prompts[prompt];
  generation.num_samples = request.choices;
  generation.params = request.params;
  generation.prompt_logprobs = request.echo && request.logprobs;
  generation.topk_prompt_logprobs = generation.prompt_logprobs ? request.top_logprobs : 0;
  generation.topk_logprobs = request.top_logprobs;
  generation.request = parts_.id;
  generation.previous = parts_.preprocess;
  return generation;
}

Completion::Choice* Completion::choice_locked(size_t prompt, int sample) {
  if (sample < 0 || sample >= parts_.request.choices) return nullptr;
  return choices_[prompt * static_cast<size_t>(parts_.request.choices) + static_cast<size_t>(sample)].get();
}

// Returns what the request keeps now.
int64_t Completion::kept_locked() const {
  int64_t text = 0;
  for (const auto& choice : choices_) text += choice->text.text_memory();
  return kept_bytes(parts_.request, {usage_.prompt, usage_.completion, parts_.echoed_bytes, text});
}

// Holds an eighth more than is missing if there is room, so that a long text does not ask for each token.
Status Completion::hold_more(int64_t missing, int64_t held) {
  auto more = parts_.generation.hold_memory(parts_.user, missing + held / 8);
  if (!more.ok()) more = parts_.generation.hold_memory(parts_.user, missing);
  if (!more.ok()) return std::move(more).error();
  MutexLock lock(mutex_);
  memory_.join(std::move(*more));
  return {};
}

void Completion::on_tokens(size_t prompt, const control::GenerationDelta& delta) {
  int64_t missing = 0;
  int64_t held = 0;
  {
    MutexLock lock(mutex_);
    Choice* choice = choice_locked(prompt, delta.sample);
    if (ended_ || cancelled_ || choice == nullptr || parts_.request.scores_only) return;
    telemetry_.first_tokens();
    usage_.completion += static_cast<int64_t>(delta.tokens.size());
    const auto topk = static_cast<size_t>(delta.topk);
    std::vector<TokenChoice> top(topk);
    for (size_t i = 0; i < delta.tokens.size(); ++i) {
      for (size_t column = 0; column < topk; ++column) {
        top[column] = {delta.topk_tokens[i * topk + column], delta.topk_logprobs[i * topk + column]};
      }
      choice->text.add({delta.tokens[i], delta.logprobs[i]}, top);
    }
    held = memory_.bytes();
    missing = kept_locked() - held;
  }
  if (missing > 0) {
    if (const Status done = hold_more(missing, held); !done.ok()) return fail(done.error());
  }
  if (!parts_.request.stream) return;
  give_stream();
  wake_reader();
}

void Completion::on_done(size_t prompt, Result<tinker_public::SampleResponse> result) {
  if (!result.ok()) return fail(result.error());
  bool last = false;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    finish_prompt_locked(prompt, *result);
    last = --prompts_left_ == 0;
    ended_ = last;
  }
  if (last) return complete();
  if (parts_.request.stream) wake_reader();
}

void Completion::finish_prompt_locked(size_t prompt, const tinker_public::SampleResponse& response) {
  usage_.cached += response.prompt_cache_hit_tokens();
  for (int sample = 0; sample < response.sequences_size(); ++sample) {
    Choice* choice = choice_locked(prompt, sample);
    if (choice == nullptr) break;
    choice->text.finish(!parts_.request.scores_only &&
                        response.sequences(sample).stop_reason() == tinker_public::STOP_REASON_STOP);
    if (choice->text.finish_reason() == "stop") ++stopped_;
  }
  if (!response.has_prompt_logprobs()) return;
  Scores& scores = scores_[prompt];
  scores.logprobs = read_numbers<float>(response.prompt_logprobs());
  const tinker_public::TopkLogprobs& topk = response.topk_prompt_logprobs();
  const auto tokens = read_numbers<int32_t>(topk.token_ids());
  const auto logprobs = read_numbers<float>(topk.logprobs());
  const size_t columns = topk.k();
  if (columns == 0 || tokens.size() != logprobs.size()) return;
  scores.top.resize(tokens.size() / columns);
  for (size_t i = 0; i < scores.top.size() * columns; ++i) {
    scores.top[i / columns].push_back({tokens[i], logprobs[i]});
  }
}

// Called when all prompts are finished.
void Completion::complete() {
  TokenUsage usage;
  int64_t stopped = 0;
  int64_t choices = 0;
  {
    MutexLock lock(mutex_);
    usage = usage_;
    stopped = stopped_;
    choices = static_cast<int64_t>(choices_.size());
    memory_.shrink_to(kept_locked());
  }
  telemetry_.completed(usage, stopped, choices - stopped);
  if (parts_.request.stream) {
    give_stream();
    return wake_reader();
  }
  std::function<void()> give = [self = shared_from_this()] { self->give_answer(); };
  if (!parts_.work->post_rest(parts_.user, kAnswerCost, std::move(give))) give_answer();
}

// Keeps the first error, which may be that of a cancellation.
void Completion::fail(const Error& error) {
  ReplyDone reply;
  std::vector<control::Generation::Number> others;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    failure_ = error;
    reply = std::exchange(reply_, {});
    others = running_;
  }
  telemetry_.failed(error);
  for (const auto number : others) parts_.generation.cancel(number);
  if (reply) return reply(error_reply(error));
  wake_reader();
}

void Completion::cancel() {
  std::vector<control::Generation::Number> numbers;
  ReplyDone unused_reply;
  std::function<void(Result<std::string>)> unused_reader;
  {
    MutexLock lock(mutex_);
    unused_reader = std::exchange(reader_, {});
    unused_reply = std::exchange(reply_, {});
    if (ended_ || cancelled_) return;
    cancelled_ = true;
    numbers = running_;
  }
  if (numbers.empty()) return fail(client_went_away());
  for (const auto number : numbers) parts_.generation.cancel(number);
}

void Completion::abandon() {
  {
    MutexLock lock(mutex_);
    if (!reply_) return;
  }
  cancel();
}

// ---- the answer in one piece

void Completion::give_answer() {
  ReplyDone reply;
  std::vector<WholeChoice> choices;
  TokenUsage usage;
  {
    MutexLock lock(mutex_);
    reply = std::exchange(reply_, {});
    if (!reply) return;
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(whole_choice_locked(i));
    usage = usage_;
  }
  if (answer_bytes(head_, choices) > kAnswerPieceBytes) return give_pieces(reply, std::move(choices), usage);
  reply({200, whole_answer(head_, *parts_.text, choices, usage), nullptr});
}

void Completion::give_pieces(const ReplyDone& reply, std::vector<WholeChoice> choices, const TokenUsage& usage) {
  reply({200, {}, std::make_shared<LongAnswer>(shared_from_this(), parts_, head_, std::move(choices), usage)});
}

WholeChoice Completion::whole_choice_locked(size_t index) {
  Choice& choice = *choices_[index];
  WholeChoice whole;
  whole.piece = choice.text.take();
  whole.finish_reason = choice.text.finish_reason();
  if (parts_.request.echo) prepend_prompt_locked(index / static_cast<size_t>(parts_.request.choices), whole);
  return whole;
}

std::string Completion::prompt_text(size_t prompt) const {
  const std::string* text = std::get_if<std::string>(&parts_.request.prompts[prompt]);
  return text != nullptr ? *text : parts_.text->decode(parts_.prompts[prompt]);
}

void Completion::prepend_prompt_locked(size_t prompt, WholeChoice& choice) {
  const std::string text = prompt_text(prompt);
  choice.piece.text.insert(0, text);
  if (!parts_.request.logprobs) return;
  const int64_t characters = count_characters(text);
  for (ShownToken& token : choice.piece.tokens) token.offset += characters;
  const Scores& scores = scores_[prompt];
  const std::vector<int32_t>& tokens = parts_.prompts[prompt];
  std::vector<ShownToken> shown;
  int64_t offset = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool scored = i < scores.logprobs.size() && !std::isnan(scores.logprobs[i]);
    ShownToken token{{tokens[i], scored ? scores.logprobs[i] : 0}, {}, offset};
    if (scored && i < scores.top.size()) token.top = scores.top[i];
    shown.push_back(std::move(token));
    choice.unscored.push_back(!scored);
    offset += count_characters(parts_.text->visible_bytes(tokens[i]));
  }
  choice.piece.tokens.insert(choice.piece.tokens.begin(), std::make_move_iterator(shown.begin()),
                             std::make_move_iterator(shown.end()));
}

// ---- the answer as events

void Completion::give_stream() {
  ReplyDone reply;
  {
    MutexLock lock(mutex_);
    reply = std::exchange(reply_, {});
  }
  if (reply) reply({200, {}, std::make_shared<CompletionEvents>(shared_from_this()), false});
}

void Completion::next(std::function<void(Result<std::string>)> done) {
  {
    MutexLock lock(mutex_);
    reader_ = std::move(done);
  }
  wake_reader();
}

void Completion::wake_reader() {
  std::function<void(Result<std::string>)> reader;
  std::string events;
  {
    MutexLock lock(mutex_);
    if (!reader_) return;
    const bool was_ended = events_ended_;
    events = take_events_locked();
    if (events.empty() && !was_ended) return;
    reader = std::exchange(reader_, {});
  }
  reader(std::move(events));
}

std::string Completion::take_events_locked() {
  if (events_ended_) return {};
  std::string events;
  if (failure_) {
    events_ended_ = true;
    return error_event(*failure_).append(kDoneEvent);
  }
  for (size_t i = 0; i < choices_.size() && events.size() < kAnswerPieceBytes; ++i) events += choice_events_locked(i);
  const bool has_more = std::any_of(choices_.begin(), choices_.end(), [](const std::unique_ptr<Choice>& choice) {
    return choice->text.finished() && !choice->closed;
  });
  if (prompts_left_ > 0 || has_more) return events;
  events_ended_ = true;
  if (head_.usage_in_chunks) events += usage_event(head_, usage_);
  return events.append(kDoneEvent);
}

std::string Completion::choice_events_locked(size_t index) {
  Choice& choice = *choices_[index];
  const TextStream::Piece piece = choice.text.take(kAnswerPieceBytes / 2, kEventTokensMax);
  const auto number = static_cast<int>(index);
  std::string events;
  if (!choice.began && (!piece.empty() || choice.text.finished())) {
    choice.began = true;
    if (head_.endpoint == Endpoint::kChat) events += role_event(head_, number);
    if (parts_.request.echo) {
      const size_t prompt = index / static_cast<size_t>(parts_.request.choices);
      events += piece_event(head_, *parts_.text, number, {prompt_text(prompt), {}});
    }
  }
  if (!piece.empty()) events += piece_event(head_, *parts_.text, number, piece);
  if (choice.text.drained() && !choice.closed) {
    choice.closed = true;
    events += finish_event(head_, number, choice.text.finish_reason());
  }
  return events;
}

}  // namespace tuft::openai
