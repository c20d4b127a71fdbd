// A catalog in which alice has a session with a run, a sampler and two checkpoints. Bob has nothing, but he may see her
// run, because one of its checkpoints is public.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "control/views/catalog.h"

namespace tuft::api {

class FakeCatalog final : public control::Catalog {
 public:
  using UserId = control::UserId;

  std::function<void()> on_session = [] {};  // called by session(), without a lock

  std::string project() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return project_;
  }

  control::Page<control::SessionId> sessions(const UserId& user, const control::PageRequest& page) const override {
    control::Page<control::SessionId> answer{{}, page.offset, page.limit, 0};
    if (user.str() != "alice") return answer;
    answer.total = 3;
    for (int64_t i = page.offset; i < std::min<int64_t>(3, page.offset + page.limit); ++i) {
      answer.items.emplace_back("s" + std::to_string(3 - i));
    }
    return answer;
  }
  Result<control::SessionView> session(const UserId& user, const control::SessionId& id) const override {
    on_session();
    if (user.str() != "alice" || id.str() != "s1") return not_found("there is no such session");
    return control::SessionView{{control::RunId("s1:train:0")}, {control::SamplerId("s1:sample:0")}};
  }
  control::SessionsFound search_sessions(const UserId& user, const control::SessionQuery& query) const override
      TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    last_query_ = query;
    if (user.str() != "alice") return {};
    control::SessionFound finished{.id = control::SessionId("s1"), .created_at = "2026-01-31T12:00:00.000000+00:00"};
    finished.display_name = "nightly";
    finished.user_metadata = {{"a", "b"}};
    finished.state = control::SessionState::kFinished;
    finished.finish = {control::FinishReason::kErrored, "why"};
    finished.checkpoints = 2;
    finished.checkpoint_bytes = 168;
    return {{std::move(finished)}, true};
  }
  control::SessionQuery last_query() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_query_;
  }
  bool owns_session(const UserId& user, const control::SessionId& id) const override { return session(user, id).ok(); }
  bool owns_run(const UserId& user, const control::RunId& run) const override {
    return training_run(user, run, control::Scope::kOwned).ok();
  }
  Status set_project(const UserId& user, const control::SessionId& id, const std::string& project) override
      TUFT_EXCLUDES(mutex_) {
    if (user.str() != "alice" || id.str() != "s1") return not_found("there is no such session");
    MutexLock lock(mutex_);
    project_ = project;
    return {};
  }

  control::Page<control::TrainingRunView> training_runs(const UserId& user, const control::PageRequest& page,
                                                        const std::string& project) const override {
    control::Page<control::TrainingRunView> answer{{}, page.offset, page.limit, 0};
    if (user.str() != "alice" || (!project.empty() && project != "p 1")) return answer;
    answer.total = 1;
    if (page.offset == 0) answer.items.push_back(run_view());
    return answer;
  }
  Result<control::TrainingRunView> training_run(const UserId& user, const control::RunId& run,
                                                control::Scope scope) const override {
    const bool visible = user.str() == "alice" || scope == control::Scope::kAccessible;
    if (!visible || run.str() != "s1:train:0") return not_found("there is no such training run");
    return run_view();
  }
  Result<control::Page<control::CheckpointView>> checkpoints_of(const UserId& user, const control::RunId& run,
                                                                const control::PageRequest& page,
                                                                control::Listed listed) const override {
    if (run.str() != "s1:train:0" || user.str() != "alice") return not_found("there is no such training run");
    return checkpoints(user, page, listed);
  }
  control::Page<control::CheckpointView> checkpoints(const UserId& user, const control::PageRequest& page,
                                                     control::Listed listed) const override {
    if (user.str() != "alice") return {{}, page.offset, page.limit, 0};
    if (listed == control::Listed::kLoadable) return {{training()}, page.offset, page.limit, 1};
    return {{training(), sampler()}, page.offset, page.limit, 2};
  }

  std::vector<control::StoredView> stored(const UserId& user, const std::string& project) const override {
    if (user.str() != "alice") return {};
    if (project.empty()) return {{"", 1, 500'000'000}, {"p 1", 2, 1'500'000'000}};
    return {{project, 2, 1'500'000'000}};
  }

 private:
  static control::CheckpointView training() {
    return {"weights/0001",
            control::CheckpointKind::kTraining,
            "2026-01-31T12:00:00.000000+00:00",
            "tinker://s1:train:0/weights/0001",
            123,
            false,
            "2026-02-01T12:00:00.000000+00:00",
            {}};
  }
  static control::CheckpointView sampler() {
    return {"sampler_weights/a",
            control::CheckpointKind::kSampler,
            "2026-01-31T13:00:00.000000+00:00",
            "tinker://s1:train:0/sampler_weights/a",
            45,
            true,
            std::nullopt,
            {}};
  }
  static control::TrainingRunView run_view() {
    control::TrainingRunView view{control::RunId("s1:train:0"),
                                  "base/model",
                                  UserId("alice"),
                                  8,
                                  "2026-01-31T14:00:00.000000+00:00",
                                  false,
                                  training(),
                                  std::nullopt,
                                  {}};
    view.user_metadata = {{"k", "v"}};
    return view;
  }

  mutable Mutex mutex_;
  std::string project_ TUFT_GUARDED_BY(mutex_);
  mutable control::SessionQuery last_query_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::api
