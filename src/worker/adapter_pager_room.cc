// The part of AdapterPager that chooses which adapters leave the engine, and which come back.
#include <algorithm>
#include <limits>
#include <new>

#include "worker/adapter_pager.h"

namespace tuft::worker {
namespace {

// What waits for its page takes host memory: as much as the adapters in the engine may take, and at least this.
constexpr int64_t kLeavingBytesMin = int64_t{256} << 20;

// A tenant may have this part of it, so that the creations of one are not refused because another one creates many.
constexpr int64_t kLeavingParts = 2;

// An adapter that nobody has used for this time may make room for any other one, because its own way back then costs
// its tenant little.
constexpr Nanos kUnused = 10 * kSecond;

// So many tenants let others go first: each of them takes time at every step of the engine.
constexpr size_t kPassedMax = 8;

}  // namespace

// One adapter may always leave, however large it is, and one of each tenant if there is room for it.
bool AdapterPager::may_write(const std::string& tenant, int64_t bytes) const {
  if (broken()) return false;
  const int64_t most =
      options_.leaving_bytes_max > 0 ? options_.leaving_bytes_max : std::max(options_.bytes_max, kLeavingBytesMin);
  if (counts_.leaving == 0) return true;
  const auto found = leaving_of_.find(tenant);
  const int64_t own = tenant.empty() || found == leaving_of_.end() ? 0 : found->second;
  return counts_.leaving + bytes <= most && (own == 0 || own + bytes <= most / kLeavingParts);
}

// Where only adapters of others could complete the room, none leaves for nothing. Where nothing could, what can leave
// does, so that a large adapter gets its room in pieces.
AdapterPager::Room AdapterPager::make_room(const Claim& claim) {
  int64_t lacks = options_.bytes_max > 0 ? counts_.reserved + claim.bytes - options_.bytes_max : 0;
  if (lacks <= 0) return Room::kMade;
  BytesOfTenants held = bytes_of_tenants(Which::kAll);
  std::vector<Entries::iterator> leaving;
  bool spared = false;
  while (lacks > 0) {
    const auto next = choose_leaving(claim, held, leaving, spared);
    if (next == adapters_.end()) break;
    leaving.push_back(next);
    held[next->second.tenant] -= next->second.bytes;
    lacks -= next->second.bytes;
  }
  if (lacks > 0 && spared) return Room::kOfOthers;
  for (const auto& adapter : leaving) {
    if (!page_out(adapter->first, adapter->second)) return Room::kNone;
    counters_of(adapter->second).evictions.add(1);
  }
  return lacks > 0 ? Room::kNone : Room::kMade;
}

AdapterPager::BytesOfTenants AdapterPager::bytes_of_tenants(Which which) const {
  BytesOfTenants bytes;
  for (const auto& [id, entry] : adapters_) {
    const bool reading = entry.location == Location::kReading;
    if (!reading && entry.location != Location::kEngine) continue;
    if (which == Which::kAll || reading || surroundings_.at_work(id)) bytes[entry.tenant] += entry.bytes;
  }
  return bytes;
}

// An unused one leaves before one of the tenant with the most bytes; of several the least recently used. `spared` is
// set where one could leave, but not for this claim.
AdapterPager::Entries::iterator AdapterPager::choose_leaving(const Claim& claim, const BytesOfTenants& held,
                                                             const std::vector<Entries::iterator>& leaving,
                                                             bool& spared) {
  const auto bytes_of = [&](const std::string& name) {
    const auto found = held.find(name);
    return found == held.end() ? 0 : found->second;
  };
  const Nanos unused_since = clock_.monotonic() - kUnused;
  const int64_t own = bytes_of(claim.tenant);
  const bool spares = claim.spares && !broken();
  auto chosen = adapters_.end();
  int64_t most = 0;
  for (auto at = adapters_.begin(); at != adapters_.end(); ++at) {
    const Entry& entry = at->second;
    if (entry.location != Location::kEngine) continue;
    const bool unused = entry.last_used < unused_since;
    const int64_t bytes = unused ? std::numeric_limits<int64_t>::max() : bytes_of(entry.tenant);
    if (chosen != adapters_.end()) {
      if (bytes < most || (bytes == most && chosen->second.last_used < entry.last_used)) continue;
    }
    if (entry.page == nullptr && !may_write(entry.tenant, entry.bytes)) continue;
    if (surroundings_.at_work(at->first) || std::ranges::find(leaving, at) != leaving.end()) continue;
    if (spares && !unused && entry.tenant != claim.tenant && bytes <= own) {
      spared = true;
      continue;
    }
    chosen = at;
    most = bytes;
  }
  return chosen;
}

// A tenant that waits for an own adapter to stop working lets others go first, but not for longer than kUnused: then
// it takes the place of any adapter. Where nothing can leave, those behind wait as well, so that a large adapter gets
// its room.
void AdapterPager::go_on() {
  yielding_.clear();
  std::vector<std::string> passed;  // tenants
  const auto may_come = [&](const std::string& tenant) { return std::ranges::find(passed, tenant) == passed.end(); };
  while (const engine::AdapterId* const next = coming_.front_if(may_come)) {
    const auto found = adapters_.find(*next);
    if (found != adapters_.end() && found->second.location == Location::kWaiting) {
      Entry& entry = found->second;
      const Room room = make_room({entry.tenant, entry.bytes, clock_.monotonic() - entry.asked < kUnused});
      // If no page can be written, exceeding the limit is better than making no progress.
      if (room != Room::kMade && counts_.reserved > 0 && !broken()) {
        if (passed.empty()) choose_yielding(entry.tenant);
        if (room == Room::kNone || passed.size() == kPassedMax) return;
        passed.push_back(entry.tenant);
        continue;
      }
      if (!read_back(found->first, entry)) return;
    }
    (void)coming_.pop_if(may_come);
  }
}

// Without memory nobody yields for now.
void AdapterPager::choose_yielding(const std::string& waiting) try {
  const BytesOfTenants at_work = bytes_of_tenants(Which::kAtWork);
  int64_t most = 0;
  for (const auto& [tenant, bytes] : at_work) most = std::max(most, bytes);
  const auto own = at_work.find(waiting);
  const bool has_most = own != at_work.end() && own->second == most;
  for (const auto& [tenant, bytes] : at_work) {
    if (bytes == most && (!has_most || tenant == waiting)) yielding_.emplace_back(tenant);
  }
} catch (const std::bad_alloc&) {
  yielding_.clear();
}

bool AdapterPager::yields(const engine::AdapterId& id) const {
  if (yielding_.empty()) return false;
  const auto found = adapters_.find(id);
  if (found == adapters_.end() || found->second.location != Location::kEngine) return false;
  return std::find(yielding_.begin(), yielding_.end(), found->second.tenant) != yielding_.end();
}

}  // namespace tuft::worker
