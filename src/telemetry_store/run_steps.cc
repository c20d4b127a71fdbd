#include "telemetry_store/run_steps.h"

#include <algorithm>
#include <utility>

#include "telemetry_store/bytes.h"
#include "telemetry_store/entry.h"
#include "telemetry_store/selection.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kRunsMax = 10'000;
constexpr size_t kRunNameBytesMax = 512;
constexpr size_t kFileBytesMin = size_t{1} << 20;
constexpr uint64_t kStepFileBytesMax = uint64_t{256} << 20;
constexpr size_t kUnwrittenStepBytesMax = size_t{1} << 20;

std::string encode_step(std::string_view run, std::string_view owner, const RunStep& step) {
  ByteWriter writer;
  writer.text(run).text(owner).put(step.step).put(step.time).put(step.loss).put(step.grad_norm);
  writer.put(step.learning_rate).put(step.tokens).put(step.pass_seconds).put(step.step_seconds);
  writer.put(step.wait_seconds).put(step.save_seconds).put(step.idle_seconds);
  writer.put(static_cast<uint8_t>(step.clipped ? 1 : 0));
  return writer.take();
}

bool decode_step(std::string_view bytes, RunStep& step) {
  ByteReader reader(bytes);
  step.run = reader.text();
  step.owner = reader.text();
  for (int64_t* value : {&step.step, &step.time}) *value = reader.get<int64_t>();
  for (double* value : {&step.loss, &step.grad_norm, &step.learning_rate}) *value = reader.get<double>();
  step.tokens = reader.get<int64_t>();
  for (double* value :
       {&step.pass_seconds, &step.step_seconds, &step.wait_seconds, &step.save_seconds, &step.idle_seconds})
    *value = reader.get<double>();
  step.clipped = reader.get<uint8_t>() != 0;
  return reader.ok() && reader.at_end();
}

}  // namespace

RunSteps::RunSteps(const std::filesystem::path& directory, size_t memory_bytes_max)
    : path_(directory.empty() ? std::filesystem::path() : directory / "steps"),
      steps_max_(std::max<size_t>(memory_bytes_max / sizeof(RunStep), 1000)) {}

void RunSteps::load() {
  if (path_.empty()) return;
  const auto file = read_file(path_, kStepFileBytesMax);
  if (!file.ok()) return;
  size_t damaged = 0;
  {
    MutexLock lock(mutex_);
    damaged = read_entries(*file, [&](const Entry& entry) TUFT_REQUIRES(mutex_) {
      RunStep step;
      if (entry.type == EntryType::kSteps && decode_step(entry.content, step) && step.step > 0) keep(std::move(step));
    });
    disk_bytes_ = file->size();
  }
  cut_at_ = file->size();
  // Otherwise the next entry would stand behind bytes that are none.
  if (damaged > 0 && !rewrite().ok()) cut_at_ = file->size();
}

void RunSteps::add(RunStep step) {
  // Steps without a number are in no curve.
  if (step.step <= 0 || step.run.empty() || step.run.size() > kRunNameBytesMax || step.owner.size() > kRunNameBytesMax)
    return;
  if (!path_.empty() && unwritten_.size() < kUnwrittenStepBytesMax)
    append_entry(unwritten_, EntryType::kSteps, 0, encode_step(step.run, step.owner, step));
  MutexLock lock(mutex_);
  keep(std::move(step));
}

void RunSteps::keep(RunStep step) {
  const auto [place, is_new] = runs_.try_emplace(std::exchange(step.run, {}));
  if (!is_new) leave(*place);
  Run& run = place->second;
  run.owner = std::exchange(step.owner, {});
  run.last = std::max(run.last, step.time);
  insert(run, std::move(step));
  enter(*place);
  while (runs_.size() > kRunsMax) remove_oldest_run_of(by_runs_.largest().second);
  while (count_ > steps_max_) thin_out();
}

void RunSteps::insert(Run& run, RunStep step) {
  // A run that went back to a checkpoint has left what it did since: its weights are not of those steps.
  const auto abandoned = std::lower_bound(run.steps.begin(), run.steps.end(), step.step,
                                          [](const RunStep& other, int64_t number) { return other.step < number; });
  if (abandoned != run.steps.end()) {
    run.steps.erase(abandoned, run.steps.end());
    run.seen = run.steps.size() * run.stride;
    run.newest_is_extra = false;
  }
  if (run.newest_is_extra) run.steps.pop_back();
  run.newest_is_extra = run.seen++ % run.stride != 0;
  run.steps.push_back(std::move(step));
}

template <typename Change>
void RunSteps::change(const std::string& owner, const Change& change) {
  const auto place = owners_.try_emplace(owner).first;
  auto& [name, of] = *place;
  const size_t runs = of.by_rest.size();
  const size_t steps = of.steps;
  change(of);
  by_runs_.change(name, runs, of.by_rest.size());
  by_steps_.change(name, steps, of.steps);
  if (of.by_rest.empty()) owners_.erase(place);
}

void RunSteps::enter(const Runs::value_type& entry) {
  const auto& [name, run] = entry;
  count_ += run.steps.size();
  change(run.owner, [&name = name, &run = run](OfOwner& of) {
    of.steps += run.steps.size();
    of.by_rest.emplace(run.last, name);
    of.by_length.change(name, 0, run.steps.size());
  });
}

void RunSteps::leave(const Runs::value_type& entry) {
  const auto& [name, run] = entry;
  count_ -= run.steps.size();
  change(run.owner, [&name = name, &run = run](OfOwner& of) {
    of.steps -= run.steps.size();
    of.by_rest.erase({run.last, name});
    of.by_length.change(name, run.steps.size(), 0);
  });
}

void RunSteps::remove_oldest_run_of(std::string_view owner) {
  const auto oldest = runs_.find(owners_.find(owner)->second.by_rest.begin()->second);
  leave(*oldest);
  runs_.erase(oldest);
}

void RunSteps::thin_out() {
  const std::string_view owner = by_steps_.largest().second;
  const auto longest = runs_.find(owners_.find(owner)->second.by_length.largest().second);
  Run& run = longest->second;
  // Nothing lies between the first step and the newest one.
  if (run.steps.size() <= 2) return remove_oldest_run_of(owner);
  leave(*longest);
  // Every second step goes; the first and the newest one stay.
  std::vector<RunStep> kept;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    if (i % 2 == 0 || i + 1 == run.steps.size()) kept.push_back(std::move(run.steps[i]));
  }
  run.newest_is_extra = run.newest_is_extra || run.steps.size() % 2 == 0;
  run.stride *= 2;
  run.steps = std::move(kept);
  enter(*longest);
}

Status RunSteps::flush() {
  if (path_.empty() || unwritten_.empty()) return {};
  uint64_t live = 0;
  {
    MutexLock lock(mutex_);
    live = count_ * sizeof(RunStep);
  }
  if (cut_at_ + unwritten_.size() > std::max<uint64_t>(kFileBytesMin, 2 * live)) {
    TUFT_TRY(rewrite());
    unwritten_.clear();
    return {};
  }
  if (!file_) {
    TUFT_ASSIGN(file_, DiskFile::open_to_append(path_));
  }
  TUFT_TRY(file_.cut(cut_at_));
  TUFT_TRY(file_.append(unwritten_));
  cut_at_ += unwritten_.size();
  unwritten_.clear();
  MutexLock lock(mutex_);
  disk_bytes_ = cut_at_;
  return {};
}

Status RunSteps::rewrite() {
  std::string content;
  {
    MutexLock lock(mutex_);
    for (const auto& [name, run] : runs_) {
      for (const RunStep& step : run.steps)
        append_entry(content, EntryType::kSteps, 0, encode_step(name, run.owner, step));
    }
  }
  file_.close();
  TUFT_TRY(replace_file(path_, content));
  cut_at_ = content.size();
  MutexLock lock(mutex_);
  disk_bytes_ = content.size();
  return {};
}

std::vector<RunStep> RunSteps::steps(const Viewer& viewer, std::string_view name, int64_t after, size_t points) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(name);
  if (found == runs_.end() || !may_see(viewer, found->second.owner)) return {};
  const Run& run = found->second;
  const auto first =
      std::find_if(run.steps.begin(), run.steps.end(), [after](const RunStep& step) { return step.step > after; });
  const auto count = static_cast<size_t>(run.steps.end() - first);
  const size_t shown = std::min(count, std::max<size_t>(points, 2));
  std::vector<RunStep> steps;
  for (size_t i = 0; i < shown; ++i) {
    // The first and the last step are always there.
    const size_t at = shown < 2 ? i : i * (count - 1) / (shown - 1);
    RunStep& step = steps.emplace_back(first[static_cast<ptrdiff_t>(at)]);
    step.run = name;
    step.owner = run.owner;
  }
  return steps;
}

uint64_t RunSteps::count() const {
  MutexLock lock(mutex_);
  return count_;
}

uint64_t RunSteps::memory_bytes() const {
  MutexLock lock(mutex_);
  return count_ * sizeof(RunStep);
}

uint64_t RunSteps::disk_bytes() const {
  MutexLock lock(mutex_);
  return disk_bytes_;
}

}  // namespace tuft::telemetry_store::internal
