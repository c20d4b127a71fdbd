#include "worker/adapter_page.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/file.h"

namespace tuft::worker {
namespace {

using engine::AdapterState;

// Visits all values of a state in a fixed order.
template <typename State, typename Visit>
void for_each_values(State& state, const Visit& visit) {
  for (auto* tensors : {&state.tensors, &state.moments.first, &state.moments.second, &state.gradients}) {
    for (auto& tensor : *tensors) {
      visit(tensor.a);
      visit(tensor.b);
    }
  }
}

uint64_t add_to_checksum(uint64_t sum, const std::vector<float>& values) {
  constexpr uint64_t kPrime = 1099511628211ULL;  // of FNV-1a
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    sum = (sum ^ bits) * kPrime;
  }
  return sum;
}

Error failed(const char* what) {
  return internal_error(std::string("cannot ") + what + " the page file of an adapter: " +
                        std::generic_category().message(errno) + "; see adapter_page_bytes and the disk of TUFT_HOME");
}

Result<int> unnamed_file(const std::filesystem::path& directory) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  std::string path = (directory / "page-XXXXXX").string();
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return failed("make");
  ::unlink(path.c_str());
  return file;
}

Status write_all(int file, const std::vector<float>& values) {
  const auto* at = reinterpret_cast<const char*>(values.data());
  size_t left = values.size() * sizeof(float);
  while (left > 0) {
    const ssize_t count = ::write(file, at, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write");
    at += count;
    left -= static_cast<size_t>(count);
  }
  return {};
}

Status read_all(int file, int64_t& offset, std::vector<float>& values) {
  const auto size = static_cast<ssize_t>(values.size() * sizeof(float));
  const ssize_t got = read_at(file, static_cast<uint64_t>(offset), values.data(), static_cast<size_t>(size));
  if (got < 0) return failed("read");
  if (got < size) return data_loss("the page file of an adapter is too short", "adapter_page_lost");
  offset += size;
  return {};
}

}  // namespace

AdapterPage::~AdapterPage() {
  if (file_ >= 0) ::close(file_);
}

Status AdapterPage::write(const std::filesystem::path& directory, const AdapterState& state) {
  TUFT_ASSIGN(file_, unnamed_file(directory));
  Status status;
  for_each_values(state, [&](const std::vector<float>& values) {
    if (status.ok()) status = write_all(file_, values);
    checksum_ = add_to_checksum(checksum_, values);
    bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
    sizes_.push_back(values.size());
  });
  shape_.spec = state.spec;
  shape_.optimizer = state.optimizer;
  shape_.has_optimizer = state.has_optimizer;
  shape_.moments.step = state.moments.step;
  const auto copy_places = [](const std::vector<engine::LoraTensor>& from, std::vector<engine::LoraTensor>& to) {
    for (const engine::LoraTensor& tensor : from) to.push_back({tensor.module, tensor.layer, {}, {}});
  };
  copy_places(state.tensors, shape_.tensors);
  copy_places(state.moments.first, shape_.moments.first);
  copy_places(state.moments.second, shape_.moments.second);
  copy_places(state.gradients, shape_.gradients);
  return status;
}

Result<AdapterState> AdapterPage::read() const {
  if (file_ < 0) return data_loss("the page of an adapter was never written", "adapter_page_lost");
  AdapterState state = shape_;
  Status status;
  int64_t offset = 0;
  uint64_t checksum = 0;
  size_t index = 0;
  for_each_values(state, [&](std::vector<float>& values) {
    values.resize(sizes_[index++]);
    if (status.ok()) status = read_all(file_, offset, values);
    checksum = add_to_checksum(checksum, values);
  });
  TUFT_TRY(status);
  if (checksum != checksum_) return data_loss("the page file of an adapter has changed", "adapter_page_lost");
  return state;
}

}  // namespace tuft::worker
