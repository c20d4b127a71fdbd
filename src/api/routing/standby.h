// A server that stands by for another one, which leads: it answers requests that only read, from the records of the
// leader as they were a few seconds ago. It answers everything else with 503 and the leader's address.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/exchange.h"
#include "api/routing/router.h"
#include "base/clock.h"
#include "base/result.h"

namespace tuft::api {

struct StandbyFacts {
  std::string leader;                   // the address of the server that leads; empty: not known
  std::optional<Nanos> loaded_at = {};  // when its records were read last, by Clock::monotonic(); none: not yet
  bool lacks_checkpoints = false;       // they are in a bucket, which only the leader reads
};

// Returns the facts of now. Thread-safe, and quick. Empty for a server that leads.
using AskStandby = std::function<StandbyFacts()>;

// The response header with the age of the records, in seconds.
inline constexpr std::string_view kStateAgeHeader = "X-Tuft-State-Age";

// Returns whether a standby serves the route.
bool standby_serves(const StandbyFacts& facts, const Route& route);

// Returns the answer to a request that a standby does not serve. Strangers do not learn the leader's address.
Response standby_refusal(const StandbyFacts& facts, const Route& route);

// Returns the answer of a standby to a request that reads: with the age of the records, and not that something is
// missing or gone, because the leader may have it.
Result<Response> standby_answer(const StandbyFacts& facts, const Route& route, Result<Response> answer);

}  // namespace tuft::api
