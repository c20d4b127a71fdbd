#include "back_end.h"

#include "engine/native/native_engine.h"

namespace tuft::parity {
namespace {

BackEnd native(std::string name, bool fixed_shape) {
  const auto make = [fixed_shape](const std::filesystem::path& model, Precision precision) {
    engine::NativeOptions options;
    options.threads = 2;
    options.fixed_shape = fixed_shape;
    options.weights_dtype =
        precision == Precision::kFloat32 ? engine::WeightsDtype::kFloat32 : engine::WeightsDtype::kAuto;
    return engine::make_native_engine(model, options);
  };
  return {std::move(name), fixed_shape, make};
}

}  // namespace

std::vector<BackEnd> back_ends() {
  std::vector<BackEnd> all;
  all.push_back(native("native", false));
  all.push_back(native("native_fixed_shape", true));
  return all;
}

}  // namespace tuft::parity
