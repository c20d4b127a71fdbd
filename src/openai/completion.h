// A request of the OpenAI API that is being answered: its generations, the text of its choices, and the answer or the
// events for its client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/queues/work_pool.h"
#include "control/sampling/generation.h"
#include "openai/answers.h"
#include "openai/completion_telemetry.h"
#include "openai/model_text.h"
#include "openai/request.h"
#include "openai/types.h"

namespace tuft::openai {

Reply error_reply(const Error& error, std::string_view param = {});

// What a request keeps until its client has read the answer.
struct KeptParts {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // of all choices
  int64_t echoed_bytes = 0;   // the texts of echoed prompts, once for each choice and once for the request
  int64_t text_bytes = 0;     // the memory of the texts of the choices, as far as they exist
};
// Returns the memory of these parts. A token of a choice counts with eight bytes of text at least.
int64_t kept_bytes(const Request& request, const KeptParts& parts);

// Thread-safe. Kept alive by its waiter and by its generations.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  struct Parts {
    control::Generation& generation;
    std::shared_ptr<control::WorkPool> work;
    control::UserId user;
    control::RequestId id;
    int64_t created = 0;   // unix seconds
    Request request = {};  // without messages, tools and variables, and with prompts only for echo
    std::shared_ptr<const ModelText> text = nullptr;
    std::vector<std::vector<int32_t>> prompts = {};  // tokens
    int64_t echoed_bytes = 0;                        // see KeptParts
    telemetry::SpanContext preprocess = {};          // the stage of request tracing in which they were made
  };
  // `memory` is that of kept_bytes() for the longest answer. It is held until the client has read the answer, and grows
  // with texts that are longer. Where it cannot, the request fails.
  Completion(Parts parts, CompletionTelemetry telemetry, ReplyDone reply, ByteAccount::Hold memory);

  // Requires: called once. The reply of a stream waits for its first tokens, so that a refusal before them is not sent
  // with status 200.
  void start();
  // Cancels the request before the reply. Has no effect after the reply.
  void abandon();
  // Cancels the request after the reply: the events are no longer read.
  void cancel();
  // See EventStream.
  void next(std::function<void(Result<std::string>)> done);

 private:
  struct Choice {
    TextStream text;
    bool began = false;   // its role, or the echoed prompt, was sent
    bool closed = false;  // its finish_reason was sent
  };
  struct Scores {  // the log-probabilities of an echoed prompt
    std::vector<float> logprobs;
    std::vector<std::vector<TokenChoice>> top;
  };

  bool start_prompt(size_t prompt);
  control::GenerationRequest generation_request(size_t prompt) const;
  Choice* choice_locked(size_t prompt, int sample) TUFT_REQUIRES(mutex_);
  void on_tokens(size_t prompt, const control::GenerationDelta& delta);
  int64_t kept_locked() const TUFT_REQUIRES(mutex_);
  Status hold_more(int64_t missing, int64_t held);
  void on_done(size_t prompt, Result<tinker_public::SampleResponse> result);
  void finish_prompt_locked(size_t prompt, const tinker_public::SampleResponse& response) TUFT_REQUIRES(mutex_);
  void complete();
  void fail(const Error& error);
  void give_answer();
  void give_pieces(const ReplyDone& reply, std::vector<WholeChoice> choices, const TokenUsage& usage);
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
  // Guarded by mutex_ until ended_; afterwards only the thread that ended the request uses it.
  CompletionTelemetry telemetry_;
  ReplyDone reply_ TUFT_GUARDED_BY(mutex_);  // empty after the reply
  std::function<void(Result<std::string>)> reader_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Choice>> choices_ TUFT_GUARDED_BY(mutex_);  // ordered by prompt, then sample
  std::vector<Scores> scores_ TUFT_GUARDED_BY(mutex_);
  std::vector<control::Generation::Number> running_ TUFT_GUARDED_BY(mutex_);
  size_t prompts_left_ TUFT_GUARDED_BY(mutex_) = 0;
  TokenUsage usage_ TUFT_GUARDED_BY(mutex_);
  int64_t stopped_ TUFT_GUARDED_BY(mutex_) = 0;  // choices
  bool ended_ TUFT_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ TUFT_GUARDED_BY(mutex_);
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  bool events_ended_ TUFT_GUARDED_BY(mutex_) = false;
  ByteAccount::Hold memory_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::openai
