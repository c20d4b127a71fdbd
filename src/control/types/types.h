// The ids, requests and results of the control plane.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "base/result.h"
#include "loss_graph/program.h"
#include "telemetry/context.h"
#include "tinker/public.pb.h"

namespace tuft::control {

using UserId = Id<struct UserTag>;        // whom an API key belongs to; the tenant
using SessionId = Id<struct SessionTag>;  // one client process
using RunId = Id<struct RunTag>;          // a training run = model: one adapter being trained. "<session>:train:<n>"
using SamplerId = Id<struct SamplerTag>;  // a sampling session. "<session>:sample:<n>"
using RequestId = Id<struct RequestTag>;  // a future = operation

enum class OperationType : uint8_t {
  kCreateModel,
  kUnloadModel,
  kForward,
  kForwardBackward,
  kOptimStep,
  kSaveWeights,
  kSaveWeightsForSampler,
  kSaveWeightsExternal,
  kLoadWeights,
  kSample,
  kCreateCustomLoss,
  kUnknown,  // of a newer SDK than this server knows; always refused
};
inline constexpr size_t kOperationTypes = static_cast<size_t>(OperationType::kUnknown) + 1;
std::string_view operation_name(OperationType type);  // "create_model", ...
std::optional<OperationType> find_operation(std::string_view name);

// The ids that an operation concerns; the others are empty. Spans and logs carry them (operation_keys.h).
struct OperationKeys {
  RequestId request;  // empty: not a future
  OperationType operation = OperationType::kForward;
  UserId user;  // for the worker, where users take turns; on its spans only without a session
  SessionId session;
  RunId run;
  SamplerId sampler;
  std::string base_model;
  int lora_rank = 0;  // 0: no adapter
  std::optional<int64_t> seq_id;
};
using OperationKeysPtr = std::shared_ptr<const OperationKeys>;

// ---- requests of clients: decoded by api, validated by the controllers

struct CreateSession {
  std::vector<std::string> tags = {};
  std::map<std::string, std::string> user_metadata = {};
  std::string sdk_version = {};
  std::string project_id = {};
  std::string idempotency_key = {};  // X-Idempotency-Key; may be empty
  std::string display_name = {};     // a short text for people; may be empty
};

// The reason that a client gives for the end of its session.
enum class FinishReason : uint8_t { kSuccess, kErrored, kInterrupted };
inline constexpr size_t kFinishReasons = 3;
std::string_view finish_reason_name(FinishReason reason);  // "success", "errored", "interrupted"
// Returns nothing for another word.
std::optional<FinishReason> finish_reason_of(std::string_view name);

struct SessionFinish {
  FinishReason reason = FinishReason::kSuccess;
  std::string detail = {};  // in the client's words; may be empty
};

struct LoraConfig {
  int rank = 32;
  std::optional<uint64_t> seed;
  bool train_unembed = true;
  bool train_mlp = true;
  bool train_attn = true;
};

// The algorithm of a run's optimizer steps (docs/optimizers.md).
enum class Optimizer : uint8_t { kAdamW, kDimuon };
std::string_view optimizer_name(Optimizer optimizer);  // "adamw", "dimuon"
std::optional<Optimizer> find_optimizer(std::string_view name);

struct CreateModel {
  SessionId session;
  int64_t model_seq_id = 0;
  std::string base_model;
  std::map<std::string, std::string> user_metadata;
  LoraConfig lora;
  Optimizer optimizer = Optimizer::kAdamW;
};

struct CreateCustomLoss {
  SessionId session;
  int64_t custom_loss_seq_id = 0;
  std::vector<loss_graph::Input> inputs;
  std::string graph;  // as JSON; not yet checked
};

struct OptimStep {
  RunId run;
  std::optional<int64_t> seq_id;
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-12, weight_decay = 0.0, grad_clip_norm = 0.0;
  Optimizer optimizer = Optimizer::kAdamW;  // dimuon has learning_rate, beta1 and grad_clip_norm only
};

struct SaveWeights {
  RunId run;
  std::optional<int64_t> seq_id;
  std::string name;  // empty: chosen by the server
  std::optional<int64_t> ttl_seconds;
  bool overwrite = false;
  std::map<std::string, std::string> user_metadata = {};  // of the checkpoint
};

struct SaveWeightsForSampler {
  RunId run;
  std::optional<int64_t> seq_id;
  std::string name;                                // named mode
  std::optional<int64_t> sampling_session_seq_id;  // unnamed mode: makes a sampling session
  std::optional<int64_t> ttl_seconds;
  std::map<std::string, std::string> user_metadata = {};  // of the checkpoint
  bool inflight = false;  // unnamed mode: the sampling session follows the run (sampler_table.h)
};

// Saves weights for download.
struct SaveWeightsExternal {
  RunId run;
  std::optional<int64_t> seq_id;
  std::string name;
  std::optional<int64_t> ttl_seconds;
  std::map<std::string, std::string> user_metadata = {};  // of the checkpoint
  // The recipients who can decrypt the files (control/age); none: the files are not encrypted.
  std::optional<std::vector<std::string>> age_recipients = std::nullopt;
};

// A model that loading a checkpoint creates, with the LoRA configuration of the checkpoint.
struct NewModel {
  SessionId session;
  int64_t model_seq_id = 0;
  std::string base_model;  // may be empty; else the checkpoint's
  std::map<std::string, std::string> user_metadata;
  // The optimizer; none: that of the optimizer state, if it is loaded, else AdamW.
  std::optional<Optimizer> optimizer = std::nullopt;
};

struct LoadWeights {
  RunId run;
  std::optional<int64_t> seq_id;
  std::string path;  // tinker://...
  bool optimizer = false;
  std::optional<NewModel> create = std::nullopt;  // instead of run and seq_id
  std::string access_token = {};  // an API key of another user; the control plane replaces it by token_user at once
  UserId token_user = {};         // what they may load can be loaded, too
};

// Copies a checkpoint into a new run of the user, which only the copy makes visible.
struct CopyWeights {
  std::string source_path;  // tinker://...
  std::string project_id;   // of the copy; may be empty
  std::optional<int64_t> ttl_seconds;
  std::string access_token;     // an API key of another user, who may read the source; may be empty
  std::string idempotency_key;  // X-Idempotency-Key; may be empty
};

// An operation whose fields are not those of its type, so that there is no request for it.
struct RefusedOperation {
  RunId run;
  OperationType type = OperationType::kForward;
  std::optional<int64_t> seq_id;
  Error why;
};

struct CreateSamplingSession {
  SessionId session;
  int64_t seq_id = 0;
  std::string base_model;  // may be empty when model_path is given
  std::string model_path;  // tinker://...; wins
};

// Tokens whose log-probabilities are requested at positions of a prompt: row i is about position i + 1.
struct PromptTargets {
  std::vector<int32_t> tokens;  // row by row; -1: nothing is requested
  int64_t rows = 0;
  int64_t columns = 0;
  // The indices of a sparse tensor (CSR); both are empty for a dense one.
  std::vector<int32_t> crow_indices;
  std::vector<int32_t> col_indices;
};

struct Sample {
  SamplerId sampler;
  std::optional<int64_t> seq_id;
  std::vector<int32_t> prompt_tokens;
  int num_samples = 1;
  tinker_public::SamplingParams params;
  bool prompt_logprobs = false;
  int topk_prompt_logprobs = 0;
  int topk_sample_logprobs = 0;
  int prompt_alt_tokens_k = 0;
  std::optional<int64_t> prompt_logprobs_last_n = std::nullopt;
  std::optional<PromptTargets> target_prompt_logprobs = std::nullopt;
  bool record_stability_info = false;    // keep what stable_reinforce needs (SampleRecords)
  telemetry::SpanContext previous = {};  // of request tracing: the stage before the worker's first one
};

// ---- results

struct ModelInfo {
  RunId run;
  std::string base_model;
  std::string architecture;
  std::string tokenizer_id;  // a local path or the model's name
  int lora_rank = 0;
  Optimizer optimizer = Optimizer::kAdamW;
};

struct SamplerInfo {
  SamplerId sampler;
  std::string base_model;
  std::optional<std::string> model_path;  // tinker://...
  int lora_rank = 0;                      // 0: the base model itself
};

// The configuration of a model into which a checkpoint can be loaded.
struct WeightsInfo {
  std::string base_model;
  int lora_rank = 0;
  bool train_unembed = true;
  bool train_mlp = true;
  bool train_attn = true;
};

struct SupportedModel {
  std::string model_name;
  int max_context_length = 0;
  bool training = true;
  bool sampling = true;
};

struct Submitted {
  RequestId request;
  std::optional<RunId> run;
  OperationKeysPtr keys = nullptr;
  telemetry::SpanContext span = {};  // of future_store.execute_operation
};

struct CreateModelResult {
  RunId run;
};
struct UnloadModelResult {
  RunId run;
};
struct OptimStepResult {
  std::map<std::string, double> metrics;
};
struct SaveWeightsResult {
  std::string path;
};
struct SaveWeightsForSamplerResult {
  std::optional<std::string> path;
  std::optional<SamplerId> sampler;
};
struct SaveWeightsExternalResult {
  std::string path;
  int64_t size_bytes = 0;
};
struct LoadWeightsResult {
  std::string path;
  RunId run;
};
struct CreateCustomLossResult {
  std::string loss_id;
};
// Serialized tinker_public.ForwardBackwardOutput (kForward, kForwardBackward) or SampleResponse (kSample).
struct ProtobufResult {
  std::string bytes;
};
using FutureValue =
    std::variant<CreateModelResult, UnloadModelResult, OptimStepResult, SaveWeightsResult, SaveWeightsForSamplerResult,
                 SaveWeightsExternalResult, LoadWeightsResult, ProtobufResult, CreateCustomLossResult>;

// The samples of one client of a sampling session (futures/sample_feeds.h).
struct SampleFeed {
  SamplerId sampler;
  int64_t client = 0;  // seq_id / 10^9
  friend auto operator<=>(const SampleFeed&, const SampleFeed&) = default;
};
struct SampleCompletion {
  RequestId request;
  bool failed = false;
  int64_t result_bytes = 0;
};
// The samples that have finished since a client asked last.
struct SampleNews {
  std::vector<SampleCompletion> completions;
  int64_t cursor = 0;  // of the last one; without any, the one that was asked with
};

// Why a pending operation has not finished, as the SDK shows it to its user.
enum class QueueState : uint8_t {
  kActive,           // it is being executed, or is about to be
  kPausedCapacity,   // the worker is away, or others' operations fill it
  kPausedRateLimit,  // its user is at a limit
};
inline constexpr size_t kQueueStates = 3;
std::string_view queue_state_name(QueueState state);  // "active", "paused_capacity", "paused_rate_limit"

struct FutureSnapshot {
  enum class State : uint8_t { kPending, kReady, kFailed };
  State state = State::kPending;
  RequestId request;
  OperationType operation = OperationType::kForward;
  std::shared_ptr<const FutureValue> value;  // kReady
  Error error;                               // kFailed
  telemetry::SpanContext span;               // of future_store.execute_operation, to link to
  Nanos created_monotonic = 0;
  OperationKeysPtr keys = nullptr;
  // kPending
  bool at_worker = false;
  QueueState queue_state = QueueState::kActive;
  std::string queue_reason = {};  // in words; empty: kActive
};

}  // namespace tuft::control
