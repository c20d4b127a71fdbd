// Reads safetensors files, as of base models and checkpoints.
#include "engine/weights/safetensors.h"

#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("fuzz", 0);
  tuft::fuzz::require(file >= 0 && write(file, data, size) == static_cast<ssize_t>(size));
  {
    const auto tensors = tuft::engine::TensorFiles::open_file("/proc/self/fd/" + std::to_string(file));
    if (tensors.ok()) {
      for (const std::string& name : (*tensors)->names()) {
        const auto tensor = (*tensors)->find(name);
        if (!tensor.ok()) {
          tuft::fuzz::require(tensor.error().reason == "unsupported_dtype");
          continue;
        }
        const auto values = tensor->to_float();
        if (values.ok()) tuft::fuzz::require(static_cast<int64_t>(values->size()) == tensor->elements());
      }
    }
  }
  close(file);
  return 0;
}
