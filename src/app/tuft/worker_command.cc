#include "app/tuft/worker_command.h"

#include <algorithm>
#include <system_error>

namespace tuft::app {
namespace {

std::string_view dtype_name(config::WeightsDtype dtype) {
  switch (dtype) {
    case config::WeightsDtype::kAuto:
      return "auto";
    case config::WeightsDtype::kFloat32:
      return "f32";
    case config::WeightsDtype::kBfloat16:
      return "bf16";
  }
  return "auto";
}

// Returns the number of workers that the server starts itself, of models for which `is_counted` is true.
template <typename IsCounted>
int count_workers(const config::ServerConfig& config, IsCounted is_counted) {
  int count = 0;
  for (const config::ModelConfig& model : config.supported_models) {
    if (model.worker == config::WorkerKind::kLocal && is_counted(model)) count += model.workers;
  }
  return count;
}

// The flags that the configuration of a model gives to a worker on any machine.
std::vector<std::string> common_flags(const config::ModelConfig& model) {
  return {
      "--model-name",
      model.model_name,
      "--max-model-len",
      std::to_string(model.max_model_len),
      "--train-batch-tokens",
      std::to_string(model.train_batch_tokens),
      "--sample-batch-tokens",
      std::to_string(model.sample_batch_tokens),
      "--weights-dtype",
      std::string(dtype_name(model.weights_dtype)),
      "--backend",
      model.backend == config::BackEnd::kTorch ? "torch" : "native",
      "--device",
      model.device,
      "--cuda-graphs",
      model.cuda_graphs ? "true" : "false",
      "--kv-cache-bytes",
      std::to_string(model.kv_cache_bytes),
      "--adapter-memory-bytes",
      std::to_string(model.adapter_memory_bytes),
      "--adapter-page-bytes",
      std::to_string(model.adapter_page_bytes),
      "--training-share",
      std::to_string(model.training_share),
      "--max-lora-rank",
      std::to_string(model.max_lora_rank),
  };
}

}  // namespace

Result<std::filesystem::path> worker_executable() {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return internal_error("cannot find the program's own path: " + failure.message());
  std::filesystem::path worker = self.parent_path() / "tuft-worker";
  if (!std::filesystem::is_regular_file(worker, failure)) {
    return not_found("there is no " + worker.string() + "; tuft-worker must be in the directory of tuft", "no_worker");
  }
  return worker;
}

int local_workers_of(const config::ServerConfig& config) {
  return count_workers(config, [](const config::ModelConfig&) { return true; });
}

int threads_per_worker(int cores, int workers) {
  return std::max(1, cores / std::max(1, workers));
}

actor::WorkerSpec worker_spec(const config::ServerConfig& config, const config::ModelConfig& model,
                              const std::filesystem::path& executable, const std::filesystem::path& socket_directory,
                              int threads) {
  actor::WorkerSpec spec;
  spec.base_model = model.model_name;
  spec.executable = executable;
  spec.socket_directory = socket_directory;
  spec.arguments = common_flags(model);
  const auto is_there = [&](const config::ModelConfig& other) { return other.device == model.device; };
  const double sharing = std::max(1, count_workers(config, is_there));  // the memory of the device
  spec.arguments.insert(spec.arguments.end(),
                        {"--model-path", model.model_path.string(), "--threads",
                         std::to_string(model.threads > 0 ? model.threads : threads), "--page-directory",
                         (config.home / "pages").string(), "--memory-share", std::to_string(1.0 / sharing),
                         "--log-level", config.log_level, "--log-format", config.log_format});
  return spec;
}

std::vector<std::string> joined_worker_flags(const config::ModelConfig& model) {
  std::vector<std::string> flags = common_flags(model);
  if (model.threads > 0) flags.insert(flags.end(), {"--threads", std::to_string(model.threads)});
  return flags;
}

}  // namespace tuft::app
