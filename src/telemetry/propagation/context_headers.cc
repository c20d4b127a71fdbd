#include "telemetry/propagation/context_headers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "telemetry/record/per_process.h"
#include "telemetry/settings/environment.h"

namespace tuft::telemetry::internal {
namespace {

constexpr size_t kStateBytesMax = 512;
constexpr size_t kStateMembersMax = 32;
constexpr size_t kStateMemberLong = 128;
constexpr size_t kBaggageBytesMax = 8192;
constexpr size_t kBaggageMembersMax = 64;

constexpr uint32_t kIndexBits = 12;
constexpr uint32_t kCarriedMax = 1U << kIndexBits;
constexpr size_t kCarriedBytesMax = size_t{8} << 20;

// Returns the members of a comma-separated list without surrounding blanks. Empty members are allowed and left out.
std::vector<std::string_view> members_of(std::string_view header) {
  std::vector<std::string_view> members;
  while (!header.empty()) {
    const std::string_view member = header.substr(0, header.find(','));
    header.remove_prefix(std::min(header.size(), member.size() + 1));
    if (const std::string_view text = trimmed(member); !text.empty()) members.push_back(text);
  }
  return members;
}

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_state_key(std::string_view key) {
  constexpr std::string_view kMarks = "_-*/@";
  return !key.empty() && key.size() <= 256 && is_lower_or_digit(key[0]) &&
         std::all_of(key.begin(), key.end(),
                     [&](char c) { return is_lower_or_digit(c) || kMarks.find(c) != std::string_view::npos; });
}

bool is_state_value(std::string_view value) {
  return !value.empty() && value.size() <= 256 && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f && c != ',' && c != '='; });
}

bool is_state_member(std::string_view member) {
  const size_t equals = member.find('=');
  return equals != std::string_view::npos && is_state_key(member.substr(0, equals)) &&
         is_state_value(member.substr(equals + 1));
}

// Returns true for a token of RFC 9110.
bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || kMarks.find(c) != std::string_view::npos;
  });
}

bool is_baggage_value(std::string_view value) {
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != ',' && c != ';' && c != '\\'; });
}

// Accepts key=value and properties after semicolons, whose value may be absent.
bool is_baggage_member(std::string_view member) {
  for (bool first = true; first || !member.empty(); first = false) {
    const std::string_view part = member.substr(0, member.find(';'));
    member.remove_prefix(std::min(member.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (!is_token(trimmed(part.substr(0, equals)))) return false;
    if (equals == std::string_view::npos) {
      if (first) return false;
    } else if (!is_baggage_value(trimmed(part.substr(equals + 1)))) {
      return false;
    }
  }
  return true;
}

size_t joined_size(const std::vector<std::string_view>& members) {
  size_t size = members.empty() ? 0 : members.size() - 1;
  for (const std::string_view member : members) size += member.size();
  return size;
}

std::string joined(const std::vector<std::string_view>& members) {
  std::string out;
  for (const std::string_view member : members) {
    if (!out.empty()) out.push_back(',');
    out.append(member);
  }
  return out;
}

struct Table {
  struct Slot {
    uint32_t number = 0;
    CarriedHeaders headers;
  };

  Mutex mutex;
  std::unique_ptr<std::array<Slot, kCarriedMax>> slots TUFT_GUARDED_BY(mutex);
  // The numbers of the next headers and of the oldest ones kept. The low bits are the index of the slot.
  uint32_t next TUFT_GUARDED_BY(mutex) = 1;
  uint32_t oldest TUFT_GUARDED_BY(mutex) = 1;
  size_t bytes TUFT_GUARDED_BY(mutex) = 0;

  Slot& slot(uint32_t number) TUFT_REQUIRES(mutex) { return (*slots)[number & (kCarriedMax - 1)]; }
  void forget_oldest() TUFT_REQUIRES(mutex) {
    Slot& old = slot(oldest++);
    bytes -= old.headers.tracestate.size() + old.headers.baggage.size();
    old = {};
  }
};

}  // namespace

std::optional<std::string> parse_tracestate(std::string_view header) {
  std::vector<std::string_view> members = members_of(header);
  if (members.size() > kStateMembersMax || !std::all_of(members.begin(), members.end(), is_state_member))
    return std::nullopt;
  if (joined_size(members) > kStateBytesMax)
    std::erase_if(members, [](std::string_view member) { return member.size() > kStateMemberLong; });
  while (joined_size(members) > kStateBytesMax) members.pop_back();
  return joined(members);
}

std::optional<std::string> parse_baggage(std::string_view header) {
  std::vector<std::string_view> members = members_of(header);
  if (!std::all_of(members.begin(), members.end(), is_baggage_member)) return std::nullopt;
  if (members.size() > kBaggageMembersMax) members.resize(kBaggageMembersMax);
  while (joined_size(members) > kBaggageBytesMax) members.pop_back();
  return joined(members);
}

uint32_t carry_headers(CarriedHeaders headers) {
  const size_t size = headers.tracestate.size() + headers.baggage.size();
  if (size == 0) return 0;
  Table& table = PerProcess<Table>::get();
  MutexLock lock(table.mutex);
  if (table.slots == nullptr) table.slots = std::make_unique<std::array<Table::Slot, kCarriedMax>>();
  const auto full = [&]() TUFT_REQUIRES(table.mutex) {
    const uint32_t kept = table.next - table.oldest;
    // 0 is not a valid number. After four billion numbers the count starts again, and all headers are dropped.
    return kept != 0 && (kept == kCarriedMax || table.bytes + size > kCarriedBytesMax || table.next == 0);
  };
  while (full()) table.forget_oldest();
  if (table.next == 0) table.oldest = table.next = 1;
  const uint32_t number = table.next++;
  table.slot(number) = {number, std::move(headers)};
  table.bytes += size;
  return number;
}

CarriedHeaders carried_headers(uint32_t number) {
  if (number == 0) return {};
  Table& table = PerProcess<Table>::get();
  MutexLock lock(table.mutex);
  if (table.slots == nullptr) return {};
  const Table::Slot& slot = table.slot(number);
  return slot.number == number ? slot.headers : CarriedHeaders{};
}

}  // namespace tuft::telemetry::internal
