#include "engine/batch/checked_datum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/shape_text.h"

namespace tuft::engine {
namespace {

// The path of one datum in error messages.
class DatumPath {
 public:
  explicit DatumPath(size_t index) : text_("data[" + std::to_string(index) + "]") {}

  Error error(const std::string& what) const { return invalid_argument(text_ + ": " + what, "bad_datum"); }
  Error error(std::string_view key, const std::string& what) const {
    return invalid_argument(text_ + ".loss_fn_inputs." + std::string(key) + ": " + what, "bad_datum");
  }

 private:
  std::string text_;
};

size_t value_count(const LossTensor& tensor) {
  return std::visit([](const auto& values) { return values.size(); }, tensor.values);
}

Status check_tokens(const Datum& datum, const DatumPath& path, const DatumLimits& limits) {
  if (datum.tokens.empty()) return path.error("model_input has no token");
  if (limits.tokens_max > 0 && datum.tokens.size() > static_cast<size_t>(limits.tokens_max)) {
    return path.error("model_input has " + std::to_string(datum.tokens.size()) + " tokens; max_model_len allows " +
                      std::to_string(limits.tokens_max));
  }
  for (size_t i = 0; i < datum.tokens.size(); ++i) {
    if (datum.tokens[i] < 0 || datum.tokens[i] >= limits.vocab_size) {
      return path.error("model_input has at position " + std::to_string(i) + " a token outside the vocabulary of " +
                        std::to_string(limits.vocab_size));
    }
  }
  return {};
}

Status check_target_shape(const LossTensor& tensor, size_t tokens, const Loss& loss, const DatumPath& path) {
  const std::vector<int64_t>& shape = tensor.shape;
  const bool rows_match = !shape.empty() && shape[0] == static_cast<int64_t>(tokens);
  const bool rank_fits = shape.size() == 1 || (shape.size() == 2 && shape[1] >= 1 && loss.several_targets());
  if (!rows_match || !rank_fits) {
    const std::string rows = std::to_string(tokens);
    return path.error(kTargetTokens, "its shape is " + shape_text(shape) + "; it must be [" + rows + "]" +
                                         (loss.several_targets() ? " or [" + rows + ", K]" : "") +
                                         ", a row for each token of model_input");
  }
  if (!fills_shape(tensor)) {
    return path.error(kTargetTokens,
                      "it has " + std::to_string(value_count(tensor)) + " values and shape " + shape_text(shape));
  }
  if (shape.size() == 2 && shape[1] > kTargetsOfTokenMax) {
    return path.error(kTargetTokens, "its shape is " + shape_text(shape) + "; a token has at most " +
                                         std::to_string(kTargetsOfTokenMax) + " targets");
  }
  return {};
}

Result<Cells<int32_t>> check_targets(LossTensor& tensor, const DatumPath& path, int vocab_size) {
  const auto* values = std::get_if<std::vector<int64_t>>(&tensor.values);
  if (values == nullptr) return path.error(kTargetTokens, "its dtype is float32; it must be int64");
  Cells<int32_t> out;
  out.values.reserve(values->size());
  for (const int64_t token : *values) {
    if (token < 0 || token >= vocab_size) {
      return path.error(kTargetTokens, "at element " + std::to_string(out.values.size()) +
                                           " is a token outside the vocabulary of " + std::to_string(vocab_size));
    }
    out.values.push_back(static_cast<int32_t>(token));
  }
  out.places = std::move(tensor.places);
  return out;
}

Result<Cells<float>> check_input(LossTensor& tensor, const LossInput& input, const CheckedDatum& datum,
                                 const DatumPath& path) {
  if (tensor.shape != datum.target_shape) {
    return path.error(input.name, "its shape is " + shape_text(tensor.shape) + "; it must be that of target_tokens, " +
                                      shape_text(datum.target_shape));
  }
  if (!fills_shape(tensor)) {
    return path.error(
        input.name, "it has " + std::to_string(value_count(tensor)) + " values and shape " + shape_text(tensor.shape));
  }
  Cells<float> out;
  if (auto* floats = std::get_if<std::vector<float>>(&tensor.values)) {
    out.values = std::move(*floats);
  } else {
    // The SDK sends a list such as [0, 1, 1] as int64.
    for (const int64_t value : std::get<std::vector<int64_t>>(tensor.values)) {
      out.values.push_back(static_cast<float>(value));
    }
  }
  out.places = std::move(tensor.places);
  for (size_t i = 0; i < out.values.size(); ++i) {
    if (!std::isfinite(out.values[i])) {
      return path.error(input.name, "element " + std::to_string(i) + " is not finite");
    }
  }
  return out;
}

Status check_together(const CheckedDatum& datum, const Loss& loss, const DatumPath& path) {
  std::vector<std::span<const float>> values;
  for (const auto& input : datum.inputs)
    values.emplace_back(input ? std::span<const float>(input->values) : std::span<const float>());
  const std::string_view refusal = loss.refusal(values);
  return refusal.empty() ? Status() : path.error(std::string(refusal));
}

// A tensor that the loss does not read could be a mask or a bound that its sender relies on.
Status check_names(const Datum& datum, const Loss& loss, const DatumPath& path) {
  const std::span<const LossInput> inputs = loss.inputs();
  for (const auto& [key, tensor] : datum.loss_inputs) {
    const auto is_it = [&name = key](const LossInput& input) { return input.name == name; };
    if (key == kTargetTokens || std::any_of(inputs.begin(), inputs.end(), is_it)) continue;
    std::string known = kTargetTokens;
    for (const LossInput& input : inputs) known += ", " + std::string(input.name);
    const bool plain = key.size() <= 64 && std::all_of(key.begin(), key.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
                       });
    return path.error(plain ? std::string_view(key) : "(an unreadable name)",
                      "the loss does not use it, so it would be ignored; the loss uses " + known);
  }
  return {};
}

}  // namespace

bool fills_shape(const LossTensor& tensor) {
  uint64_t cells = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(cells, static_cast<uint64_t>(extent), &cells)) return false;
  }
  if (!tensor.places) return cells == value_count(tensor);
  return tensor.places->size() == value_count(tensor) &&
         std::all_of(tensor.places->begin(), tensor.places->end(),
                     [&](int64_t place) { return place >= 0 && static_cast<uint64_t>(place) < cells; });
}

Result<CheckedDatum> check_datum(Datum datum, size_t index, const Loss& loss, const DatumLimits& limits) {
  const DatumPath path(index);
  TUFT_TRY(check_tokens(datum, path, limits));
  TUFT_TRY(check_names(datum, loss, path));
  const auto targets = datum.loss_inputs.find(kTargetTokens);
  if (targets == datum.loss_inputs.end()) return path.error(kTargetTokens, "it is missing");
  TUFT_TRY(check_target_shape(targets->second, datum.tokens.size(), loss, path));

  CheckedDatum out;
  out.target_shape = targets->second.shape;
  TUFT_ASSIGN(out.targets, check_targets(targets->second, path, limits.vocab_size));
  for (const LossInput& input : loss.inputs()) {
    const auto found = datum.loss_inputs.find(std::string(input.name));
    if (found != datum.loss_inputs.end()) {
      TUFT_ASSIGN(Cells<float> values, check_input(found->second, input, out, path));
      out.inputs.emplace_back(std::move(values));
    } else if (input.fallback) {
      out.inputs.emplace_back();
    } else {
      return path.error(input.name, "it is missing");
    }
  }
  TUFT_TRY(check_together(out, loss, path));
  out.tokens = std::move(datum.tokens);
  return out;
}

}  // namespace tuft::engine
