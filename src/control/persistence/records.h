// The records of the control plane in the persistent store, and their JSON (docs/formats/persistence.md).
//
// Fields that TuFT knows have its names and forms. Fields that only this server needs are under "tuft".
//
// A result in protobuf lies apart from the record of its future, under a key of its own: results can be long, and a
// restart reads only the records.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"

namespace tuft::control {

struct SessionRecord {
  SessionId id;
  UserId user;
  CreateSession request;
  std::string created_at;  // ISO 8601, here and below
  std::string ending;      // why it ends (session_end_name); empty: it does not end
  SessionFinish finish;    // what the client said, if it ends for that
};

// The checkpoint that holds the weights of a run or of a sampling session. A path can be used again, a number cannot.
struct CheckpointRef {
  std::string path;  // tinker://...
  uint64_t future_number = 0;
};

struct RunRecord {
  RunId id;
  UserId user;
  SessionId session;
  std::string base_model;
  LoraConfig lora;
  Optimizer optimizer = Optimizer::kAdamW;
  uint64_t seed = 0;
  double lora_alpha = 0;
  std::map<std::string, std::string> user_metadata;
  bool metadata_apart = false;  // user_metadata is not in this record, but in a RunMetadataRecord
  std::vector<std::string> target_modules;
  std::string created_at;
  std::string last_request_at;
  int64_t next_seq_id = 1;
  int next_training_name = 1;
  int next_sampler_name = 1;
  int next_ephemeral_name = 1;
  // The checkpoint from which the adapter is restored, and what it would lose by that.
  std::optional<CheckpointRef> restore_point;
  bool restore_with_optimizer = false;
  uint64_t restore_number = 0;  // of the operation that saved or loaded it
  std::optional<int64_t> restore_seq_id;
  bool restore_lacks_gradient = false;  // a gradient was pending when it was saved; no checkpoint holds gradients
  bool weights_changed = false;
  bool gradient_pending = false;
  std::string last_operation;  // the request id of the newest operation that a worker answered; empty: not known
};

// The metadata of a run, if it is long. It never changes, and the record of a run is written after each operation.
struct RunMetadataRecord {
  RunId id;
  std::map<std::string, std::string> user_metadata;
};

struct SamplerRecord {
  SamplerId id;
  UserId user;
  SessionId session;
  std::string base_model;
  int64_t seq_id = 0;
  std::optional<CheckpointRef> checkpoint;  // none: the base model
  std::string created_at;
  bool inflight = false;  // it follows the run of its checkpoint
};

// Sampling sessions with the same key follow the same run. The id of a run that was unloaded can come again with
// another base model, which is another run.
inline std::string follow_key(const RunId& run, const std::string& base_model) {
  return run.str() + '\n' + base_model;
}

struct FutureRecord {
  RequestId request;
  UserId user;
  OperationKeys keys;
  std::string key;  // by which a repeated submission finds it
  uint64_t number = 0;
  FutureSnapshot::State state = FutureSnapshot::State::kPending;
  std::shared_ptr<const FutureValue> value;  // kReady
  std::optional<int64_t> apart;              // kReady: no value, but the bytes of the result, which lies apart
  Error error;                               // kFailed
  std::string created_at;
};

// Returns whether the operation has no outcome any more: it was undone, or its result could not be kept. A poll for it
// fails with the record's error. A poll for one that has failed succeeds, and its answer has the error.
inline bool is_gone(const FutureRecord& future) {
  return future.state == FutureSnapshot::State::kFailed && future.error.code == ErrorCode::kGone;
}

std::string to_json(const SessionRecord& record);
std::string to_json(const RunRecord& record);
std::string to_json(const RunMetadataRecord& record);
std::string to_json(const SamplerRecord& record);
std::string to_json(const FutureRecord& record);
// What metadata.json has, for TuFT's tools, without user_metadata and checkpoint_metadata, which they do not know and
// which can be long: the record is written again when the expiry or visibility of the checkpoint changes.
std::string to_json(const Checkpoint& checkpoint);

// kDataLoss if the text is not such a record.
Result<SessionRecord> session_from_json(std::string_view json);
Result<RunRecord> run_from_json(std::string_view json);
Result<RunMetadataRecord> run_metadata_from_json(std::string_view json);
Result<SamplerRecord> sampler_from_json(std::string_view json);
Result<FutureRecord> future_from_json(std::string_view json);

// Gives the runs the metadata that lies apart from their records.
void give_metadata(std::vector<RunMetadataRecord> metadata, std::vector<RunRecord>& runs);

}  // namespace tuft::control
