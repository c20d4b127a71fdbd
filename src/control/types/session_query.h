// A search for sessions, and its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/types/types.h"

namespace tuft::control {

// The name that a search gives to the project of sessions without one.
inline constexpr std::string_view kDefaultProject = "default";

// kCancelled: the server ended it. No session fails because of one of its requests.
enum class SessionState : uint8_t { kActive, kCancelled, kFinished, kFailed };

struct SessionStateQuery {
  SessionState state = SessionState::kActive;
  std::vector<FinishReason> reasons = {};  // of kFinished; empty: all
};

// All parts must match; an empty part matches every session.
struct SessionQuery {
  // The exact id, or words (in lower case) that all occur in the display name, in whatever case. With both, one of them
  // suffices.
  std::string session_id = {};
  std::vector<std::string> name_words = {};
  std::vector<std::string> projects = {};  // one of them
  std::map<std::string, std::string> user_metadata = {};
  std::vector<SessionStateQuery> states = {};                   // one of them
  size_t limit = 50;                                            // less are found if their metadata is long
  std::optional<std::pair<std::string, SessionId>> after = {};  // created_at and id of the last one found
};

struct SessionFound {
  SessionId id;
  std::string created_at = {};  // ISO 8601
  std::string project_id = {};  // empty: none
  std::string display_name = {};
  std::map<std::string, std::string> user_metadata = {};
  SessionState state = SessionState::kActive;
  SessionFinish finish = {};  // kFinished
  std::string ending = {};    // kCancelled: why, in words
  // The number of checkpoints of its runs, without ephemeral ones.
  int64_t checkpoints = 0;
  int64_t checkpoint_bytes = 0;
};

struct SessionsFound {
  std::vector<SessionFound> sessions;  // newest first
  bool has_more = false;
  size_t bytes = 0;  // of their metadata
};

}  // namespace tuft::control
