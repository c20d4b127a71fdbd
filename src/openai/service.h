// The OpenAI-compatible API behind its routes. Bodies are read, templates rendered and texts cut into tokens on threads
// of its own: an I/O thread never does it. What waits for them is bounded, and users take turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/generation.h"
#include "openai/completion.h"
#include "openai/model_text.h"
#include "openai/request.h"
#include "telemetry/context.h"

namespace tuft::openai {

inline constexpr int64_t kBodyBytesMax = 16 << 20;

// Of a page of GET /models.
inline constexpr int64_t kModelsMax = 1'000;

// What a request counts besides its body, so that the turns of small ones are not endless.
inline constexpr int64_t kRequestBytes = 16 << 10;

struct ServiceOptions {
  int threads = 2;
  // Of requests that wait for a thread; over it: 429, but never for a user's only one. Their bodies are in the user's
  // account of memory, too (limits.queued_bytes_per_user_max).
  int64_t user_bytes_max = int64_t{32} << 20;
  int64_t bytes_max = int64_t{256} << 20;
};

// Thread-safe. `generation` and `clock` outlive it.
class Service {
 public:
  using Options = ServiceOptions;

  Service(control::Generation& generation, const Clock& clock, const Options& options = {});
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Whoever drops it before the reply gives the request up.
  class Pending;
  using PendingPtr = std::shared_ptr<Pending>;

  // `reply` is called once, perhaps before this returns, perhaps on another thread; perhaps not where it is given up.
  PendingPtr complete(Endpoint endpoint, const control::UserId& user, std::string body,
                      const telemetry::SpanContext& trace, ReplyDone reply);

  // As OpenAI pages other lists: those after the model `after`, which may be empty. `limit`: 1 to kModelsMax.
  Reply list_models(const control::UserId& user, std::string_view after = {}, int64_t limit = kModelsMax) const;
  Reply get_model(const control::UserId& user, std::string_view id) const;

 private:
  struct Task;

  void run();
  void prepare(Task& task, const PendingPtr& pending);
  Result<std::vector<std::vector<int32_t>>> encode(const Request& request, const ModelText& text) const;

  control::Generation& generation_;
  const Clock& clock_;
  const Options options_;
  ModelTexts texts_;
  const std::shared_ptr<WorkQueue> work_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tuft::openai
