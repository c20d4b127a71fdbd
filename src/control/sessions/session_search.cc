// The search for sessions of a user.
#include <algorithm>
#include <string_view>

#include "control/sessions/session_description.h"
#include "control/sessions/sessions.h"

namespace tuft::control {
namespace {

// Sessions that are looked at under one lock.
constexpr int kSessionsOfPiece = 64;
// After this much metadata, a page ends.
constexpr size_t kFoundBytesMax = 1 << 20;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool has_words(std::string text, const std::vector<std::string>& words) {
  std::transform(text.begin(), text.end(), text.begin(), lower);
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) { return text.find(word) != text.npos; });
}

bool is_named(const SessionQuery& query, const SessionId& id, const std::string& display_name) {
  if (query.session_id.empty() && query.name_words.empty()) return true;
  if (!query.session_id.empty() && id.str() == query.session_id) return true;
  return !query.name_words.empty() && has_words(display_name, query.name_words);
}

bool is_in_project(const SessionQuery& query, std::string_view project) {
  const std::string_view name = project.empty() ? kDefaultProject : project;
  return query.projects.empty() ||
         std::find(query.projects.begin(), query.projects.end(), name) != query.projects.end();
}

bool has_metadata(const SessionQuery& query, const std::map<std::string, std::string>& metadata) {
  return std::all_of(query.user_metadata.begin(), query.user_metadata.end(), [&](const auto& wanted) {
    const auto found = metadata.find(wanted.first);
    return found != metadata.end() && found->second == wanted.second;
  });
}

bool has_state(const SessionQuery& query, SessionState state, FinishReason reason) {
  const auto is_it = [&](const SessionStateQuery& wanted) {
    if (wanted.state != state) return false;
    return state != SessionState::kFinished || wanted.reasons.empty() ||
           std::find(wanted.reasons.begin(), wanted.reasons.end(), reason) != wanted.reasons.end();
  };
  return query.states.empty() || std::any_of(query.states.begin(), query.states.end(), is_it);
}

}  // namespace

std::optional<SessionFound> Sessions::match_active_locked(const SessionQuery& query, const Created& created) const {
  const CreateSession& request = sessions_.find(created.second)->request;
  const bool matches = has_state(query, SessionState::kActive, {}) && is_in_project(query, request.project_id) &&
                       is_named(query, created.second, request.display_name) &&
                       has_metadata(query, request.user_metadata);
  if (!matches) return std::nullopt;
  return SessionFound{.id = created.second,
                      .created_at = created.first,
                      .project_id = request.project_id,
                      .display_name = request.display_name,
                      .user_metadata = request.user_metadata};
}

std::optional<SessionFound> Sessions::match_ended_locked(const SessionQuery& query, const Created& created) const {
  const EndedSession& ended = *ended_.find(created.second);
  const SessionState state = ended.why == SessionEnd::kFinished ? SessionState::kFinished : SessionState::kCancelled;
  const bool matches = has_state(query, state, ended.finish.reason) && is_in_project(query, ended.project_id) &&
                       is_named(query, ended.id, ended.display_name) && has_metadata(query, ended.user_metadata);
  if (!matches) return std::nullopt;
  SessionFound found{.id = ended.id,
                     .created_at = ended.created_at,
                     .project_id = ended.project_id,
                     .display_name = ended.display_name,
                     .user_metadata = ended.user_metadata,
                     .state = state,
                     .finish = ended.finish};
  if (state == SessionState::kCancelled) found.ending = sentence_of(ended);
  return found;
}

// Merges the sessions that are there and those that ended, both newest first.
bool Sessions::search_piece(const UserId& user, const SessionQuery& query, std::optional<Created>& at,
                            SessionsFound& found) const {
  static const RankedSet<Created, std::greater<>> none;
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  const auto& active = own == by_user_.end() ? none : own->second;
  const auto& ended = ended_.of_user(user);
  auto next_active = at ? active.upper_bound(*at) : active.begin();
  auto next_ended = at ? ended.upper_bound(*at) : ended.begin();
  for (int looked = 0; looked < kSessionsOfPiece; ++looked) {
    const bool has_active = next_active != active.end();
    const bool has_ended = next_ended != ended.end();
    if (!has_active && !has_ended) return false;
    const bool is_active = has_active && (!has_ended || *next_active > *next_ended);
    at = is_active ? *next_active++ : *next_ended++;
    auto match = is_active ? match_active_locked(query, *at) : match_ended_locked(query, *at);
    if (!match) continue;
    if (found.sessions.size() == query.limit || found.bytes > kFoundBytesMax) {
      found.has_more = true;
      return false;
    }
    found.bytes += memory_of(match->user_metadata);
    found.sessions.push_back(std::move(*match));
  }
  return true;
}

SessionsFound Sessions::search(const UserId& user, const SessionQuery& query) const {
  SessionsFound found;
  std::optional<Created> at = query.after;
  while (search_piece(user, query, at, found)) {
  }
  return found;
}

}  // namespace tuft::control
