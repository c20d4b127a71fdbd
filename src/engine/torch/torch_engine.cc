#include "engine/torch/torch_engine.h"

#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "base/error.h"
#include "engine/back_end/assembled_engine.h"
#include "engine/torch/back_end.h"
#include "engine/torch/graph_capture.h"
#include "engine/torch/guarded.h"
#include "telemetry/log.h"

namespace tuft::engine {
namespace torch {
namespace {

at::ScalarType activations_type(const Placement& placement, WeightsDtype asked) {
  if (asked == WeightsDtype::kAuto) return placement.is_cuda() ? placement.weights : at::kFloat;
  return asked == WeightsDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

Status check_spec(const ModelSpec& spec) {
  const bool sizes = spec.vocab_size > 0 && spec.hidden_size > 0 && spec.intermediate_size > 0 && spec.layers > 0 &&
                     spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0 && spec.head_dim > 0 &&
                     spec.head_dim % 2 == 0;
  if (sizes) return {};
  return invalid_argument(
      "config.json: sizes must be positive, head_dim even, and num_attention_heads a multiple of "
      "num_key_value_heads",
      "model_config");
}

Result<std::unique_ptr<Engine>> make_engine(const ModelSpec& spec, const TensorSource& source, TorchOptions options) {
  TUFT_TRY(check_spec(spec));
  Placement placement;
  TUFT_ASSIGN(placement.device, parse_device(options.device));
  if (options.threads > 0) at::set_num_threads(options.threads);
  TUFT_ASSIGN(placement.weights, weights_type(source, options.weights_dtype));
  placement.activations = activations_type(placement, options.activations);
  const c10::OptionalDeviceGuard guard(placement.device);
  TUFT_ASSIGN(Weights weights, load_weights(spec, source, placement));
  if (options.plan_kv) {
    TUFT_ASSIGN(options.kv_bytes_max, options.plan_kv(spec, KvCache::bytes_per_token(spec, placement)));
  }
  auto engine = std::make_unique<AssembledEngine<BackEnd>>(spec, std::move(weights), placement, options);
  if (!engine->back_end().attention_problem().empty()) {
    telemetry::log_warning("engine.plain_attention",
                           "libtorch's fused attention is not used, only the slower plain attention: " +
                               engine->back_end().attention_problem(),
                           {{"tuft.device", options.device}});
  }
  if (options.capture_decode && no_graph_capture(placement)[0] != '\0') {
    telemetry::log_warning("engine.decode_not_recorded",
                           std::string("steps are launched operation by operation: ") + no_graph_capture(placement),
                           {{"tuft.device", options.device}});
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace
}  // namespace torch

Result<std::unique_ptr<Engine>> make_torch_engine(const ModelSpec& spec, const TensorSource& source,
                                                  const TorchOptions& options) {
  return torch::guarded("loading the base model", [&]() { return torch::make_engine(spec, source, options); });
}

int64_t torch_captured_steps(const Engine& engine) {
  return static_cast<const AssembledEngine<torch::BackEnd>&>(engine).back_end().captured_steps();
}

Result<std::unique_ptr<Engine>> make_torch_engine(const std::filesystem::path& model_directory,
                                                  const TorchOptions& options) {
  TUFT_ASSIGN(const ModelSpec spec, load_model_spec(model_directory));
  TUFT_ASSIGN(const auto files, TensorFiles::open_model(model_directory));
  return make_torch_engine(spec, FileSource(*files), options);
}

}  // namespace tuft::engine
