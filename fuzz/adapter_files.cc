// Reads the directory of a checkpoint. The input is the size of adapter_config.json in two bytes, that file, and
// adapter_model.safetensors.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model_spec.h"
#include "target.h"

namespace engine = tuft::engine;

namespace {

const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "tuft-fuzz-XXXXXX").string();
    tuft::fuzz::require(::mkdtemp(name.data()) != nullptr);
    const std::ofstream marker(name + "/checkpoint_complete");
    return std::filesystem::path(name);
  }();
  static const struct Cleaner {
    ~Cleaner() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } cleaner;
  return path;
}

engine::ModelSpec model() {
  engine::ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 8;
  spec.hidden_size = 4;
  spec.intermediate_size = 4;
  spec.layers = 1;
  spec.heads = 1;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.max_position = 8;
  return spec;
}

void write(const char* name, std::string_view bytes) {
  std::ofstream(folder() / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes = tuft::fuzz::text_of(data + 2, size - 2);
  const size_t config = std::min<size_t>(static_cast<size_t>(data[0]) << 8 | data[1], bytes.size());
  write("adapter_config.json", bytes.substr(0, config));
  write("adapter_model.safetensors", bytes.substr(config));
  const auto state = engine::read_checkpoint(folder(), model(), false);
  if (state.ok()) tuft::fuzz::require(!state->tensors.empty());
  return 0;
}
