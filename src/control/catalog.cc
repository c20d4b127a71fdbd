#include <algorithm>
#include <utility>

#include "control/catalog_impl.h"

namespace tuft::control {
namespace {

// "s:train:2" before "s:train:10".
template <typename IdType>
bool before(const IdType& a, const IdType& b) {
  const std::string& x = a.str();
  const std::string& y = b.str();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

template <typename T, typename Make>
auto page_of(const std::vector<T>& all, const PageRequest& request, Make make) {
  using Item = decltype(make(all.front()));
  Page<Item> page;
  page.offset = request.offset;
  page.limit = request.limit;
  page.total = static_cast<int64_t>(all.size());
  const int64_t begin = std::min(request.offset, page.total);
  const int64_t end = begin + std::min(request.limit, page.total - begin);
  for (int64_t i = begin; i < end; ++i) page.items.push_back(make(all[static_cast<size_t>(i)]));
  return page;
}

CheckpointView view_of(const CheckpointStore::Ptr& checkpoint) {
  CheckpointView view;
  view.checkpoint_id = std::string(checkpoint_folder(checkpoint->path.kind)) + "/" + checkpoint->path.name;
  view.training = checkpoint->path.kind == CheckpointKind::kTraining;
  view.created_at = checkpoint->created_at;
  view.tinker_path = checkpoint->path.str();
  view.size_bytes = checkpoint->size_bytes;
  view.is_public = checkpoint->is_public;
  if (checkpoint->expires_at) view.expires_at = iso_time(*checkpoint->expires_at);
  return view;
}

Error unknown_run() {
  return not_found("there is no such training run, or it is not visible to you", "training_run_not_found");
}

}  // namespace

Page<SessionId> CatalogImpl::sessions(const UserId& user, const PageRequest& page) const {
  return page_of(sessions_.of_user(user), page, [](const SessionId& id) { return id; });
}

Result<SessionView> CatalogImpl::session(const UserId& user, const SessionId& session) const {
  if (!sessions_.belongs_to(user, session)) {
    return not_found("there is no such session; one that has ended is listed no more", "session_not_found");
  }
  SessionView view;
  for (const auto& [id, entry] : entries(user)) {
    if (entry.run.session == session) view.runs.push_back(id);
  }
  view.samplers = sampling_.samplers_of(user, session);
  view.user_metadata = sessions_.metadata_of(session);
  std::sort(view.runs.begin(), view.runs.end(), before<RunId>);
  std::sort(view.samplers.begin(), view.samplers.end(), before<SamplerId>);
  return view;
}

Status CatalogImpl::set_project(const UserId& user, const SessionId& session, const std::string& project) {
  return sessions_.set_project(user, session, project);
}

// What the checkpoints of one run tell of it; `newest` wins where the run itself is gone.
void CatalogImpl::add(Entry& entry, const CheckpointStore::Ptr& checkpoint) {
  CheckpointStore::Ptr& newest = checkpoint->path.kind == CheckpointKind::kTraining ? entry.training : entry.sampler;
  if (newest == nullptr || newest->created_at <= checkpoint->created_at) newest = checkpoint;
  RunSummary& run = entry.run;
  if (!run.id.empty()) return;
  run = {checkpoint->path.run, checkpoint->session, checkpoint->base_model, checkpoint->lora_rank,
         checkpoint->user_metadata};
}

std::map<RunId, CatalogImpl::Entry> CatalogImpl::entries(const UserId& user) const {
  std::map<RunId, Entry> entries;
  for (RunSummary& run : training_.runs_of(user)) {
    RunId id = run.id;
    entries[std::move(id)].run = std::move(run);
  }
  for (const CheckpointStore::Ptr& checkpoint : checkpoints_.owner_checkpoints(user)) {
    add(entries[checkpoint->path.run], checkpoint);
  }
  for (auto& [id, entry] : entries) {
    const CheckpointStore::Ptr& any = entry.training != nullptr ? entry.training : entry.sampler;
    const auto current = sessions_.project_of(entry.run.session);
    if (current) {
      entry.project = *current;
    } else if (any != nullptr) {
      entry.project = any->project_id;
    }
    // Of a run that is gone: its checkpoints are the last that was heard of it.
    if (entry.run.last_request != 0) continue;
    for (const CheckpointStore::Ptr& checkpoint : {entry.training, entry.sampler}) {
      if (checkpoint == nullptr) continue;
      entry.run.last_request = std::max(entry.run.last_request, parse_iso_time(checkpoint->created_at).value_or(0));
    }
  }
  return entries;
}

TrainingRunView CatalogImpl::view_of(const Entry& entry, const UserId& owner) {
  TrainingRunView view;
  view.run = entry.run.id;
  view.base_model = entry.run.base_model;
  view.owner = owner;
  view.lora_rank = entry.run.lora_rank;
  view.last_request_time = iso_time(entry.run.last_request);
  view.corrupted = entry.run.broken;
  if (entry.training != nullptr) view.last_checkpoint = control::view_of(entry.training);
  if (entry.sampler != nullptr) view.last_sampler_checkpoint = control::view_of(entry.sampler);
  view.user_metadata = entry.run.user_metadata;
  return view;
}

Page<TrainingRunView> CatalogImpl::training_runs(const UserId& user, const PageRequest& page,
                                                 const std::string& project) const {
  std::vector<Entry> chosen;
  for (auto& [id, entry] : entries(user)) {
    if (project.empty() || entry.project == project) chosen.push_back(std::move(entry));
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Entry& a, const Entry& b) { return a.run.last_request > b.run.last_request; });
  return page_of(chosen, page, [&](const Entry& entry) { return view_of(entry, user); });
}

Result<TrainingRunView> CatalogImpl::training_run(const UserId& user, const RunId& run, Scope scope) const {
  const auto own = entries(user);
  if (const auto found = own.find(run); found != own.end()) return view_of(found->second, user);
  if (scope == Scope::kOwned) return unknown_run();
  // Of somebody else's run only what its public checkpoints tell is to be seen.
  Entry entry;
  UserId owner;
  for (const CheckpointStore::Ptr& checkpoint : checkpoints_.run_checkpoints(run)) {
    if (!checkpoint->is_public) continue;
    add(entry, checkpoint);
    owner = checkpoint->owner;
    entry.run.last_request = std::max(entry.run.last_request, parse_iso_time(checkpoint->created_at).value_or(0));
  }
  if (owner.empty()) return unknown_run();
  entry.run.user_metadata.clear();
  return view_of(entry, owner);
}

Result<Page<CheckpointView>> CatalogImpl::checkpoints_of(const UserId& user, const RunId& run,
                                                         const PageRequest& page) const {
  const auto own = entries(user);
  if (!own.contains(run)) return unknown_run();
  return page_of(checkpoints_.run_checkpoints(run), page, [](const auto& each) { return control::view_of(each); });
}

Page<CheckpointView> CatalogImpl::checkpoints(const UserId& user, const PageRequest& page) const {
  return page_of(checkpoints_.owner_checkpoints(user), page, [](const auto& each) { return control::view_of(each); });
}

std::vector<StoredView> CatalogImpl::stored(const UserId& user, const std::string& project) const {
  std::map<std::string, StoredView> by_project;
  for (const CheckpointStore::Ptr& checkpoint : checkpoints_.owner_checkpoints(user)) {
    const std::string its = sessions_.project_of(checkpoint->session).value_or(checkpoint->project_id);
    if (!project.empty() && its != project) continue;
    StoredView& view = by_project[its];
    view.project = its;
    ++view.checkpoints;
    view.size_bytes += checkpoint->size_bytes;
  }
  std::vector<StoredView> views;
  for (auto& [name, view] : by_project) views.push_back(std::move(view));
  return views;
}

}  // namespace tuft::control
