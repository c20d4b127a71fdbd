// What the flags of tuft-worker say.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/init_model.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::app {

struct WorkerFlags {
  std::filesystem::path model_path;
  std::string model_name;
  std::filesystem::path socket;
  std::string traceparent;  // of the start; empty: none
  int parent_pid = 0;       // ends with this process; 0: with nobody
  int max_model_len = 0;    // 0: what the model allows
  int train_batch_tokens = 512;
  int sample_batch_tokens = 256;
  int max_lora_rank = 256;
  int threads = 0;
  int64_t kv_cache_bytes = 0;            // 0: half of the free memory that is this worker's
  int64_t adapter_memory_bytes = 0;      // 0: half of what is left of that
  std::filesystem::path page_directory;  // of adapters that do not fit; empty: that of temporary files
  double memory_share = 1.0;             // of the machine
  int training_share = 50;               // percent
  std::string backend = "native";
  std::string device = "cpu";
  bool cuda_graphs = false;
  std::string weights_dtype = "auto";
  std::string log_level = "info";
  std::string log_format = "text";
};

struct InitModelFlags {
  std::filesystem::path directory;
  engine::InitModelOptions options;
};

struct Command {
  enum class Kind : uint8_t { kServe, kInitModel, kExit };
  Kind kind = Kind::kExit;
  int exit_code = 0;  // kExit: the message is printed already
  WorkerFlags worker;
  InitModelFlags init_model;
};

Command parse_command(int argc, const char* const* argv);

Result<engine::WeightsDtype> parse_weights_dtype(const std::string& text);

}  // namespace tuft::app
