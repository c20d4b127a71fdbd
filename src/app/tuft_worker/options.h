// The command line of tuft-worker.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bucket/settings.h"
#include "engine/init_model.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::app {

// How a worker joins a server of another machine.
struct JoinFlags {
  std::string address;  // HOST:PORT, or several with commas between them; empty: the worker was started by its server
  std::filesystem::path token_file;
  std::filesystem::path authority;    // that signed the server's certificate
  std::filesystem::path certificate;  // the worker's own; may be empty
  std::filesystem::path private_key;
  int drain_seconds = 25;  // how long it still serves after SIGTERM, so that its server can save what it holds
};

struct WorkerFlags {
  JoinFlags join;
  // Of checkpoints. Not a flag, because it has secrets: the server passes it. Absent: checkpoints are in directories.
  std::optional<bucket::Settings> bucket;
  std::filesystem::path model_path;
  std::string model_name;
  std::filesystem::path socket;
  std::string traceparent;  // of the parent span of the start; empty: none
  int parent_pid = 0;       // the worker ends when this process ends; 0: no such process
  int max_model_len = 0;    // 0: the maximum of the model
  int train_batch_tokens = 512;
  int sample_batch_tokens = 256;
  int max_lora_rank = 256;
  int threads = 0;
  int64_t kv_cache_bytes = 0;            // 0: half of this worker's share of the free memory
  int64_t adapter_memory_bytes = 0;      // 0: half of the rest of that share
  int64_t adapter_page_bytes = 0;        // limit of the page files; 0: none
  std::filesystem::path page_directory;  // of paged adapters, and of copies of checkpoints in a bucket; empty: that of
                                         // temporary files
  double memory_share = 1.0;             // of the free memory of the machine
  int training_share = 50;               // percent
  std::string backend = "native";
  std::string device = "cpu";
  bool cuda_graphs = true;  // on a GPU
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
  int exit_code = 0;  // kExit: the message has been printed
  WorkerFlags worker;
  std::vector<std::string> arguments;  // the command line without the program's name
  InitModelFlags init_model;
};

Command parse_command(int argc, const char* const* argv);

// Parses the flags of a server that the worker has joined, and after them the worker's own `arguments`, which win.
Result<WorkerFlags> merge_flags(const std::vector<std::string>& of_server, const std::vector<std::string>& arguments);

Result<engine::WeightsDtype> parse_weights_dtype(const std::string& text);

}  // namespace tuft::app
