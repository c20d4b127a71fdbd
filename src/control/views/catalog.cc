#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "control/types/errors.h"
#include "control/views/catalog_impl.h"

namespace tuft::control {
namespace {

constexpr int64_t kCheckpointsOfPiece = 1'000;  // checkpoints read under one lock

// Orders "s:train:2" before "s:train:10".
template <typename IdType>
bool before(const IdType& a, const IdType& b) {
  const std::string& x = a.str();
  const std::string& y = b.str();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

CheckpointView view_of(const CheckpointStore::Ptr& checkpoint) {
  CheckpointView view;
  view.checkpoint_id = std::string(checkpoint_folder(checkpoint->path.kind)) + "/" + checkpoint->path.name;
  view.kind = checkpoint->path.kind;
  view.created_at = checkpoint->created_at;
  view.tinker_path = checkpoint->path.str();
  view.size_bytes = checkpoint->size_bytes;
  view.is_public = checkpoint->is_public;
  if (checkpoint->expires_at) view.expires_at = iso_time(*checkpoint->expires_at);
  view.user_metadata = checkpoint->own_metadata;
  return view;
}

Page<CheckpointView> views_of(const Page<CheckpointStore::Ptr>& page) {
  Page<CheckpointView> views{{}, page.offset, page.limit, page.total};
  for (const CheckpointStore::Ptr& checkpoint : page.items) views.items.push_back(view_of(checkpoint));
  return views;
}

}  // namespace

// Merges the runs of a user that the controller has, by their last request, with those that have checkpoints only; most
// recently used first. Reads the latter in pieces, so that a long list holds no lock for long.
class CatalogImpl::RunsByUse {
 public:
  RunsByUse(const CatalogImpl& catalog, UserId user) : checkpoints_(catalog.checkpoints_), user_(std::move(user)) {
    for (RunSummary& run : catalog.runs_.runs_of(user_)) {
      auto saved = checkpoints_.lists().head(run.id);
      if (saved) ++also_saved_;
      present_.insert(run.id);
      live_.push_back(entry_of(std::move(run), std::move(saved)));
    }
    // Sorted in reverse, because next() takes from the back.
    std::sort(live_.begin(), live_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.run.last_request, a.run.id) < std::tie(b.run.last_request, b.run.id);
    });
  }

  int64_t count() const {
    return checkpoints_.lists().count_runs(user_) + static_cast<int64_t>(live_.size()) - also_saved_;
  }

  std::optional<Entry> next() {
    if (!gone_) gone_ = next_gone();
    const bool live_first = !live_.empty() && (!gone_ || live_.back().run.last_request >= gone_->run.last_request);
    if (!live_first) return std::exchange(gone_, std::nullopt);
    std::optional<Entry> entry = std::move(live_.back());
    live_.pop_back();
    return entry;
  }

 private:
  static constexpr size_t kRead = 64;

  std::optional<Entry> next_gone() {
    while (true) {
      if (read_.empty()) {
        const std::vector<RunHead> heads = checkpoints_.lists().runs_after(user_, cursor_, kRead);
        if (heads.empty()) return std::nullopt;
        cursor_.emplace(heads.back().last_saved, heads.back().run);
        read_.assign(heads.begin(), heads.end());
      }
      RunHead head = std::move(read_.front());
      read_.pop_front();
      if (!present_.contains(head.run)) return entry_of(std::move(head));
    }
  }

  const CheckpointStore& checkpoints_;
  const UserId user_;
  std::vector<Entry> live_;
  std::unordered_set<RunId> present_;
  int64_t also_saved_ = 0;
  CheckpointLists::RunCursor cursor_;
  std::deque<RunHead> read_;
  std::optional<Entry> gone_;
};

Page<SessionId> CatalogImpl::sessions(const UserId& user, const PageRequest& request) const {
  return sessions_.of_user(user, request);
}

bool CatalogImpl::owns_session(const UserId& user, const SessionId& session) const {
  return sessions_.belongs_to(user, session);
}

Result<SessionView> CatalogImpl::session(const UserId& user, const SessionId& session) const {
  if (!owns_session(user, session)) {
    return not_found("there is no such session, or it has ended", "session_not_found");
  }
  SessionView view;
  for (const RunPtr& run : runs_.of_session(user, session)) view.runs.push_back(run->id);
  for (const RunHead& head : checkpoints_.lists().runs_of_session(user, session)) view.runs.push_back(head.run);
  view.samplers = samplers_.of_session(user, session);
  view.user_metadata = sessions_.metadata_of(session);
  view.display_name = sessions_.display_name_of(session);
  std::sort(view.runs.begin(), view.runs.end(), before<RunId>);
  view.runs.erase(std::unique(view.runs.begin(), view.runs.end()), view.runs.end());
  std::sort(view.samplers.begin(), view.samplers.end(), before<SamplerId>);
  return view;
}

SessionsFound CatalogImpl::search_sessions(const UserId& user, const SessionQuery& query) const {
  SessionsFound found = sessions_.search(user, query);
  for (SessionFound& session : found.sessions) {
    const SessionStorage storage = checkpoints_.lists().storage_of_session(user, session.id);
    session.checkpoints = storage.checkpoints;
    session.checkpoint_bytes = storage.bytes;
  }
  return found;
}

Status CatalogImpl::set_project(const UserId& user, const SessionId& session, const std::string& project) {
  return sessions_.set_project(user, session, project);
}

// An unloaded run is described by its newest checkpoints.
CatalogImpl::Entry CatalogImpl::entry_of(RunHead head) {
  const Checkpoint& newest = head.describing();
  RunSummary run{head.run, newest.session, newest.base_model, newest.lora_rank, newest.user_metadata};
  run.last_request = parse_iso_time(head.last_saved).value_or(0);
  return {std::move(run), std::move(head)};
}

CatalogImpl::Entry CatalogImpl::entry_of(RunSummary live, std::optional<RunHead> saved) {
  if (live.last_request == 0 && saved) live.last_request = parse_iso_time(saved->last_saved).value_or(0);
  return {std::move(live), std::move(saved)};
}

std::optional<CatalogImpl::Entry> CatalogImpl::own_entry(const UserId& user, const RunId& run) const {
  auto saved = checkpoints_.lists().head(run);
  if (saved && saved->owner != user) return std::nullopt;
  if (auto live = runs_.run_of(user, run)) return entry_of(std::move(*live), std::move(saved));
  return saved ? std::optional(entry_of(std::move(*saved))) : std::nullopt;
}

bool CatalogImpl::owns_run(const UserId& user, const RunId& run) const {
  return own_entry(user, run).has_value();
}

std::string CatalogImpl::project_of(const Entry& entry) const {
  if (auto current = sessions_.project_of(entry.run.session)) return std::move(*current);
  if (!entry.saved) return {};
  return entry.saved->describing().project_id;
}

TrainingRunView CatalogImpl::view_of(const Entry& entry, const UserId& owner) {
  TrainingRunView view;
  view.run = entry.run.id;
  view.base_model = entry.run.base_model;
  view.owner = owner;
  view.lora_rank = entry.run.lora_rank;
  view.last_request_time = iso_time(entry.run.last_request);
  view.corrupted = entry.run.broken;
  if (entry.saved && entry.saved->training) view.last_checkpoint = control::view_of(entry.saved->training);
  if (entry.saved && entry.saved->sampler) view.last_sampler_checkpoint = control::view_of(entry.saved->sampler);
  view.user_metadata = entry.run.user_metadata;
  return view;
}

Page<TrainingRunView> CatalogImpl::training_runs(const UserId& user, const PageRequest& request,
                                                 const std::string& project) const {
  RunsByUse runs(*this, user);
  const bool any_project = project.empty();
  Page<TrainingRunView> page{{}, request.offset, request.limit, any_project ? runs.count() : 0};
  if (any_project && request.offset >= page.total) return page;
  int64_t rank = 0;
  while (const std::optional<Entry> entry = runs.next()) {
    if (!any_project && project_of(*entry) != project) continue;
    const bool wanted = rank >= request.offset && rank - request.offset < request.limit;
    if (wanted) page.items.push_back(view_of(*entry, user));
    ++rank;
    if (any_project && rank - request.offset >= request.limit) break;  // the total is already known
  }
  if (!any_project) page.total = rank;
  return page;
}

Result<TrainingRunView> CatalogImpl::training_run(const UserId& user, const RunId& run, Scope scope) const {
  if (const auto own = own_entry(user, run)) return view_of(*own, user);
  if (scope == Scope::kOwned) return unknown_run();
  // Another user's run is shown only as far as its public checkpoints describe it.
  auto head = checkpoints_.lists().public_head(run);
  if (!head) return unknown_run();
  const UserId owner = head->owner;
  Entry entry = entry_of(std::move(*head));
  entry.run.user_metadata.clear();
  TrainingRunView view = view_of(entry, owner);
  for (auto* newest : {&view.last_checkpoint, &view.last_sampler_checkpoint}) {
    if (*newest) (*newest)->user_metadata.clear();
  }
  return view;
}

Result<Page<CheckpointView>> CatalogImpl::checkpoints_of(const UserId& user, const RunId& run, const PageRequest& page,
                                                         Listed listed) const {
  if (!owns_run(user, run)) return unknown_run();
  return views_of(checkpoints_.lists().of_run(run, page, listed));
}

Page<CheckpointView> CatalogImpl::checkpoints(const UserId& user, const PageRequest& page, Listed listed) const {
  return views_of(checkpoints_.lists().of_owner(user, page, listed));
}

std::vector<StoredView> CatalogImpl::stored(const UserId& user, const std::string& project) const {
  std::map<std::string, StoredView> by_project;
  const auto count = [&](const Checkpoint& checkpoint) {
    const std::string its = sessions_.project_of(checkpoint.session).value_or(checkpoint.project_id);
    if (!project.empty() && its != project) return;
    StoredView& view = by_project[its];
    view.project = its;
    ++view.checkpoints;
    view.size_bytes += checkpoint.size_bytes;
  };
  // Read in pieces, so that a long list holds the lock only briefly.
  PageRequest piece{0, kCheckpointsOfPiece};
  for (int64_t total = 1; piece.offset < total; piece.offset += kCheckpointsOfPiece) {
    const auto page = checkpoints_.lists().of_owner(user, piece);
    total = page.total;
    for (const CheckpointStore::Ptr& checkpoint : page.items) count(*checkpoint);
  }
  std::vector<StoredView> views;
  for (auto& [name, view] : by_project) views.push_back(std::move(view));
  return views;
}

}  // namespace tuft::control
