#include "engine/native/native_engine.h"

#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/back_end/assembled_engine.h"
#include "engine/native/back_end.h"
#include "engine/native/from_tensors.h"

namespace tuft::engine {
namespace native {
namespace {

bool cpu_is_supported() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

Status check_spec(const ModelSpec& spec) {
  const bool sizes = spec.vocab_size > 0 && spec.hidden_size > 0 && spec.intermediate_size > 0 && spec.layers > 0 &&
                     spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0;
  if (!sizes) {
    return invalid_argument(
        "config.json: sizes must be positive and num_attention_heads a multiple of "
        "num_key_value_heads",
        "model_config");
  }
  if (spec.head_dim < 2 || spec.head_dim % 2 != 0 || spec.head_dim > kHeadDimMax) {
    return Error{ErrorCode::kUnimplemented,
                 "config.json: head_dim must be even and at most " + std::to_string(kHeadDimMax), "model_config"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(const ModelSpec& spec, const TensorSource& source,
                                            NativeOptions options) try {
  if (!cpu_is_supported()) {
    return Error{ErrorCode::kUnimplemented, "this CPU has no AVX2 with FMA, which the native engine needs", "cpu"};
  }
  TUFT_TRY(check_spec(spec));
  auto pool = std::make_unique<ThreadPool>(options.threads);
  TUFT_ASSIGN(Weights weights, load_weights(spec, source, options.weights_dtype, *pool));
  if (options.plan_kv) {
    TUFT_ASSIGN(options.kv_bytes_max, options.plan_kv(spec));
  }
  return std::unique_ptr<Engine>(
      std::make_unique<AssembledEngine<BackEnd>>(std::move(pool), spec, std::move(weights), options));
} catch (const std::bad_alloc&) {
  return Error{ErrorCode::kResourceExhausted,
               "not enough memory for the base model's weights: use a smaller model or weights_dtype bf16", "memory"};
}

}  // namespace native

Result<std::unique_ptr<Engine>> make_native_engine(const std::filesystem::path& model_directory,
                                                   const NativeOptions& options) {
  TUFT_ASSIGN(const ModelSpec spec, load_model_spec(model_directory));
  TUFT_ASSIGN(const auto files, TensorFiles::open_model(model_directory));
  return native::make_engine(spec, FileSource(*files), options);
}

}  // namespace tuft::engine
