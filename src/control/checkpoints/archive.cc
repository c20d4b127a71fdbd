#include "control/checkpoints/archive.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "control/types/errors.h"

namespace tuft::control {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kOctalMax = 077777777777;  // the largest size in a ustar header
constexpr const char* kCompleteFile = "checkpoint_complete";
constexpr std::array<const char*, 3> kMembers = {kAdapterConfigFile, kAdapterModelFile, kCompleteFile};

int64_t padding_of(int64_t size) {
  return (kBlock - size % kBlock) % kBlock;
}

void put_octal(std::string& block, size_t offset, int digits, int64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
  block.replace(offset, static_cast<size_t>(digits), text, static_cast<size_t>(digits));
}

// The offsets are those of POSIX.1-2017, pax, "ustar Interchange Format".
std::string header_of(const std::string& name, char type, int64_t size, int64_t modified) {
  std::string block(kBlock, '\0');
  block.replace(0, name.size(), name);
  put_octal(block, 100, 7, 0644);  // mode
  put_octal(block, 108, 7, 0);     // owner
  put_octal(block, 116, 7, 0);     // group
  put_octal(block, 124, 11, size);
  put_octal(block, 136, 11, modified);
  block.replace(148, 8, 8, ' ');  // the checksum counts as blanks
  block[156] = type;
  block.replace(257, 6, "ustar", 6);
  block.replace(263, 2, "00");
  int64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put_octal(block, 148, 6, sum);
  block[154] = '\0';
  return block;
}

// Returns "<length> size=<size>\n"; the length includes its own digits.
std::string pax_size(int64_t size) {
  const std::string rest = " size=" + std::to_string(size) + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

std::string headers_of(const std::string& name, int64_t size, int64_t modified) {
  if (size <= kOctalMax) return header_of(name, '0', size, modified);
  const std::string record = pax_size(size);
  const auto record_size = static_cast<int64_t>(record.size());
  return header_of("PaxHeaders/" + name, 'x', record_size, modified) + record +
         std::string(static_cast<size_t>(padding_of(record_size)), '\0') + header_of(name, '0', 0, modified);
}

// A part of the archive: bytes in memory, or a file.
struct Part {
  std::string bytes;
  std::unique_ptr<CheckpointFile> file = nullptr;
  int64_t size = 0;
};

// The state of reading, separate from OpenArchive so that a read can finish after the archive is destroyed.
struct Tar {
  CheckpointStore::Ptr checkpoint;  // keeps the files
  ByteAccount::Hold place;
  std::vector<Part> parts;
  size_t part = 0;  // `part` and `offset` are used by one read at a time
  int64_t offset = 0;

  Result<std::string> read(size_t bytes_max);
};

Result<std::string> Tar::read(size_t bytes_max) {
  std::string piece;
  while (piece.size() < bytes_max && part < parts.size()) {
    const Part& from = parts[part];
    const auto wanted =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(bytes_max - piece.size()), from.size - offset));
    if (wanted == 0) {
      ++part;
      offset = 0;
      continue;
    }
    const size_t before = piece.size();
    if (from.file == nullptr) {
      piece.append(from.bytes, static_cast<size_t>(offset), wanted);
    } else {
      TUFT_ASSIGN(const std::string read, from.file->read(offset, wanted));
      piece += read;
    }
    offset += static_cast<int64_t>(piece.size() - before);
  }
  return piece;
}

std::string tar_name(const CheckpointPath& path) {
  return run_folder(path.run) + "_" + std::string(checkpoint_folder(path.kind)) + "_" + path.name + ".tar";
}

class OpenArchive final : public Archive {
 public:
  OpenArchive(std::shared_ptr<Tar> tar, std::string name, std::string_view type, UserId user, std::weak_ptr<void> alive,
              DiskWorker& disk)
      : tar_(std::move(tar)),
        name_(std::move(name)),
        type_(type),
        user_(std::move(user)),
        alive_(std::move(alive)),
        disk_(disk) {
    for (const Part& part : tar_->parts) size_ += part.size;
  }

  int64_t size_bytes() const override { return size_; }
  std::string file_name() const override { return name_; }
  std::string_view content_type() const override { return type_; }

  void read(size_t bytes_max, std::function<void(Result<std::string>)> done) override {
    const auto alive = alive_.lock();
    if (alive == nullptr) return done(shutting_down());
    const Status posted = disk_.post(user_, [tar = tar_, bytes_max, done] { done(tar->read(bytes_max)); });
    if (!posted.ok()) done(posted.error());
  }

 private:
  const std::shared_ptr<Tar> tar_;
  const std::string name_;
  const std::string_view type_;
  const UserId user_;
  const std::weak_ptr<void> alive_;
  DiskWorker& disk_;
  int64_t size_ = 0;
};

Part memory_part(std::string bytes) {
  Part part;
  part.size = static_cast<int64_t>(bytes.size());
  part.bytes = std::move(bytes);
  return part;
}

Result<Part> file_part(const Tar& tar, const std::string& name) {
  TUFT_ASSIGN(auto file, tar.checkpoint->files->open(name));
  const int64_t size = file->size_bytes();
  return Part{{}, std::move(file), size};
}

Status add_member(Tar& tar, const char* name, int64_t modified) {
  TUFT_ASSIGN(Part file, file_part(tar, name));
  const int64_t size = file.size;
  tar.parts.push_back(memory_part(headers_of(name, size, modified)));
  tar.parts.push_back(std::move(file));
  tar.parts.push_back(memory_part(std::string(static_cast<size_t>(padding_of(size)), '\0')));
  return {};
}

}  // namespace

Result<std::unique_ptr<Archive>> open_tar(const CheckpointStore::Ptr& checkpoint, const UserId& user,
                                          ByteAccount::Hold place, std::weak_ptr<void> alive, DiskWorker& disk) {
  auto tar = std::make_shared<Tar>();
  tar->checkpoint = checkpoint;
  tar->place = std::move(place);
  const Nanos created = parse_iso_time(checkpoint->created_at).value_or(0);
  for (const char* member : kMembers) TUFT_TRY(add_member(*tar, member, std::max<int64_t>(created / kSecond, 0)));
  tar->parts.push_back(memory_part(std::string(2 * kBlock, '\0')));
  return std::unique_ptr<Archive>(std::make_unique<OpenArchive>(std::move(tar), tar_name(checkpoint->path),
                                                                "application/x-tar", user, std::move(alive), disk));
}

Result<std::unique_ptr<Archive>> open_single(const CheckpointStore::Ptr& checkpoint, const std::string& name,
                                             const UserId& user, ByteAccount::Hold place, std::weak_ptr<void> alive,
                                             DiskWorker& disk) {
  auto tar = std::make_shared<Tar>();
  tar->checkpoint = checkpoint;
  tar->place = std::move(place);
  TUFT_ASSIGN(Part file, file_part(*tar, name));
  tar->parts.push_back(std::move(file));
  return std::unique_ptr<Archive>(
      std::make_unique<OpenArchive>(std::move(tar), name, "application/octet-stream", user, std::move(alive), disk));
}

}  // namespace tuft::control
