#include "back_end.h"

#include "engine/native/native_engine.h"
#ifdef TUFT_TORCH
#include "engine/torch/torch_engine.h"
#endif

namespace tuft::parity {
namespace {

engine::WeightsDtype dtype_of(Precision precision) {
  return precision == Precision::kFloat32 ? engine::WeightsDtype::kFloat32 : engine::WeightsDtype::kAuto;
}

Result<std::unique_ptr<engine::Engine>> make_native(const std::filesystem::path& model, const Wish& wish) {
  engine::NativeOptions options;
  options.threads = 2;
  options.weights_dtype = dtype_of(wish.precision);
  options.kv_bytes_max = wish.kv_bytes_max;
  return engine::make_native_engine(model, options);
}

#ifdef TUFT_TORCH
BackEnd torch_on(const std::string& name, const std::string& device, bool is_there) {
  const auto make = [device](const std::filesystem::path& model, const Wish& wish) {
    engine::TorchOptions options;
    options.device = device;
    options.threads = 1;
    options.weights_dtype = dtype_of(wish.precision);
    options.kv_bytes_max = wish.kv_bytes_max;
    return engine::make_torch_engine(model, options);
  };
  return {.name = name,
          .bitwise = false,
          .bf16_activations = device != "cpu",
          .make = make,
          .missing = is_there ? "" : "there is no " + device + " here: libtorch " + engine::describe_libtorch()};
}
#endif

}  // namespace

std::vector<BackEnd> back_ends() {
  std::vector<BackEnd> all = {
      {.name = "native", .bitwise = true, .bf16_activations = false, .make = make_native, .missing = ""}};
#ifdef TUFT_TORCH
  all.push_back(torch_on("torch_cpu", "cpu", true));
  all.push_back(torch_on("torch_cuda", "cuda:0", engine::torch_cuda_devices() > 0));
#endif
  return all;
}

}  // namespace tuft::parity
