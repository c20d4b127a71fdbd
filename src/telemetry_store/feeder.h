// Puts the records of a request into the history, each with its owner. Internal to telemetry_store. For the store's
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "telemetry_store/history.h"
#include "telemetry_store/otlp_reader.h"
#include "telemetry_store/store.h"

namespace tuft::telemetry_store::internal {

struct FedCount {
  size_t records = 0;
  size_t malformed = 0;
};

class Feeder {
 public:
  Feeder(History& history, std::function<std::string(std::string_view)> owner_of)
      : history_(history), owner_of_(std::move(owner_of)) {}

  FedCount feed(RecordType type, std::string_view request, const Source& source, Nanos now);

 private:
  // The user of a record; empty: nobody's.
  const std::string& owner_of(const RecordView& record, const Source& source);
  void set_context(const ScopeView& scope, const RecordView& record, const Source& source);

  History& history_;
  const std::function<std::string(std::string_view)> owner_of_;
  std::unordered_map<std::string, std::string> owners_;  // by session
  Context context_;                                      // of the last record
  std::string owner_;
  std::string own_service_;  // of the server; a user's program that has it, too, is told apart
};

}  // namespace tuft::telemetry_store::internal
