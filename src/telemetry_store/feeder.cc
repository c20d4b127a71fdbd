#include "telemetry_store/feeder.h"

#include <algorithm>

#include "base/utf8.h"
#include "telemetry_store/string_table.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kOwnersMax = 10'000;
constexpr std::string_view kServiceOfServer = "tuft";  // unless it is configured
constexpr std::string_view kServiceOfProgram = "tuft (program)";

}  // namespace

const std::string& Feeder::owner_of(const RecordView& record, const Source& source) {
  static const std::string& nobody = *new std::string;
  if (!source.owner.empty()) return source.owner;
  if (!record.user.empty()) {
    owner_.assign(record.user);
    return owner_;
  }
  const std::string_view session = record.keys[static_cast<size_t>(Key::kSession)];
  if (session.empty() || !owner_of_) return nobody;
  owner_.assign(session);
  const auto known = owners_.find(owner_);
  if (known != owners_.end()) return known->second;
  std::string owner = owner_of_(session);
  // A session that is not known now may be known later.
  if (owner.empty()) return nobody;
  if (owners_.size() >= kOwnersMax) owners_.clear();
  return owners_.emplace(owner_, std::move(owner)).first->second;
}

void Feeder::set_context(const ScopeView& scope, const RecordView& record, const Source& source) {
  const std::string& owner = owner_of(record, source);
  // An owner whose name does not fit would be compared by its beginning only.
  const bool fits = owner.size() <= kStringBytesMax && is_utf8(owner);
  const std::string_view shown = fits ? std::string_view(owner) : std::string_view{};
  if (context_.owner != shown) context_.owner = shown;
  std::string_view service = cut_string(scope.service);
  context_.of_program = !source.owner.empty();
  if (!context_.of_program && own_service_ != service) own_service_ = service;
  if (context_.of_program && (service == own_service_ || service == kServiceOfServer)) service = kServiceOfProgram;
  if (context_.service != service) context_.service = service;
  if (context_.scope != cut_string(scope.scope)) context_.scope = cut_string(scope.scope);
  if (context_.worker != cut_string(source.worker)) context_.worker = cut_string(source.worker);
}

FedCount Feeder::feed(RecordType type, std::string_view request, const Source& source, Nanos now) {
  FedCount count;
  if (type == RecordType::kSpans) {
    count.malformed = read_spans(request, [&](const ScopeView& scope, const SpanView& read) {
      SpanView span = read;
      limit_times(span, now);
      set_context(scope, span, source);
      history_.current(now).append(context_, span, now);
      ++count.records;
    });
  } else {
    count.malformed = read_logs(request, [&](const ScopeView& scope, const LogView& read) {
      LogView log = read;
      log.time = possible_time(log.time, now);
      set_context(scope, log, source);
      history_.current(now).append(context_, log, now);
      ++count.records;
    });
  }
  return count;
}

}  // namespace tuft::telemetry_store::internal
