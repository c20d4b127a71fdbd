#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/json_fields.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {
namespace {

const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "F32";
    case Dtype::kBfloat16:
      return "BF16";
    case Dtype::kFloat16:
      return "F16";
    case Dtype::kInt64:
      return "I64";
    case Dtype::kInt32:
      return "I32";
  }
  return "";
}

Error system_error(const char* what, const std::filesystem::path& file) {
  return file_error(what, file, errno);
}

Status write_all(int fd, const void* data, size_t size, const std::filesystem::path& file) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("write", file);
    at += written;
    size -= static_cast<size_t>(written);
  }
  return {};
}

void check_tensor(const NamedTensor& tensor) {
  TensorView view;
  view.shape = tensor.shape;
  TUFT_CHECK(static_cast<size_t>(view.elements()) * dtype_size(tensor.dtype) == tensor.data.size(),
             "write_safetensors: data and shape differ");
}

std::string make_header(const std::vector<const NamedTensor*>& order,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const NamedTensor* tensor : order) {
    const uint64_t end = at + tensor->data.size();
    header[tensor->name] = {
        {"dtype", dtype_name(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Status write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) {
    check_tensor(tensor);
    order.push_back(&tensor);
  }
  // Tensors with wide elements come first, so that every tensor in the file is aligned to its element size.
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* l, const NamedTensor* r) {
    return dtype_size(l->dtype) > dtype_size(r->dtype);
  });
  const std::string header = make_header(order, metadata);
  const uint64_t header_size = header.size();

  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("create", file);
  Status written = write_all(fd, &header_size, sizeof header_size, file);
  if (written.ok()) written = write_all(fd, header.data(), header.size(), file);
  for (const NamedTensor* tensor : order) {
    if (written.ok()) written = write_all(fd, tensor->data.data(), tensor->data.size(), file);
  }
  if (written.ok() && ::fsync(fd) != 0) written = system_error("sync", file);
  if (::close(fd) != 0 && written.ok()) written = system_error("close", file);
  return written;
}

}  // namespace tuft::engine
