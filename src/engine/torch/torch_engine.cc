#include "engine/torch/torch_engine.h"

#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "base/error.h"
#include "engine/torch/engine_impl.h"
#include "engine/torch/guarded.h"
#include "engine/torch/recording.h"
#include "telemetry/log.h"

namespace tuft::engine {
namespace torch {
namespace {

at::ScalarType activations_type(const Place& place, WeightsDtype asked) {
  if (asked == WeightsDtype::kAuto) return place.is_cuda() ? place.weights : at::kFloat;
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
  Place place;
  TUFT_ASSIGN(place.device, parse_device(options.device));
  if (options.threads > 0) at::set_num_threads(options.threads);
  TUFT_ASSIGN(place.weights, weights_type(source, options.weights_dtype));
  place.activations = activations_type(place, options.activations);
  const c10::OptionalDeviceGuard guard(place.device);
  TUFT_ASSIGN(Weights weights, load_weights(spec, source, place));
  if (options.plan_kv) {
    TUFT_ASSIGN(options.kv_bytes_max, options.plan_kv(spec, KvCache::bytes_per_token(spec, place)));
  }
  auto engine = std::make_unique<TorchEngine>(spec, std::move(weights), place, options);
  if (!engine->attention_problem().empty()) {
    telemetry::log_warning(
        "engine.plain_attention",
        "the library's fused attention is not used, only the slower plain one: " + engine->attention_problem(),
        {{"tuft.device", options.device}});
  }
  if (options.record_decode && no_recording(place)[0] != '\0') {
    telemetry::log_warning("engine.decode_not_recorded",
                           std::string("steps are launched operation by operation: ") + no_recording(place),
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

int64_t torch_recorded_steps(const Engine& engine) {
  return static_cast<const torch::TorchEngine&>(engine).recorded_steps();
}

Result<std::unique_ptr<Engine>> make_torch_engine(const std::filesystem::path& model_directory,
                                                  const TorchOptions& options) {
  TUFT_ASSIGN(const ModelSpec spec, load_model_spec(model_directory));
  TUFT_ASSIGN(const auto files, TensorFiles::open_model(model_directory));
  return make_torch_engine(spec, FileSource(*files), options);
}

}  // namespace tuft::engine
