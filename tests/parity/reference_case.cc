#include "reference_case.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace tuft::parity {
namespace {

using nlohmann::json;

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

std::string module_name(engine::TargetModule module, int layer) {
  std::string name(engine::module_name(module));
  if (module == engine::TargetModule::kLmHead) return name;
  const bool mlp = module == engine::TargetModule::kGate || module == engine::TargetModule::kUp ||
                   module == engine::TargetModule::kDown;
  return "model.layers." + std::to_string(layer) + (mlp ? ".mlp." : ".self_attn.") + name;
}

std::vector<float> floats(const engine::TensorFiles& file, const std::string& name) {
  return value_or_throw(value_or_throw(file.find(name)).to_float());
}

engine::LoraTensor read_lora(const engine::TensorFiles& file, const std::string& prefix, engine::TargetModule module,
                             int layer) {
  const std::string name = prefix + "base_model.model." + module_name(module, layer);
  return {module, layer, floats(file, name + ".lora_A.weight"), floats(file, name + ".lora_B.weight")};
}

std::vector<engine::LoraTensor> read_all_lora(const engine::TensorFiles& file, const std::string& prefix, int layers) {
  std::vector<engine::LoraTensor> tensors;
  for (int layer = 0; layer < layers; ++layer) {
    for (const engine::TargetModule module : engine::kBlockModules)
      tensors.push_back(read_lora(file, prefix, module, layer));
  }
  tensors.push_back(read_lora(file, prefix, engine::TargetModule::kLmHead, 0));
  return tensors;
}

ReferenceContinuation continuation_from(const json& from) {
  return {from.at("prompt").get<std::vector<int32_t>>(), from.at("tokens").get<std::vector<int32_t>>(),
          from.at("logprobs").get<std::vector<double>>()};
}

engine::AdamParams adam_params_from(const json& from) {
  engine::AdamParams params;
  params.learning_rate = from.at("learning_rate").get<double>();
  params.beta1 = from.at("beta1").get<double>();
  params.beta2 = from.at("beta2").get<double>();
  params.eps = from.at("eps").get<double>();
  params.weight_decay = from.at("weight_decay").get<double>();
  params.grad_clip_norm = from.at("grad_clip_norm").get<double>();
  return params;
}

ReferenceAdam adam_from(const json& from) {
  return {adam_params_from(from), from.at("losses").get<std::vector<double>>(),
          from.at("grad_norms").get<std::vector<double>>()};
}

template <typename T>
engine::LossTensor one_row(const std::vector<T>& values) {
  return {{static_cast<int64_t>(values.size())}, values};
}

engine::Datum soft_datum_from(const json& from) {
  engine::Datum datum;
  datum.tokens = from.at("tokens").get<std::vector<int32_t>>();
  std::vector<int64_t> targets;
  std::vector<float> weights;
  for (const auto& row : from.at("targets")) {
    for (const auto& token : row) targets.push_back(token.get<int64_t>());
  }
  for (const auto& row : from.at("weights")) {
    for (const auto& weight : row) weights.push_back(weight.get<float>());
  }
  const auto rows = static_cast<int64_t>(datum.tokens.size());
  const std::vector<int64_t> shape = {rows, static_cast<int64_t>(targets.size()) / rows};
  datum.loss_inputs["target_tokens"] = {shape, std::move(targets)};
  datum.loss_inputs["weights"] = {shape, std::move(weights)};
  return datum;
}

}  // namespace

ReferenceCase::ReferenceCase(const std::string& name)
    : directory_(std::filesystem::path(TUFT_PARITY_DATA) / name),
      model_(value_or_throw(engine::load_model_spec(model_directory()))),
      numbers_(value_or_throw(engine::TensorFiles::open_file(directory_ / "reference.safetensors"))) {
  std::ifstream file(directory_ / "reference.json");
  const json reference = json::parse(file);
  adapter_.spec.rank = reference.at("rank").get<int>();
  adapter_.spec.alpha = reference.at("alpha").get<float>();
  const auto tensors =
      value_or_throw(engine::TensorFiles::open_file(adapter_directory() / "adapter_model.safetensors"));
  adapter_.tensors = read_all_lora(*tensors, "", model_.layers);
  for (const auto& datum : reference.at("data")) {
    data_.push_back({datum.at("tokens").get<std::vector<int32_t>>(), datum.at("targets").get<std::vector<int64_t>>(),
                     datum.at("weights").get<std::vector<float>>(), datum.at("logprobs").get<std::vector<float>>(),
                     datum.at("advantages").get<std::vector<float>>()});
  }
  greedy_ = continuation_from(reference.at("greedy"));
  greedy_base_ = continuation_from(reference.at("greedy_base"));
  adam_ = adam_from(reference.at("adam"));
  soft_ = soft_datum_from(reference.at("soft"));
  logits_of_ = reference.at("logits_of").get<size_t>();
  cross_entropy_ = reference.at("cross_entropy").get<double>();
  cross_entropy_soft_ = reference.at("cross_entropy_soft").get<double>();
  importance_sampling_ = reference.at("importance_sampling").get<double>();
}

std::vector<float> ReferenceCase::numbers(const std::string& tensor) const {
  return floats(*numbers_, tensor);
}

bool ReferenceCase::has_gradients(const std::string& loss) const {
  return numbers_->contains("grad." + loss + ".base_model.model.lm_head.lora_A.weight");
}

std::vector<engine::LoraTensor> ReferenceCase::lora(const std::string& group) const {
  return read_all_lora(*numbers_, group + ".", model_.layers);
}

std::vector<engine::Datum> ReferenceCase::request_data(const std::string& loss) const {
  std::vector<engine::Datum> request;
  for (const ReferenceDatum& datum : data_) {
    engine::Datum& made = request.emplace_back();
    made.tokens = datum.tokens;
    made.loss_inputs["target_tokens"] = one_row(datum.targets);
    if (loss == "cross_entropy") {
      made.loss_inputs["weights"] = one_row(datum.weights);
    } else {
      made.loss_inputs["logprobs"] = one_row(datum.logprobs);
      made.loss_inputs["advantages"] = one_row(datum.advantages);
    }
  }
  return request;
}

engine::Datum ReferenceCase::soft_datum() const {
  return soft_;
}

ReferenceCurve ReferenceCase::curve() const {
  std::ifstream file(directory_ / "curve.json");
  const json from = json::parse(file);
  ReferenceCurve curve;
  curve.params = adam_params_from(from.at("adam"));
  for (const json& datum : from.at("data")) {
    engine::Datum& made = curve.data.emplace_back();
    made.tokens = datum.at("tokens").get<std::vector<int32_t>>();
    made.loss_inputs["target_tokens"] = one_row(datum.at("targets").get<std::vector<int64_t>>());
    const auto weights = datum.at("weights").get<std::vector<float>>();
    curve.weight += std::accumulate(weights.begin(), weights.end(), 0.0);
    made.loss_inputs["weights"] = one_row(weights);
  }
  curve.losses = from.at("losses").get<std::vector<double>>();
  return curve;
}

std::vector<std::string> reference_case_names() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(TUFT_PARITY_DATA)) {
    if (exists(folder.path() / "reference.json")) names.push_back(folder.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tuft::parity
