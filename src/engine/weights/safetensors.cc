#include "engine/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/file.h"
#include "engine/json_fields.h"
#include "engine/weights/float_convert.h"

namespace tuft::engine {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian; so are the machines we run on");

constexpr size_t kHeaderBytesMax = 100 << 20;  // the format's own limit
constexpr size_t kIndexBytesMax = 100 << 20;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

struct DtypeFacts {
  const char* name;
  size_t size;
  bool supported;
  Dtype dtype;
};

// A file may contain tensors of unsupported types if nobody reads them.
constexpr DtypeFacts kDtypes[] = {
    {"F32", 4, true, Dtype::kFloat32},   {"BF16", 2, true, Dtype::kBfloat16},    {"F16", 2, true, Dtype::kFloat16},
    {"I64", 8, true, Dtype::kInt64},     {"I32", 4, true, Dtype::kInt32},        {"F64", 8, false, Dtype::kFloat32},
    {"U64", 8, false, Dtype::kFloat32},  {"U32", 4, false, Dtype::kFloat32},     {"I16", 2, false, Dtype::kFloat32},
    {"U16", 2, false, Dtype::kFloat32},  {"I8", 1, false, Dtype::kFloat32},      {"U8", 1, false, Dtype::kFloat32},
    {"BOOL", 1, false, Dtype::kFloat32}, {"F8_E4M3", 1, false, Dtype::kFloat32}, {"F8_E5M2", 1, false, Dtype::kFloat32},
};

struct Entry {
  const DtypeFacts* facts = nullptr;
  TensorView view;
  int fd = -1;  // of its file, which is open as long as the mapping lives
  uint64_t offset = 0;
};

Error torn(const std::filesystem::path& file, const std::string& what) {
  return data_loss(file.string() + ": " + what + "; the file is torn or is not a safetensors file; download it again",
                   "bad_safetensors");
}

Status read_all(int fd, uint64_t offset, void* to, size_t size, const std::filesystem::path& file) {
  const ssize_t got = read_at(fd, offset, to, size);
  if (got < 0) return file_error("read", file, errno);
  if (got < static_cast<ssize_t>(size)) return torn(file, "it has become shorter while it was read");
  return {};
}

// One read-only mapping of a whole file, which stays open.
class Mapping {
 public:
  static Result<Mapping> open(const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const int code = errno;
      return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal,
                   "cannot open " + file.string() + ": " + std::strerror(code), "io"};
    }
    struct stat facts {};
    const bool regular = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    const auto size = regular ? static_cast<size_t>(facts.st_size) : 0;
    void* address = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    const int code = errno;
    if (address == MAP_FAILED) ::close(fd);
    if (!regular) return torn(file, "it is not a regular file");
    if (size == 0) return torn(file, "it is empty");
    if (address == MAP_FAILED) return internal_error("cannot map " + file.string() + ": " + std::strerror(code), "io");
    return Mapping(static_cast<const std::byte*>(address), size, fd);
  }

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_), fd_(std::exchange(other.fd_, -1)) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    if (fd_ >= 0) ::close(fd_);
  }

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int fd() const { return fd_; }

 private:
  Mapping(const std::byte* data, size_t size, int fd) : data_(data), size_(size), fd_(fd) {}

  const std::byte* data_;
  size_t size_;
  int fd_;
};

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  const std::string* name = nullptr;
};

bool to_unsigned(const Json& value, uint64_t* out) {
  if (!value.is_number_unsigned()) return false;
  *out = value.get<uint64_t>();
  return true;
}

// One member of the header, such as {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}.
Result<Range> parse_entry(const std::filesystem::path& file, const std::string& name, const Json& json,
                          std::span<const std::byte> data, Entry& out) {
  const auto bad = [&](const std::string& what) { return torn(file, "tensor '" + name + "': " + what); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    return bad("it must have dtype, shape and data_offsets");
  }
  const Json& dtype = json["dtype"];
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  for (const DtypeFacts& facts : kDtypes) {
    if (dtype.is_string() && dtype.get_ref<const std::string&>() == facts.name) out.facts = &facts;
  }
  if (out.facts == nullptr) return bad("its dtype is unknown");

  uint64_t bytes = out.facts->size;
  if (!shape.is_array()) return bad("its shape must be a list");
  for (const Json& dimension : shape) {
    uint64_t extent = 0;
    if (!to_unsigned(dimension, &extent) || extent > INT64_MAX) return bad("its shape must hold sizes only");
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return bad("its shape is too large");
    out.view.shape.push_back(static_cast<int64_t>(extent));
  }
  Range range;
  range.name = &name;
  if (!offsets.is_array() || offsets.size() != 2 || !to_unsigned(offsets[0], &range.begin) ||
      !to_unsigned(offsets[1], &range.end)) {
    return bad("its data_offsets must be two sizes");
  }
  if (range.begin > range.end || range.end > data.size()) {
    return bad("its data [" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ") lies outside the " +
               std::to_string(data.size()) + " bytes of data");
  }
  if (range.end - range.begin != bytes) {
    return bad("it has " + std::to_string(range.end - range.begin) + " bytes, its shape and dtype need " +
               std::to_string(bytes));
  }
  out.view.dtype = out.facts->dtype;
  out.view.data = data.subspan(range.begin, bytes);
  return range;
}

// The format allows no overlap and no hole. This check also finds bytes appended to a file.
Status check_layout(const std::filesystem::path& file, std::vector<Range> ranges, size_t size) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& l, const Range& r) { return std::pair(l.begin, l.end) < std::pair(r.begin, r.end); });
  uint64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin < at) return torn(file, "tensor '" + *range.name + "' overlaps another one");
    if (range.begin > at) return torn(file, "there is a hole before tensor '" + *range.name + "'");
    at = range.end;
  }
  if (at != size) return torn(file, std::to_string(size - at) + " bytes at its end belong to no tensor");
  return {};
}

class OneFile {
 public:
  static Result<OneFile> open(const std::filesystem::path& file) {
    TUFT_ASSIGN(Mapping mapping, Mapping::open(file));
    OneFile out(std::move(mapping));
    TUFT_TRY(out.parse(file));
    return out;
  }

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  explicit OneFile(Mapping mapping) : mapping_(std::move(mapping)) {}

  Status parse(const std::filesystem::path& file) {
    const std::span<const std::byte> bytes = mapping_.bytes();
    uint64_t header_size = 0;
    if (bytes.size() < sizeof header_size) return torn(file, "it is shorter than its 8-byte length");
    TUFT_TRY(read_all(mapping_.fd(), 0, &header_size, sizeof header_size, file));
    if (header_size > kHeaderBytesMax) return torn(file, "its header claims more than 100 MiB");
    if (header_size > bytes.size() - sizeof header_size) return torn(file, "its header reaches beyond its end");
    std::string text(header_size, '\0');
    TUFT_TRY(read_all(mapping_.fd(), sizeof header_size, text.data(), text.size(), file));
    if (!text.starts_with('{')) return torn(file, "its header does not begin with '{'");
    auto header = parse_json_object(text, "its header");
    if (!header.ok()) return torn(file, header.error().message);

    const auto data = bytes.subspan(sizeof header_size + header_size);
    std::vector<Range> ranges;
    for (const auto& [name, json] : header->items()) {
      if (name == "__metadata__") {
        TUFT_TRY(parse_metadata(file, json));
        continue;
      }
      const auto place = entries_.emplace(name, Entry{}).first;
      TUFT_ASSIGN(const Range range, parse_entry(file, place->first, json, data, place->second));
      place->second.fd = mapping_.fd();
      place->second.offset = sizeof header_size + header_size + range.begin;
      ranges.push_back(range);
    }
    return check_layout(file, std::move(ranges), data.size());
  }

  Status parse_metadata(const std::filesystem::path& file, const Json& json) {
    if (!json.is_object()) return torn(file, "__metadata__ must be an object");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) return torn(file, "__metadata__ must hold strings only");
      metadata_.emplace(key, value.get<std::string>());
    }
    return {};
  }

  Mapping mapping_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

class MappedTensors final : public TensorFiles {
 public:
  explicit MappedTensors(std::filesystem::path origin) : origin_(std::move(origin)) {}

  void set_metadata(const std::map<std::string, std::string>& metadata) { metadata_ = metadata; }
  OneFile& add(OneFile file) { return files_.emplace_back(std::move(file)); }
  void name(const std::string& name, const Entry& entry) { entries_.emplace(name, &entry); }

  Result<TensorView> find(const std::string& name) const override {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
      return not_found("no tensor '" + name + "' in " + origin_.string(), "tensor_missing");
    }
    const Entry& entry = *found->second;
    if (!entry.facts->supported) {
      return Error{ErrorCode::kUnimplemented,
                   "tensor '" + name + "' in " + origin_.string() + " has dtype " + entry.facts->name +
                       "; only F32, BF16 and F16 weights are supported",
                   "unsupported_dtype"};
    }
    return entry.view;
  }
  Result<std::vector<float>> read(const std::string& name) const override {
    TUFT_ASSIGN(TensorView view, find(name));
    const Entry& entry = *entries_.find(name)->second;
    if (view.dtype == Dtype::kFloat32) {
      std::vector<float> values(static_cast<size_t>(view.elements()));
      TUFT_TRY(read_all(entry.fd, entry.offset, values.data(), view.data.size(), origin_));
      return values;
    }
    std::vector<std::byte> bytes(view.data.size());
    TUFT_TRY(read_all(entry.fd, entry.offset, bytes.data(), bytes.size(), origin_));
    view.data = bytes;
    return view.to_float();
  }
  bool contains(const std::string& name) const override { return entries_.contains(name); }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }

 private:
  std::filesystem::path origin_;
  std::map<std::string, std::string> metadata_;
  std::vector<OneFile> files_;
  std::map<std::string, const Entry*> entries_;  // point into files_, whose map nodes do not move
};

// A shard lies beside the index. An index from elsewhere must not lead outside the directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos && name != "." &&
         name != "..";
}

Result<std::map<std::string, std::string>> read_index(const std::filesystem::path& path) {
  TUFT_ASSIGN(const std::string text, read_file(path, kIndexBytesMax));
  auto index = parse_json_object(text, path.string());
  if (!index.ok()) return data_loss(index.error().message, "bad_index");
  const auto weight_map = index->find("weight_map");
  if (weight_map == index->end() || !weight_map->is_object() || weight_map->empty()) {
    return data_loss(path.string() + ": weight_map is missing or empty", "bad_index");
  }
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return data_loss(path.string() + ": weight_map has for '" + tensor + "' something that is not a file beside it",
                       "bad_index");
    }
    out.emplace(tensor, file.get<std::string>());
  }
  return out;
}

Result<std::unique_ptr<TensorFiles>> open_sharded(const std::filesystem::path& directory) {
  TUFT_ASSIGN(const auto index, read_index(directory / kIndexFile));
  auto out = std::make_unique<MappedTensors>(directory);
  std::map<std::string, std::map<std::string, const Entry*>> shards;
  for (const auto& [tensor, shard] : index) {
    auto [place, fresh] = shards.try_emplace(shard);
    if (fresh) {
      auto opened = OneFile::open(directory / shard);
      if (!opened.ok() && opened.error().code == ErrorCode::kNotFound) {
        return data_loss(directory.string() + ": " + kIndexFile + " names " + shard + ", which is not there",
                         "bad_index");
      }
      if (!opened.ok()) return std::move(opened).error();
      const OneFile& file = out->add(std::move(opened).value());
      for (const auto& [name, entry] : file.entries()) place->second.emplace(name, &entry);
    }
    const auto found = place->second.find(tensor);
    if (found == place->second.end()) {
      return data_loss(
          directory.string() + ": " + kIndexFile + " says that " + shard + " holds '" + tensor + "'; it does not",
          "bad_index");
    }
    out->name(tensor, *found->second);
  }
  return std::unique_ptr<TensorFiles>(std::move(out));
}

}  // namespace

size_t dtype_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kBfloat16:
    case Dtype::kFloat16:
      return 2;
    case Dtype::kInt64:
      return 8;
  }
  return 0;
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Result<std::vector<float>> TensorView::to_float() const {
  if (dtype == Dtype::kInt64 || dtype == Dtype::kInt32) {
    return invalid_argument("an integer tensor was given where weights are expected", "bad_dtype");
  }
  std::vector<float> out(static_cast<size_t>(elements()));
  if (dtype == Dtype::kFloat32) {
    if (!out.empty()) std::memcpy(out.data(), data.data(), data.size());
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof bits, sizeof bits);
    out[i] = dtype == Dtype::kBfloat16 ? bfloat16_to_float(bits) : float16_to_float(bits);
  }
  return out;
}

Result<std::unique_ptr<TensorFiles>> TensorFiles::open_file(const std::filesystem::path& file) {
  TUFT_ASSIGN(OneFile opened, OneFile::open(file));
  auto out = std::make_unique<MappedTensors>(file);
  const OneFile& kept = out->add(std::move(opened));
  out->set_metadata(kept.metadata());
  for (const auto& [name, entry] : kept.entries()) out->name(name, entry);
  return std::unique_ptr<TensorFiles>(std::move(out));
}

Result<std::unique_ptr<TensorFiles>> TensorFiles::open_model(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (std::filesystem::exists(directory / kModelFile, ignored)) return open_file(directory / kModelFile);
  if (std::filesystem::exists(directory / kIndexFile, ignored)) return open_sharded(directory);
  return not_found(directory.string() + " holds neither " + kModelFile + " nor " + kIndexFile +
                       "; other formats are not supported; save the model with safe_serialization=True",
                   "weights_missing");
}

}  // namespace tuft::engine
