// tuft_catalog_bench DIR CHECKPOINTS [PER_RUN]: measures queries about checkpoints while another user has that many.
// Writes the checkpoints below DIR, which it removes first, and starts a control plane on them, as a restart does.
// Prints one line of JSON:
// {"checkpoints": .., "runs": .., "start_seconds": .., "plan_seconds": .., "<query>_us": ..}.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "control/checkpoints/checkpoint_store.h"
#include "control/checkpoints/directory_storage.h"
#include "control/control_plane.h"
#include "control/persistence/restore_plan.h"
#include "control/views/catalog.h"

namespace tuft::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point begin) {
  return std::chrono::duration<double>(Time::now() - begin).count();
}

control::RunId run_id(size_t number) {
  return control::RunId("session-" + std::to_string(number) + ":train:0");
}

void write_checkpoint(const fs::path& root, const char* owner, size_t run, size_t number) {
  control::Checkpoint checkpoint;
  checkpoint.path = {run_id(run),
                     number % 2 == 0 ? control::CheckpointKind::kTraining : control::CheckpointKind::kSampler,
                     "c" + std::to_string(number)};
  checkpoint.owner = control::UserId(owner);
  checkpoint.session = control::SessionId("session-" + std::to_string(run));
  checkpoint.base_model = "org/model";
  checkpoint.created_at = control::iso_time(static_cast<Nanos>(number + 1) * kSecond);
  checkpoint.lora_rank = 8;
  checkpoint.future_number = number + 1;
  const fs::path directory = root / control::run_folder(checkpoint.path.run) /
                             control::checkpoint_folder(checkpoint.path.kind) / checkpoint.path.name;
  fs::create_directories(directory);
  std::ofstream(directory / control::kMetadataFile) << control::to_metadata_json(checkpoint);
}

// Returns the microseconds of one call.
template <typename Call>
double cost(Call call) {
  const auto begin = Time::now();
  size_t calls = 0;
  for (; calls < 10 || (calls < 100'000 && seconds_since(begin) < 0.2); ++calls) call();
  return seconds_since(begin) / static_cast<double>(calls) * 1e6;
}

double plan_seconds(const fs::path& root, size_t runs) {
  control::CheckpointStore store(control::make_directory_storage(root));
  store.scan(nullptr);
  control::StoredState state;
  for (size_t i = 0; i < runs; ++i) {
    control::RunRecord record;
    record.id = run_id(i);
    state.runs.push_back(std::move(record));
  }
  const auto begin = Time::now();
  plan_restore(std::move(state), {[&](const std::string& path) { return store.find(path); },
                                  [&](const control::RunId& run) { return store.lists().newest_training(run); },
                                  [&](const control::RunId& run, uint64_t future_number) {
                                    return store.lists().saved_by(run, future_number);
                                  }});
  return seconds_since(begin);
}

json measure(const fs::path& root, size_t checkpoints, size_t per_run) {
  fs::remove_all(root);
  const size_t runs = checkpoints / per_run;
  for (size_t i = 0; i < checkpoints; ++i) write_checkpoint(root, "alice", i / per_run, i);
  for (size_t i = 0; i < 10; ++i) write_checkpoint(root, "bob", runs + 1, checkpoints + i);
  json out = {{"checkpoints", checkpoints}, {"runs", runs}};
  config::ServerConfig config;
  config.checkpoint_dir = root;
  const auto begin = Time::now();
  const auto plane = control::ControlPlane::create(config, {}, system_clock());
  out["start_seconds"] = seconds_since(begin);
  const control::Catalog& catalog = plane->catalog();
  const control::UserId alice("alice");
  const control::UserId bob("bob");
  const control::RunId bobs = run_id(runs + 1);
  const auto deep = static_cast<int64_t>(checkpoints - 100);
  out["others_list_us"] = cost([&] { catalog.checkpoints(bob, {0, 100}, control::Listed::kAll); });
  out["others_runs_us"] = cost([&] { catalog.training_runs(bob, {0, 20}, ""); });
  out["others_run_us"] = cost([&] { (void)catalog.training_run(bob, bobs, control::Scope::kOwned); });
  out["unknown_model_us"] = cost([&] { (void)plane->get_info(bob, run_id(0)); });
  out["owns_run_us"] = cost([&] { catalog.owns_run(bob, run_id(0)); });
  out["own_first_page_us"] = cost([&] { catalog.checkpoints(alice, {0, 100}, control::Listed::kAll); });
  out["own_last_page_us"] = cost([&] { catalog.checkpoints(alice, {deep, 100}, control::Listed::kAll); });
  out["own_runs_page_us"] = cost([&] { catalog.training_runs(alice, {0, 20}, ""); });
  // Runs last: it frees a second store, which slows down the next large allocation.
  out["plan_seconds"] = plan_seconds(root, runs);
  return out;
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: tuft_catalog_bench DIR CHECKPOINTS [PER_RUN]\n";
    return 2;
  }
  const size_t per_run = argc > 3 ? std::stoul(argv[3]) : 10;
  std::cout << tuft::bench::measure(argv[1], std::stoul(argv[2]), per_run).dump() << '\n';
  return 0;
}
