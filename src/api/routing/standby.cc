#include "api/routing/standby.h"

#include <algorithm>
#include <utility>

#include "api/json/error_mapping.h"
#include "api/json/json_writer.h"
#include "openai/errors.h"

namespace tuft::api {
namespace {

constexpr std::string_view kStandsBy =
    "this server stands by for another one, which leads; ask the leader, or ask again: one of them leads within "
    "seconds";

bool is_open(const Route& route) {
  return route.access == Access::kOpen;
}

}  // namespace

bool standby_serves(const StandbyFacts& facts, const Route& route) {
  const bool is_about_checkpoints = route.pattern.find("checkpoints") != route.pattern.npos;
  return route.reads && !(facts.lacks_checkpoints && is_about_checkpoints);
}

Response standby_refusal(const StandbyFacts& facts, const Route& route) {
  if (route.errors == ErrorShape::kOpenAi) {
    return error_response(unavailable(std::string(kStandsBy), "standby"), route.errors);
  }
  JsonWriter json;
  json.begin_object().key("detail").string(kStandsBy);
  if (!is_open(route) && !facts.leader.empty()) json.key("leader").string(facts.leader);
  json.end_object();
  return json_response(std::move(json).take(), 503);
}

Result<Response> standby_answer(const StandbyFacts& facts, const Route& route, Result<Response> answer) {
  if (!answer.ok()) {
    const ErrorCode code = answer.error().code;
    const bool may_be_at_leader = code == ErrorCode::kNotFound || code == ErrorCode::kGone;
    return may_be_at_leader ? Result<Response>(standby_refusal(facts, route)) : std::move(answer);
  }
  if (answer->status == 404 || answer->status == 410) return standby_refusal(facts, route);
  if (!is_open(route) && facts.loaded_at) {
    const Nanos age = std::max<Nanos>(0, system_clock().monotonic() - *facts.loaded_at);
    answer->headers.emplace_back(kStateAgeHeader, std::to_string(age / kSecond));
  }
  return answer;
}

}  // namespace tuft::api
