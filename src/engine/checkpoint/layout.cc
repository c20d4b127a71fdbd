#include "engine/checkpoint/layout.h"

namespace tuft::engine {

std::string module_name(Site site, int layer) {
  std::string name(site_name(site));
  switch (site) {
    case Site::kLmHead:
      return "base_model.model." + name;
    case Site::kQ:
    case Site::kK:
    case Site::kV:
    case Site::kO:
      return "base_model.model.model.layers." + std::to_string(layer) + ".self_attn." + name;
    case Site::kGate:
    case Site::kUp:
    case Site::kDown:
      return "base_model.model.model.layers." + std::to_string(layer) + ".mlp." + name;
  }
  return name;
}

std::vector<int64_t> shape_of_a(const ModelSpec& model, const LoraSpec& spec, Site site) {
  return {spec.rank, site_shape(model, site).in};
}

std::vector<int64_t> shape_of_b(const ModelSpec& model, const LoraSpec& spec, Site site) {
  return {site_shape(model, site).out, spec.rank};
}

Status check_tensors(const ModelSpec& model, const LoraSpec& spec, const std::vector<LoraTensor>& tensors,
                     const std::string& what) {
  if (spec.rank < 1 || spec.sites().empty()) {
    return invalid_argument(what + ": an adapter needs a rank of at least 1 and a layer to train", "bad_adapter");
  }
  size_t at = 0;
  const auto check = [&](Site site, int layer) -> Status {
    const auto elements = [](const std::vector<int64_t>& shape) { return static_cast<size_t>(shape[0] * shape[1]); };
    if (at >= tensors.size() || tensors[at].site != site || tensors[at].layer != layer ||
        tensors[at].a.size() != elements(shape_of_a(model, spec, site)) ||
        tensors[at].b.size() != elements(shape_of_b(model, spec, site))) {
      return invalid_argument(what + ": the tensors of " + module_name(site, layer) + " are missing or of another size",
                              "bad_adapter");
    }
    ++at;
    return {};
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const Site site : spec.sites()) {
      if (site != Site::kLmHead) TUFT_TRY(check(site, layer));
    }
  }
  if (spec.train_unembed) TUFT_TRY(check(Site::kLmHead, 0));
  if (at != tensors.size()) return invalid_argument(what + ": there are tensors that nothing trains", "bad_adapter");
  return {};
}

Error without_path(Error error, const std::filesystem::path& path) {
  const std::string text = path.string();
  for (size_t at = 0; !text.empty() && (at = error.message.find(text, at)) != std::string::npos;) {
    error.message.replace(at, text.size(), "checkpoint");
  }
  return error;
}

}  // namespace tuft::engine
