#include "control/checkpoints/bucket_storage.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/id.h"
#include "base/mutex.h"
#include "bucket/transfer.h"
#include "control/checkpoints/checkpoint_files.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;
using bucket::Bucket;

constexpr std::string_view kIndex = "index/";
constexpr std::string_view kFiles = "files/";
constexpr std::string_view kIndexSuffix = ".json";
constexpr std::string_view kScratchPrefix = ".seal-";
constexpr size_t kIndexBytesMax = 1 << 20;
constexpr size_t kReaders = 16;  // threads that read the index
constexpr size_t kLeftoversAtATime = 4;
constexpr size_t kUuidLength = 36;
constexpr Nanos kRetryPause = 5 * kSecond;

std::string index_name(const CheckpointPath& path) {
  return std::string(kIndex) + name_of(path) + std::string(kIndexSuffix);
}

std::string index_text(const fs::path& place, const Checkpoint& checkpoint) {
  return "{\"files\": " + nlohmann::json(place.string()).dump() + ",\n\"metadata\": " + to_metadata_json(checkpoint) +
         "}\n";
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '/') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Whether a path is of the form that prepare() returns. Nothing else is ever removed, or read as files.
bool is_place(std::string_view path) {
  const std::vector<std::string> parts = parts_of(path);
  if (parts.size() != 4 || parts[0] + "/" != kFiles || parts[1].empty() || parts[1].front() == '.') return false;
  const bool has_kind = std::any_of(std::begin(kAllCheckpointKinds), std::end(kAllCheckpointKinds),
                                    [&parts](CheckpointKind kind) { return parts[2] == checkpoint_folder(kind); });
  return has_kind && parts[3].size() == kUuidLength &&
         parts[3].find_first_not_of("0123456789abcdef-") == std::string::npos;
}

// What an object of the index says.
struct Entry {
  std::string place;
  Result<Checkpoint> checkpoint = data_loss("it was not read");
};

// Returns nothing if the object does not name files.
std::optional<Entry> parse_entry(const std::string& name, const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Entry entry;
    entry.place = json.at("files").get<std::string>();
    if (!is_place(entry.place)) return std::nullopt;
    entry.checkpoint = from_metadata_json(json.at("metadata").dump());
    if (entry.checkpoint.ok() && index_name(entry.checkpoint->path) != name) {
      entry.checkpoint = data_loss("it names another checkpoint; was the object renamed?");
    }
    return entry;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Reads objects with several threads, because a server with many checkpoints waits for each of them.
Result<std::vector<std::string>> read_all(Bucket& bucket, const std::vector<std::string>& names) {
  std::vector<std::string> texts(names.size());
  std::atomic<size_t> next{0};
  Mutex mutex;
  std::optional<Error> failure;
  const auto read = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      auto text = bucket.get(names[i], kIndexBytesMax);
      const bool is_gone = !text.ok() && text.error().code == ErrorCode::kNotFound;
      if (text.ok()) texts[i] = std::move(*text);
      if (text.ok() || is_gone) continue;
      if (text.error().code == ErrorCode::kDataLoss || text.error().code == ErrorCode::kPayloadTooLarge) continue;
      next = names.size();
      MutexLock lock(mutex);
      failure = std::move(text).error();
    }
  };
  std::vector<std::thread> threads(std::min(kReaders, names.size()));
  for (std::thread& thread : threads) thread = std::thread(read);
  for (std::thread& thread : threads) thread.join();
  if (failure) return std::move(*failure);
  return texts;
}

class BucketFile final : public CheckpointFile {
 public:
  BucketFile(std::shared_ptr<Bucket> bucket, std::string name, Bucket::Version version)
      : bucket_(std::move(bucket)), name_(std::move(name)), version_(std::move(version)) {}

  int64_t size_bytes() const override { return version_.size_bytes; }

  Result<std::string> read(int64_t offset, size_t bytes_max) override {
    const int64_t size = std::min(static_cast<int64_t>(bytes_max), version_.size_bytes - offset);
    auto piece = bucket_->get_part(name_, version_, offset, size);
    if (!piece.ok()) return storage_error("cannot read the files of the checkpoint", piece.error());
    sha256_.add(*piece);
    if (offset + size == version_.size_bytes && sha256_.hex() != version_.sha256) {
      return storage_error("cannot read the files of the checkpoint", data_loss("an object is damaged"));
    }
    return piece;
  }

 private:
  const std::shared_ptr<Bucket> bucket_;
  const std::string name_;
  const Bucket::Version version_;
  bucket::RunningSha256 sha256_;
};

class BucketStorage final : public CheckpointStorage {
 public:
  BucketStorage(std::shared_ptr<Bucket> bucket, fs::path scratch, const Clock& clock)
      : bucket_(std::move(bucket)), scratch_(std::move(scratch)), clock_(clock) {}

  Status open() {
    remove_scratch();
    TUFT_TRY(try_rights());
    std::vector<std::string> names;
    TUFT_TRY(bucket_->list(kIndex, [&names](Bucket::Object object) {
      if (object.name.ends_with(kIndexSuffix)) names.push_back(std::move(object.name));
    }));
    TUFT_ASSIGN(const std::vector<std::string> texts, read_all(*bucket_, names));
    std::unordered_set<std::string> stored;
    TUFT_TRY(bucket_->list(kFiles, [&stored](const Bucket::Object& object) {
      const std::string place = object.name.substr(0, object.name.rfind('/'));
      if (is_place(place)) stored.insert(place);
    }));
    bool knows_all = true;
    for (size_t i = 0; i < names.size(); ++i) knows_all = take_entry(names[i], texts[i], stored) && knows_all;
    find_leftovers(stored, knows_all);
    return {};
  }

  void scan(const std::function<void(Found)>& found) override {
    for (Found& each : std::exchange(found_, {})) found(std::move(each));
  }

  Result<fs::path> prepare(const RunId& run, CheckpointKind kind) override {
    return fs::path(std::string(kFiles) + run_folder(run) + "/" + std::string(checkpoint_folder(kind)) + "/" +
                    random_uuid());
  }

  Result<fs::path> commit(const fs::path& prepared, const Checkpoint& checkpoint, const Checkpoint* replaced) override {
    std::optional<std::string> before;
    if (replaced != nullptr) before = index_text(replaced->files->directory(), *replaced);
    const Status put = write_index(checkpoint.path, index_text(prepared, checkpoint), std::move(before), prepared);
    if (!put.ok()) return storage_error("cannot commit a checkpoint", put.error());
    note_entry(index_name(checkpoint.path), prepared.string());
    Use& use = used_[prepared.string()];
    use.users = std::max(use.users, 1);
    return prepared;
  }

  Status update(const fs::path& place, const Checkpoint& current, const Checkpoint& changed) override {
    const Status put = write_index(changed.path, index_text(place, changed), index_text(place, current), {});
    if (!put.ok()) return storage_error("cannot write the metadata of a checkpoint", put.error());
    return {};
  }

  Status retire(const fs::path& place, const Checkpoint& checkpoint) override {
    const Status removed = write_index(checkpoint.path, std::nullopt, index_text(place, checkpoint), {});
    if (!removed.ok()) return storage_error("cannot delete a checkpoint", removed.error());
    used_[place.string()].names.erase(index_name(checkpoint.path));
    place_of_.erase(index_name(checkpoint.path));
    return {};
  }

  Result<fs::path> clone(const fs::path& source, const RunId&, CheckpointKind) override {
    ++used_[source.string()].users;
    return source;
  }

  void discard(const fs::path& place) override {
    const auto use = used_.find(place.string());
    if (use != used_.end() && --use->second.users > 0) return;
    if (use != used_.end()) {
      // Those of ephemeral checkpoints, which are forgotten and not retired.
      const auto gone = used_.extract(use);
      for (const std::string& name : gone.mapped().names) {
        place_of_.erase(name);
        remove_entry(name);
      }
    }
    remove_files(place.string());
  }

  Result<std::unique_ptr<CheckpointFile>> open(const fs::path& place, const std::string& file) override {
    std::string name = (place / file).string();
    auto version = bucket_->head(name);
    if (!version.ok()) return storage_error("cannot read the files of the checkpoint", version.error());
    return std::unique_ptr<CheckpointFile>(
        std::make_unique<BucketFile>(bucket_, std::move(name), std::move(version).value()));
  }

  Result<fs::path> enter_directory(const fs::path& prepared, const std::vector<std::string>& files) override {
    fs::path directory = scratch_ / (std::string(kScratchPrefix) + random_uuid());
    std::error_code code;
    fs::create_directories(directory, code);
    if (!code) fs::permissions(directory, fs::perms::owner_all, code);
    Status got = code ? Status(internal_error(code.message())) : Status();
    for (const std::string& file : files) {
      if (got.ok()) got = bucket_->get_file((prepared / file).string(), directory / file);
    }
    if (got.ok()) return directory;
    fs::remove_all(directory, code);
    return storage_error("cannot encrypt a checkpoint", got.error());
  }

  Status leave_directory(const fs::path& prepared, const fs::path& directory, const std::vector<std::string>& files,
                         bool succeeded) override {
    Status status = succeeded ? bring_back(prepared, directory, files) : Status();
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    if (!status.ok()) return storage_error("cannot store an encrypted checkpoint", status.error());
    return {};
  }

  void clean_up() override {
    if (!needs_clean_up()) return;
    while (!unsettled_.empty()) {
      if (!settle(unsettled_.begin()->first)) return pause();
    }
    for (size_t i = 0; i < kLeftoversAtATime && !leftovers_.empty(); ++i) {
      const std::string place = std::move(leftovers_.front());
      leftovers_.pop_front();
      if (!remove_files(place)) return pause();
    }
    has_work_ = !leftovers_.empty();
  }

  bool needs_clean_up() const override { return has_work_ && clock_.monotonic() >= next_clean_up_; }
  void cancel() override { bucket_->cancel(kCancelGrace); }

 private:
  static constexpr Nanos kCancelGrace = kSecond;

  struct Use {
    int users = 0;                // checkpoints that have the files, or will have, or may have
    std::set<std::string> names;  // of the objects of the index that name the place
  };
  // What is to become of an object of the index that may not be what the server remembers.
  struct Unsettled {
    std::optional<std::string> text;  // none: it is to be removed
    std::vector<fs::path> doomed;     // the files that failed commits may have named
  };

  Status try_rights() {
    const std::string name = "try-" + random_uuid();
    TUFT_TRY(bucket_->put(name, name));
    TUFT_ASSIGN(const std::string found, bucket_->get(name, kIndexBytesMax));
    TUFT_TRY(bucket_->remove(name));
    if (found == name) return {};
    return data_loss("the bucket of checkpoints does not return what was put a moment ago", "object_damaged");
  }

  // A killed server left them.
  void remove_scratch() const {
    std::error_code code;
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(scratch_, code)) {
      if (entry.path().filename().string().starts_with(kScratchPrefix)) left.push_back(entry.path());
    }
    for (const fs::path& path : left) fs::remove_all(path, code);
  }

  // Returns false if the files of the entry are not known.
  bool take_entry(const std::string& name, const std::string& text, const std::unordered_set<std::string>& stored) {
    std::string short_name = name.substr(kIndex.size(), name.size() - kIndex.size() - kIndexSuffix.size());
    std::optional<Entry> entry = parse_entry(name, text);
    if (!entry) {
      found_.push_back(
          {name, std::move(short_name), data_loss("its object of the index is damaged or of another program")});
      return false;
    }
    if (entry->checkpoint.ok() && !stored.contains(entry->place)) entry->checkpoint = data_loss("its files are gone");
    ++used_[entry->place].users;
    note_entry(name, entry->place);
    found_.push_back({entry->place, std::move(short_name), std::move(entry->checkpoint)});
    return true;
  }

  // From now on the object of the index names this place, and no other: neither that of a checkpoint that was replaced,
  // nor that of an ephemeral one that was forgotten, whose files somebody still uses.
  void note_entry(const std::string& name, const std::string& place) {
    std::string& named = place_of_[name];
    if (const auto former = used_.find(named); former != used_.end()) former->second.names.erase(name);
    named = place;
    used_[place].names.insert(name);
  }

  // If an entry cannot be read, its files are among those that no other names.
  void find_leftovers(const std::unordered_set<std::string>& stored, bool knows_all) {
    const Status ended = bucket_->remove_unfinished(kFiles);
    if (!ended.ok()) {
      telemetry::log_warning("checkpoint.discard.failed", "interrupted uploads stay: " + ended.error().message);
    }
    if (!knows_all) {
      telemetry::log_warning("checkpoint.discard.failed",
                             "files that no checkpoint names stay, because a part of the index cannot be read");
      return;
    }
    for (const std::string& place : stored) {
      if (!used_.contains(place)) leftovers_.push_back(place);
    }
    has_work_ = !leftovers_.empty();
  }

  // `text`: none: the object is removed. `before`: what it is while this has not succeeded. `prepared`: the files that
  // the object names for the first time.
  Status write_index(const CheckpointPath& path, const std::optional<std::string>& text,
                     std::optional<std::string> before, const fs::path& prepared) {
    const std::string name = index_name(path);
    Status done = text ? bucket_->put(name, *text) : bucket_->remove(name);
    if (done.ok()) {
      const auto former = unsettled_.extract(name);
      if (!former.empty()) discard_all(former.mapped().doomed);
      return done;
    }
    if (done.error().code != ErrorCode::kUnavailable && done.error().code != ErrorCode::kCancelled) return done;
    Unsettled& wanted = unsettled_.try_emplace(name, Unsettled{std::move(before), {}}).first->second;
    if (!prepared.empty()) {
      // The index may name the files until it is put right, and the caller discards them now.
      const int user_of_caller = used_.contains(prepared.string()) ? 0 : 1;
      used_[prepared.string()].users += user_of_caller + 1;
      wanted.doomed.push_back(prepared);
    }
    pause();
    return done;
  }

  bool settle(const std::string& name) {
    const auto at = unsettled_.find(name);
    const Unsettled& wanted = at->second;
    const Status done = wanted.text ? bucket_->put(name, *wanted.text) : bucket_->remove(name);
    if (!done.ok()) return false;
    discard_all(unsettled_.extract(at).mapped().doomed);
    telemetry::log_info("checkpoint.index.settled", "the index of the bucket is as the server remembers it again");
    return true;
  }

  // If that fails, clean_up() tries again. Either way nothing puts back what an earlier failure has left to settle.
  void remove_entry(const std::string& name) {
    if (bucket_->remove(name).ok()) {
      const auto former = unsettled_.extract(name);
      if (!former.empty()) discard_all(former.mapped().doomed);
    } else {
      unsettled_[name].text.reset();
      pause();
    }
  }

  void discard_all(const std::vector<fs::path>& places) {
    for (const fs::path& place : places) discard(place);
  }

  void pause() {
    next_clean_up_ = clock_.monotonic() + kRetryPause;
    has_work_ = true;
  }

  // If that fails, clean_up() tries again.
  bool remove_files(const std::string& place) {
    if (clock_.monotonic() < next_clean_up_) {  // the bucket was away a moment ago
      leftovers_.push_back(place);
      return false;
    }
    std::vector<std::string> names;
    Status status =
        bucket_->list(place + "/", [&names](Bucket::Object object) { names.push_back(std::move(object.name)); });
    for (const std::string& name : names) {
      if (status.ok()) status = bucket_->remove(name);
    }
    if (status.ok()) return true;
    telemetry::log_warning("checkpoint.discard.failed",
                           "old checkpoint files cannot be removed yet: " + status.error().message);
    leftovers_.push_back(place);
    pause();
    return false;
  }

  Status bring_back(const fs::path& prepared, const fs::path& directory, const std::vector<std::string>& files) {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(directory, code)) {
      TUFT_TRY(bucket_->put_file((prepared / entry.path().filename()).string(), entry.path()));
    }
    if (code) return internal_error(code.message());
    for (const std::string& file : files) {
      if (!fs::exists(directory / file, code)) TUFT_TRY(bucket_->remove((prepared / file).string()));
    }
    return {};
  }

  const std::shared_ptr<Bucket> bucket_;
  const fs::path scratch_;
  const Clock& clock_;
  std::vector<Found> found_;
  std::unordered_map<std::string, Use> used_;              // places
  std::unordered_map<std::string, std::string> place_of_;  // the place that an object of the index names
  std::map<std::string, Unsettled> unsettled_;             // by the names of objects of the index
  std::deque<std::string> leftovers_;                      // places whose files are to be removed
  std::atomic<bool> has_work_{false};                      // for clean_up()
  std::atomic<Nanos> next_clean_up_{0};                    // monotonic
};

}  // namespace

Result<std::unique_ptr<CheckpointStorage>> open_bucket_storage(std::shared_ptr<Bucket> bucket, const fs::path& scratch,
                                                               const Clock& clock) {
  auto storage = std::make_unique<BucketStorage>(std::move(bucket), scratch, clock);
  TUFT_TRY(storage->open());
  return std::unique_ptr<CheckpointStorage>(std::move(storage));
}

}  // namespace tuft::control
