// Why an operation took its time, in words: the parts of the critical path of its trace, by what was done in them.
//
// It knows the product's own spans (docs/telemetry.md); what users' programs add counts as theirs, whatever its name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "control/observe/critical_path.h"
#include "telemetry_store/query.h"

namespace tuft::control {

enum class PartKind : uint8_t {
  kQueueOwn,     // waiting for its turn behind other work of its user
  kQueueOthers,  // the same behind other users
  kSequence,     // waiting for earlier operations of its run
  kPrefill,
  kDecode,
  kForward,
  kBackward,
  kOptimizer,
  kSchedule,  // waiting for its turn; behind what is not known
  kStore,     // the store of the server's state
  kNetwork,   // between the server and its worker
  kSave,      // checkpoints and published versions
  kPaging,    // until its adapter is read back from its page, or another one has made room
  kServer,    // the rest of the server's work
  kOther,     // users' own programs, and what is not known
};
inline constexpr size_t kPartKinds = 15;
std::string_view part_kind_name(PartKind kind);  // "queue_own", ...

struct ExplainedPart {
  PartKind kind = PartKind::kOther;
  double seconds = 0;
  double share = 0;     // of the whole, 0 .. 1
  std::string text;     // a phrase, such as "made 512 tokens, 122 each second"
  std::string span_id;  // of the span with most of it
};

struct Explanation {
  std::string summary;               // one or two sentences
  std::vector<ExplainedPart> parts;  // the longest first
};

// How long the engines of the workers worked in a time, for the user of the trace and for others.
struct EngineWork {
  double own_seconds = 0, others_seconds = 0;
  double of_seconds = 0;  // the length of that time
};
// Returns it for the time between two points (nanoseconds since the epoch) and some time before. Called a few times at
// most.
using EngineWorkIn = std::function<EngineWork(Nanos from, Nanos until)>;

// `path` is critical_path(trace). Waiting is divided between own and others' work as `work` says; without it, and where
// it knows of no work, it is kSchedule.
Explanation explain(const telemetry_store::Trace& trace, const std::vector<PathPiece>& path,
                    const EngineWorkIn& work = {});

// "1.2 s", "380 ms", "75 us", "3 min 20 s".
std::string in_words(double seconds);

}  // namespace tuft::control
