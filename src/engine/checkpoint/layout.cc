#include "engine/checkpoint/layout.h"

namespace tuft::engine {

std::string module_name(TargetModule module, int layer) {
  std::string name(module_name(module));
  switch (module) {
    case TargetModule::kLmHead:
      return "base_model.model." + name;
    case TargetModule::kQ:
    case TargetModule::kK:
    case TargetModule::kV:
    case TargetModule::kO:
      return "base_model.model.model.layers." + std::to_string(layer) + ".self_attn." + name;
    case TargetModule::kGate:
    case TargetModule::kUp:
    case TargetModule::kDown:
      return "base_model.model.model.layers." + std::to_string(layer) + ".mlp." + name;
  }
  return name;
}

std::string optimizer_format(Optimizer optimizer) {
  return optimizer == Optimizer::kDimuon ? "tuft.dimuon.v1" : "tuft.adam.v1";
}

std::optional<Optimizer> optimizer_of_format(std::string_view format) {
  for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kDimuon}) {
    if (optimizer_format(optimizer) == format) return optimizer;
  }
  return std::nullopt;
}

MomentPrefixes moment_prefixes(Optimizer optimizer) {
  return optimizer == Optimizer::kDimuon ? MomentPrefixes{"momentum.", ""} : MomentPrefixes{"first.", "second."};
}

std::vector<int64_t> shape_of_a(const LoraSpec& spec, const LoraLayer& place) {
  return {spec.rank, place.in};
}

std::vector<int64_t> shape_of_b(const LoraSpec& spec, const LoraLayer& place) {
  return {place.out, spec.rank};
}

Status check_tensors(const ModelSpec& model, const LoraSpec& spec, const std::vector<LoraTensor>& tensors,
                     const std::string& what) {
  const std::vector<LoraLayer> places = lora_layers(model, spec);
  if (spec.rank < 1 || places.empty()) {
    return invalid_argument(what + ": an adapter needs a rank of at least 1 and a layer to train", "bad_adapter");
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (i < tensors.size() && fits(tensors[i], places[i], spec.rank)) continue;
    return invalid_argument(
        what + ": the tensors of " + module_name(places[i].module, places[i].layer) + " are missing or of another size",
        "bad_adapter");
  }
  if (places.size() == tensors.size()) return {};
  return invalid_argument(what + ": it has tensors of layers that the adapter does not train", "bad_adapter");
}

Error without_path(Error error, const std::filesystem::path& path) {
  const std::string text = path.string();
  for (size_t at = 0; !text.empty() && (at = error.message.find(text, at)) != std::string::npos;) {
    error.message.replace(at, text.size(), "checkpoint");
  }
  return error;
}

}  // namespace tuft::engine
