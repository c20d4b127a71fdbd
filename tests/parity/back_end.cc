#include "back_end.h"

#include "engine/native/native_engine.h"

namespace tuft::parity {
namespace {

Result<std::unique_ptr<engine::Engine>> make_native(const std::filesystem::path& model, Precision precision) {
  engine::NativeOptions options;
  options.threads = 2;
  options.weights_dtype =
      precision == Precision::kFloat32 ? engine::WeightsDtype::kFloat32 : engine::WeightsDtype::kAuto;
  return engine::make_native_engine(model, options);
}

}  // namespace

std::vector<BackEnd> back_ends() {
  return {{"native", true, make_native}};
}

}  // namespace tuft::parity
