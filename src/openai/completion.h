// One request that is being answered: its generations, the texts of its choices, and the answer or the events for who
// waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/generation.h"
#include "control/tenant_queue.h"
#include "openai/answers.h"
#include "openai/completion_record.h"
#include "openai/model_text.h"
#include "openai/request.h"

namespace tuft::openai {

// The body of a streamed answer. Destroyed when it is sent or the client is gone, which ends the generation.
class EventStream {
 public:
  virtual ~EventStream() = default;
  // The next events; empty: the end. One call at a time; `done` is called once, on any thread.
  virtual void next(std::function<void(Result<std::string>)> done) = 0;
};

struct Reply {
  int status = 200;
  std::string body;                     // JSON
  std::shared_ptr<EventStream> events;  // where set, instead of the body: text/event-stream
};
using ReplyDone = std::function<void(Reply)>;

// What is not to be done on the thread that hears of it. Costs are bytes.
using WorkQueue = control::TenantQueue<std::function<void()>>;

Reply error_reply(const Error& error, std::string_view param = {});

// Thread-safe. Kept alive by whoever waits and by its generations.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  struct Parts {
    control::Generation& generation;
    std::shared_ptr<WorkQueue> work;
    control::UserId user;
    control::RequestId id;
    int64_t created = 0;  // unix seconds
    Request request = {};
    std::shared_ptr<const ModelText> text = nullptr;
    std::vector<std::vector<int32_t>> prompts = {};  // tokens
  };
  Completion(Parts parts, CompletionRecord record, ReplyDone reply);

  // Once. A streamed answer is replied to when its first tokens are there, so that what is refused late is no 200.
  void start();
  // Nobody waits for the reply any more. Nothing once it was given.
  void abandon();
  // Nobody reads the events any more.
  void cancel();
  // See EventStream.
  void next(std::function<void(Result<std::string>)> done);

 private:
  struct Choice {
    TextStream text;
    bool began = false;   // its role, or the prompt that it echoes, was sent
    bool closed = false;  // its finish_reason was sent
  };
  struct Scores {  // of a prompt that is echoed with its log-probabilities
    std::vector<float> logprobs;
    std::vector<std::vector<TokenChoice>> top;
  };

  bool start_prompt(size_t prompt);
  control::GenerationRequest generation_request(size_t prompt) const;
  Choice* choice_locked(size_t prompt, int sample) TUFT_REQUIRES(mutex_);
  void on_tokens(size_t prompt, const control::GenerationDelta& delta);
  void on_done(size_t prompt, Result<tinker_public::SampleResponse> result);
  void finish_prompt_locked(size_t prompt, const tinker_public::SampleResponse& response) TUFT_REQUIRES(mutex_);
  void complete();
  void fail(const Error& error);
  void give_answer();
  void give_stream();
  void wake_reader();
  std::string take_events_locked() TUFT_REQUIRES(mutex_);
  std::string choice_events_locked(size_t index) TUFT_REQUIRES(mutex_);
  WholeChoice whole_choice_locked(size_t index) TUFT_REQUIRES(mutex_);
  void prepend_prompt_locked(size_t prompt, WholeChoice& choice) TUFT_REQUIRES(mutex_);
  std::string prompt_text(size_t prompt) const;

  const Parts parts_;
  const AnswerHead head_;

  Mutex mutex_;
  // Once it has ended, only its end uses it, without the lock.
  CompletionRecord record_;
  ReplyDone reply_ TUFT_GUARDED_BY(mutex_);  // empty once it was given
  std::function<void(Result<std::string>)> reader_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Choice>> choices_ TUFT_GUARDED_BY(mutex_);  // of the first prompt, then of the next
  std::vector<Scores> scores_ TUFT_GUARDED_BY(mutex_);
  std::vector<control::Generation::Number> running_ TUFT_GUARDED_BY(mutex_);
  size_t prompts_left_ TUFT_GUARDED_BY(mutex_) = 0;
  TokenUsage usage_ TUFT_GUARDED_BY(mutex_);
  int64_t stopped_ TUFT_GUARDED_BY(mutex_) = 0;  // choices
  bool ended_ TUFT_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ TUFT_GUARDED_BY(mutex_);
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  bool events_ended_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::openai
