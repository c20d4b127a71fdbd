// Decides what leaves a history that is full, so that nobody's records push out everybody's. Internal to
// telemetry_store.
//
// Each owner has a fair share of the bytes: all of its records, if it has few, else as much as each other owner with
// many. The oldest records of those above their share leave; those of the others stay until they are too old. Records
// without an owner, such as the server's own, count as one more owner's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry_store/memory_segment.h"
#include "telemetry_store/segment.h"

namespace tuft::telemetry_store::internal {

// The bytes of each owner's records.
using OwnerBytes = std::map<std::string, uint64_t, std::less<>>;
using Owners = std::set<std::string, std::less<>>;

// Reads two columns of the segment. Returns nothing if they are damaged.
OwnerBytes bytes_by_owner(const std::shared_ptr<const Segment>& segment);

// Returns the largest share for which the sum of min(bytes, share) is at most `budget`; if all of them fit, the largest
// value of the type.
uint64_t fair_share(std::vector<uint64_t> bytes, uint64_t budget);

// Returns for each segment whose records leave it, so that at least `to_free` bytes leave if possible. `segments`:
// oldest first. A segment of which less than a quarter would leave keeps all, because what stays is written again.
std::vector<Owners> choose_leaving(const std::vector<OwnerBytes>& segments, uint64_t to_free);

// Appends the records of a segment file, except those of the owners in `leaving`, and returns how many these are.
// Damaged records are in neither. `extent`: of that segment.
RecordCount copy_remaining(std::string_view file, const Owners& leaving, const Extent& extent, MemorySegment& out);

}  // namespace tuft::telemetry_store::internal
