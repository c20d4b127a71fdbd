// What the console, terminals and assistants see of the server, beside its telemetry. Times are nanoseconds since the
// Unix epoch, 0: not known; a number that is not known is NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actor/worker_rows.h"
#include "base/clock.h"
#include "control/observe/explain.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"
#include "telemetry_store/query.h"

namespace tuft::control {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A part of a list. `offset` counts from its beginning; the list may change between two parts.
struct Part {
  size_t offset = 0, limit = 50;
};
template <typename T>
struct PartOf {
  std::vector<T> rows = {};
  std::optional<size_t> next = {};  // the offset of what follows; nothing: these are the last
};

struct ModelRow {
  std::string base_model = {};
  bool ready = false;
  std::string_view state = {};  // of the worker that can do most: the words of actor::worker_state_name(), as below
  uint64_t incarnation = 0;     // of its worker; 0: it was never ready
  bool training = false, sampling = false;
  int64_t waiting_training = 0, waiting_sampling = 0;  // operations that the worker does not have
  Nanos last_step = 0;                                 // the newest optimizer step; for operators
  std::string why_waiting = {};                        // in words; empty: nothing waits
};

// A worker that serves a base model, stands by, or is gone.
struct WorkerInstance {
  std::string base_model;
  std::string_view state;
  actor::WorkerRow row;  // for users that are not operators without what tells about machines
};

struct Overview {
  Nanos now = 0, started = 0;
  bool ready = false;
  std::string reason = {};  // why it is not ready
  std::vector<ModelRow> models = {};
  int64_t sessions = 0, runs = 0, samplers = 0, pending = 0;
  std::optional<int64_t> users_active = {};  // users with a session; for operators
};

struct RunRow {
  RunId run = {};
  SessionId session = {};
  UserId user = {};
  std::string base_model = {};
  int lora_rank = 0;
  Optimizer optimizer = Optimizer::kAdamW;
  Nanos created = 0, last_active = 0;
  bool alive = false;      // its adapter is there
  bool corrupted = false;  // it could not be restored
  // As the store has recorded them.
  int64_t steps = 0;
  double loss = kUnknown, grad_norm = kUnknown, learning_rate = kUnknown, tokens_per_second = kUnknown;
};

// Where the time of a run went.
enum class TimeKind : uint8_t { kPasses, kOptimizer, kWaiting, kSaving, kIdle };
inline constexpr size_t kTimeKinds = 5;
std::string_view time_kind_name(TimeKind kind);  // "passes", ...

struct RunTime {
  double seconds = 0;  // of the newest steps that are looked at
  int64_t steps = 0, tokens = 0;
  double parts[kTimeKinds] = {};
};

struct OperationRow {
  std::string operation = {};
  int64_t count = 0, failed = 0;
  double p50 = kUnknown, p95 = kUnknown;  // seconds
};

struct RunDetails {
  RunRow run = {};
  std::vector<CheckpointPtr> checkpoints = {};  // the newest first
  RunTime time = {};
  std::vector<std::string> advice = {};  // sentences
  std::vector<OperationRow> operations = {};
};

struct SamplerRow {
  SamplerId sampler = {};
  SessionId session = {};
  UserId user = {};
  std::string base_model = {};
  std::optional<std::string> model_path = {};
  Nanos created = 0, last_active = 0;
  int64_t requests = 0;  // in this server's life
  std::optional<RunId> follows_run = {};
};

struct SessionRow {
  SessionId session = {};
  UserId user = {};
  Nanos created = 0, last_heartbeat = 0;
  std::string display_name = {}, project = {}, sdk_version = {};  // may be empty
  bool alive = false;
  int64_t runs = 0, samplers = 0;
  // In this server's life: the part of the time in which one of its operations was unfinished, and how many were, then.
  double busy_share = kUnknown, concurrency = kUnknown;
};

struct QuotaRow {
  std::string_view limit = {};  // the key of the configuration
  int64_t used = 0, max = 0;    // max 0: no limit
};

struct TenantRow {
  UserId user = {};
  int64_t sessions = 0, runs = 0, samplers = 0, pending = 0, queued_bytes = 0, checkpoint_bytes = 0;
  int64_t train_tokens = 0, input_tokens = 0, output_tokens = 0;  // about the last hour
  double engine_share = kUnknown;                                 // of the tokens of all users in that time, 0 .. 1
  std::vector<QuotaRow> quotas = {};
};

struct WorkerRow {
  std::string base_model = {};
  std::string_view state = {};
  uint64_t incarnation = 0;
  int threads = 0;  // 0: as many as the machine's cores allow
  std::string device = {};
};

struct SystemView {
  Nanos started = 0;
  bool is_whole = false;    // what follows down to `export` is there
  std::string config = {};  // YAML without secrets
  std::vector<WorkerRow> workers = {};
  bool exports = false;
  std::vector<std::string_view> signals = {};  // that leave the process

  std::optional<telemetry_store::StoreState> store = {};
  std::vector<std::pair<std::string_view, int64_t>> limits = {};
};

// The critical path and the explanation are those of the trace's owner. Spans of other users' programs, which only an
// operator sees, come last.
struct ObservedTrace {
  telemetry_store::Trace trace = {};
  std::vector<PathPiece> critical_path = {};
  Explanation explanation = {};
};

}  // namespace tuft::control
