// The OpenAI-compatible API, independent of HTTP. It parses bodies, renders templates and tokenizes texts on the
// threads of a WorkPool and never on an I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/result.h"
#include "control/queues/work_pool.h"
#include "control/sampling/generation.h"
#include "openai/types.h"
#include "telemetry/context.h"

namespace tuft::openai {

class ModelTexts;
struct KeptParts;

inline constexpr int64_t kBodyBytesMax = 16 << 20;

// The largest page of GET /models.
inline constexpr int64_t kModelsMax = 1'000;

// The cost of a request in addition to its body, which limits the number of small requests per turn.
inline constexpr int64_t kRequestBytes = 16 << 10;

// Longer answers are composed and sent in pieces of about this size.
inline constexpr size_t kAnswerPieceBytes = 64 << 10;

// The cost of one byte in the WorkPool, where decoding a byte of a datum costs 1.
inline constexpr int64_t kCostOfByte = 8;

// One task of the WorkPool encodes prompts with about this many bytes of text. A longer one is divided into words by
// one task, which encodes the short ones; its long words are encoded by as many tasks as they need.
inline constexpr size_t kEncodedAtATime = 64 << 10;

// Thread-safe. `generation` and `clock` must outlive it, and `work` must be stopped before it is destroyed. Requests
// that wait for a thread, and what encoding their prompts takes, are charged to their user's memory
// (limits.queued_bytes_per_user_max).
class Service {
 public:
  Service(control::Generation& generation, const Clock& clock, std::shared_ptr<control::WorkPool> work);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Destroying it before the reply cancels the request.
  class Pending;
  using PendingPtr = std::shared_ptr<Pending>;

  // Calls `reply` once, before complete() returns or later on another thread. If the request is cancelled, `reply` may
  // never be called. `id` names the request in its spans, its logs and its answer; `trace` is its server span.
  PendingPtr complete(Endpoint endpoint, const control::UserId& user, const control::RequestId& id, std::string body,
                      const telemetry::SpanContext& trace, ReplyDone reply);

  // Lists the models after the id `after`, which may be empty. Requires 1 <= `limit` <= kModelsMax.
  Reply list_models(const control::UserId& user, std::string_view after = {}, int64_t limit = kModelsMax) const;
  Reply get_model(const control::UserId& user, std::string_view id) const;

 private:
  struct Task;

  void run(const std::shared_ptr<Task>& task);
  void prepare(const std::shared_ptr<Task>& task, Pending& pending);
  Status read(Task& task);
  Status render(Task& task) const;
  Status encode(Task& task) const;
  Status start_encoding(Task& task, std::string_view text) const;
  Result<ByteAccount::Hold> hold_values(const Task& task) const;
  static KeptParts longest_answer(const Task& task);
  Status start(Task& task, Pending& pending);

  control::Generation& generation_;
  const Clock& clock_;
  const std::unique_ptr<ModelTexts> texts_;
  const std::shared_ptr<control::WorkPool> work_;
};

}  // namespace tuft::openai
