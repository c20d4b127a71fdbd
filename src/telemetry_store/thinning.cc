#include "telemetry_store/thinning.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "telemetry_store/entry.h"
#include "telemetry_store/rows.h"

namespace tuft::telemetry_store::internal {

OwnerBytes bytes_by_owner(const std::shared_ptr<const Segment>& segment) {
  std::vector<uint64_t> of_context;
  for (const Table table : {Table::kSpans, Table::kLogs}) {
    Rows rows(segment, table);
    const std::vector<uint32_t>& contexts = rows.narrow(Column::kContext);
    const std::vector<uint32_t>& sizes = rows.narrow(Column::kSize);
    if (rows.failed()) return {};
    for (size_t row = 0; row < rows.count(); ++row) {
      if (contexts[row] >= of_context.size()) of_context.resize(size_t{contexts[row]} + 1);
      of_context[contexts[row]] += sizes[row] + sizeof(EntryHead);
    }
  }
  const std::vector<Context> contexts = segment->contexts();
  if (contexts.size() < of_context.size()) return {};
  OwnerBytes bytes;
  for (size_t number = 0; number < of_context.size(); ++number) {
    if (of_context[number] > 0) bytes[contexts[number].owner] += of_context[number];
  }
  return bytes;
}

uint64_t fair_share(std::vector<uint64_t> bytes, uint64_t budget) {
  std::sort(bytes.begin(), bytes.end());
  size_t left = bytes.size();
  for (const uint64_t one : bytes) {
    const uint64_t share = budget / left--;
    if (one > share) return share;
    budget -= one;
  }
  return std::numeric_limits<uint64_t>::max();
}

std::vector<Owners> choose_leaving(const std::vector<OwnerBytes>& segments, uint64_t to_free) {
  OwnerBytes surplus;
  uint64_t all = 0;
  for (const OwnerBytes& segment : segments) {
    for (const auto& [owner, bytes] : segment) {
      surplus[owner] += bytes;
      all += bytes;
    }
  }
  std::vector<uint64_t> totals;
  for (const auto& [owner, bytes] : surplus) totals.push_back(bytes);
  const uint64_t share = fair_share(std::move(totals), all - std::min(all, to_free));
  for (auto& [owner, bytes] : surplus) bytes -= std::min(bytes, share);

  std::vector<Owners> leaving(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    uint64_t leaves = 0, whole = 0;
    for (const auto& [owner, bytes] : segments[i]) {
      whole += bytes;
      if (surplus[owner] == 0) continue;
      leaving[i].insert(owner);
      leaves += bytes;
    }
    if (leaves < whole / 4) leaving[i].clear();
    for (const std::string& owner : leaving[i]) surplus[owner] -= std::min(surplus[owner], segments[i].at(owner));
  }
  return leaving;
}

RecordCount copy_remaining(std::string_view file, const Owners& leaving, const Extent& extent, MemorySegment& out) {
  struct Known {
    Context context;
    bool stays = true;
  };
  std::unordered_map<uint32_t, Known> contexts;
  RecordCount left;
  const auto arrived = [&extent](Nanos time) {
    return std::clamp(time, extent.arrived_first, std::max(extent.arrived_first, extent.arrived_last));
  };
  read_entries(file, [&](const Entry& entry) {
    Known& known = contexts[entry.context];
    SpanView span;
    LogView log;
    if (entry.type == EntryType::kContext) {
      std::string_view rest = entry.content;
      known = {};
      if (!decode_context(rest, known.context)) known = {};
      known.stays = !leaving.contains(known.context.owner);
    } else if (!known.stays) {
      left += {entry.type == EntryType::kSpan ? 1U : 0U, entry.type == EntryType::kLog ? 1U : 0U};
    } else if (entry.type == EntryType::kSpan && read_span(entry.content, span)) {
      limit_times(span, extent.arrived_last);
      out.append(known.context, span, arrived(span.start + span.duration));
    } else if (entry.type == EntryType::kLog && read_log(entry.content, log)) {
      log.time = possible_time(log.time, extent.arrived_last);
      out.append(known.context, log, arrived(log.time));
    }
  });
  return left;
}

}  // namespace tuft::telemetry_store::internal
