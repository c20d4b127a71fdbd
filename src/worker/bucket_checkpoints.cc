#include "worker/bucket_checkpoints.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/file.h"
#include "base/id.h"

namespace tuft::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "tuft-checkpoints-";
constexpr size_t kFilesMax = 16;  // of one checkpoint

void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (entry.path().filename().string().starts_with(kPrefix)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    const int lock = lock_directory(path);
    if (lock < 0) continue;
    fs::remove_all(path, ignored);
    ::close(lock);
  }
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
}

Error foreign(const std::string& what) {
  return data_loss("the files of the checkpoint in the bucket are not those of a checkpoint: " + what,
                   "checkpoint_foreign");
}

}  // namespace

int64_t BucketCheckpoints::Copy::bytes() const {
  int64_t sum = 0;
  for (const File& file : files) sum += file.is_here ? file.size_bytes : 0;
  return sum;
}

Result<std::unique_ptr<BucketCheckpoints>> BucketCheckpoints::create(std::unique_ptr<bucket::Bucket> bucket,
                                                                     const fs::path& directory,
                                                                     int64_t copy_bytes_max) {
  remove_abandoned(directory);
  fs::path own = directory / (std::string(kPrefix) + random_uuid());
  std::error_code code;
  fs::create_directories(own, code);
  if (!code) fs::permissions(own, fs::perms::owner_all, code);  // the directory of temporary files is everybody's
  const int lock = code ? -1 : lock_directory(own);
  if (lock < 0) {
    return internal_error("cannot make a directory for copies of checkpoints in " + directory.string() +
                          "; choose another one with --page-directory");
  }
  return std::unique_ptr<BucketCheckpoints>(
      new BucketCheckpoints(std::move(bucket), std::move(own), lock, copy_bytes_max));
}

BucketCheckpoints::BucketCheckpoints(std::unique_ptr<bucket::Bucket> bucket, fs::path directory, int lock,
                                     int64_t copy_bytes_max)
    : bucket_(std::move(bucket)), directory_(std::move(directory)), lock_(lock), copy_bytes_max_(copy_bytes_max) {}

BucketCheckpoints::~BucketCheckpoints() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
  ::close(lock_);
}

Result<int64_t> BucketCheckpoints::write(const std::string& place, const engine::ModelSpec& model,
                                         const engine::AdapterState& state, const std::string& base_model_name) {
  copies_.push_front({place, directory_ / random_uuid(), {}});
  const auto copy = copies_.begin();
  const auto put_all = [&]() -> Result<int64_t> {
    TUFT_ASSIGN(const int64_t bytes, engine::write_checkpoint(copy->directory, model, state, base_model_name));
    std::vector<const char*> names = {engine::kAdapterConfigFile, engine::kAdapterFile};
    if (state.has_optimizer) names.push_back(engine::kOptimizerFile);
    // Last, so that files without it are those of an interrupted write for everybody.
    names.push_back(engine::kCompleteFile);
    for (const char* name : names) {
      std::error_code code;
      const auto size = static_cast<int64_t>(fs::file_size(copy->directory / name, code));
      if (code) return file_error("read the size of", name, code.value());
      copy->files.push_back({name, size, true});
    }
    make_room(0);
    for (const File& file : copy->files) {
      TUFT_TRY(bucket_->put_file(place + "/" + file.name, copy->directory / file.name));
    }
    return bytes;
  };
  auto written = put_all();
  if (!written.ok() || copy->bytes() > copy_bytes_max_) drop(copy);
  return written;
}

Result<engine::AdapterState> BucketCheckpoints::read(const std::string& place, const engine::ModelSpec& model,
                                                     bool with_optimizer) {
  TUFT_ASSIGN(const Copies::iterator copy, find_or_list(place));
  Status fetched = fetch(*copy, with_optimizer);
  auto state = fetched.ok() ? engine::read_checkpoint(copy->directory, model, with_optimizer)
                            : Result<engine::AdapterState>(std::move(fetched).error());
  if (!state.ok() || copy->bytes() > copy_bytes_max_) drop(copy);
  return state;
}

// The copy is the first one then.
Result<BucketCheckpoints::Copies::iterator> BucketCheckpoints::find_or_list(const std::string& place) {
  const auto known =
      std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) { return copy.place == place; });
  if (known != copies_.end()) {
    copies_.splice(copies_.begin(), copies_, known);
    return known;
  }
  Copy copy{place, directory_ / random_uuid(), {}};
  bool too_many = false;
  TUFT_TRY(bucket_->list(place + "/", [&](const bucket::Bucket::Object& object) {
    too_many = too_many || copy.files.size() == kFilesMax;
    if (!too_many) copy.files.push_back({object.name.substr(place.size() + 1), object.size_bytes});
  }));
  if (copy.files.empty()) return data_loss("the files of the checkpoint are not in the bucket", "object_missing");
  if (too_many) return foreign("there are more than " + std::to_string(kFilesMax));
  for (const File& file : copy.files) {
    if (!is_file_name(file.name)) return foreign("one of them has a name that no file of a checkpoint has");
  }
  std::error_code code;
  fs::create_directory(copy.directory, code);
  if (code) return file_error("create", "a directory for the copy of a checkpoint", code.value());
  copies_.push_front(std::move(copy));
  return copies_.begin();
}

Status BucketCheckpoints::fetch(Copy& copy, bool with_optimizer) {
  const auto is_needed = [with_optimizer](const File& file) {
    return !file.is_here && (with_optimizer || file.name != engine::kOptimizerFile);
  };
  int64_t more = 0;
  for (const File& file : copy.files) more += is_needed(file) ? file.size_bytes : 0;
  make_room(more);
  for (File& file : copy.files) {
    if (!is_needed(file)) continue;
    const Status got = bucket_->get_file(copy.place + "/" + file.name, copy.directory / file.name);
    if (!got.ok() && got.error().code == ErrorCode::kNotFound) {
      return data_loss("a file of the checkpoint is not in the bucket any more", "object_missing");
    }
    TUFT_TRY(got);
    file.is_here = true;
  }
  return {};
}

void BucketCheckpoints::make_room(int64_t more) {
  int64_t used = more;
  for (const Copy& copy : copies_) used += copy.bytes();
  while (used > copy_bytes_max_ && copies_.size() > 1) {
    used -= copies_.back().bytes();
    drop(std::prev(copies_.end()));
  }
}

void BucketCheckpoints::drop(Copies::iterator copy) {
  std::error_code ignored;
  fs::remove_all(copy->directory, ignored);
  copies_.erase(copy);
}

}  // namespace tuft::worker
