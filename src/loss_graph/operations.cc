#include <algorithm>
#include <array>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

struct Substitute {
  std::string_view name;
  std::string_view instead;
};

constexpr std::string_view kRandom = "random numbers are not available; send them as an input of the loss";
constexpr std::string_view kSizeOfValues =
    "the size of its result depends on values; use torch.where, or multiply by a mask and sum";

constexpr std::array kSubstitutes = std::to_array<Substitute>({
    {"masked_select", kSizeOfValues},
    {"nonzero", kSizeOfValues},
    {"argwhere", kSizeOfValues},
    {"unique", kSizeOfValues},
    {"sort", "use max, min, amax or logsumexp"},
    {"argsort", "use argmax or argmin"},
    {"topk", "use max, amax or logsumexp"},
    {"median", "use mean, amax or amin"},
    {"quantile", "use mean, amax or amin"},
    {"prod", "use exp of the sum of log"},
    {"cumprod", "use exp of cumsum of log"},
    {"logcumsumexp", "use log of cumsum of exp"},
    {"norm", "use sqrt of the sum of squares"},
    {"vector_norm", "use sqrt of the sum of squares"},
    {"linalg_norm", "use sqrt of the sum of squares"},
    {"mm", "use outer, or matmul with a vector"},
    {"bmm", "use matmul with a vector"},
    {"einsum", "use mul and sum"},
    {"addcmul", "use add and mul"},
    {"addcdiv", "use add and div"},
    {"xlogy", "use torch.where and log"},
    {"mse_loss", "use (a - b).square() with mean or sum"},
    {"l1_loss", "use (a - b).abs() with mean or sum"},
    {"smooth_l1_loss", "use torch.where, abs and square"},
    {"huber_loss", "use torch.where, abs and square"},
    {"kl_div", "use exp, sub, mul and sum"},
    {"binary_cross_entropy", "use log"},
    {"binary_cross_entropy_with_logits", "use torch.nn.functional.logsigmoid"},
    {"cross_entropy", "use -(weights * logprobs).sum(): logprobs are those of the targets"},
    {"nll_loss", "use -(weights * logprobs).sum(): logprobs are those of the targets"},
    {"silu", "use x * sigmoid(x)"},
    {"gelu", "use erf"},
    {"leaky_relu", "use torch.where"},
    {"elu", "use torch.where and expm1"},
    {"hardtanh", "use clamp"},
    {"threshold", "use torch.where"},
    {"heaviside", "use torch.where"},
    {"softmin", "use softmax of the negative"},
    {"sinh", "use exp"},
    {"cosh", "use exp"},
    {"tan", "use sin and cos"},
    {"split", "use narrow or slices"},
    {"chunk", "use narrow or slices"},
    {"unbind", "use an index for each part"},
    {"roll", "use torch.cat of two slices"},
    {"repeat", "use expand"},
    {"tile", "use expand"},
    {"hstack", "use torch.cat"},
    {"vstack", "use torch.stack or torch.cat"},
    {"pad", "use torch.cat with torch.zeros"},
    {"linspace", "use torch.arange, mul and add"},
    {"eye", "use torch.tril and torch.triu of torch.ones"},
    {"scatter", "use gather the other way round, or torch.where"},
    {"scatter_add", "use outer comparisons with torch.arange, torch.where and sum"},
    {"index_add", "use outer comparisons with torch.arange, torch.where and sum"},
    {"setitem", "tensors cannot be changed; use torch.where or torch.cat"},
    {"half", "use float(): everything is computed with 64 bits"},
    {"bfloat16", "use float(): everything is computed with 64 bits"},
    {"cuda", "leave it out"},
    {"requires_grad_", "leave it out: the gradient by logprobs is always computed"},
    {"item", "keep every value as a tensor"},
    {"numpy", "keep every value as a tensor"},
    {"tolist", "keep every value as a tensor"},
    {"backward", "return the loss; the server computes its gradient"},
    {"rand", kRandom},
    {"randn", kRandom},
    {"rand_like", kRandom},
    {"randn_like", kRandom},
    {"randint", kRandom},
    {"randperm", kRandom},
    {"bernoulli", kRandom},
    {"multinomial", kRandom},
    {"normal", kRandom},
    {"dropout", kRandom},
});

}  // namespace

std::span<const std::span<const Operation>> operations() {
  static const std::array subjects = {element_operations(), reduction_operations(), shape_operations(),
                                      creation_operations(), python_operations()};
  return subjects;
}

const Operation* find_operation(std::string_view name, Place place) {
  for (const std::span<const Operation> subject : operations()) {
    for (const Operation& operation : subject) {
      if (operation.name == name && (operation.places & place) != 0) return &operation;
    }
  }
  return nullptr;
}

std::string_view substitute_for(std::string_view name) {
  const auto found = std::find_if(kSubstitutes.begin(), kSubstitutes.end(),
                                  [&](const Substitute& substitute) { return substitute.name == name; });
  if (found != kSubstitutes.end()) return found->instead;
  if (!name.ends_with("_") || name.ends_with("__")) return {};
  return "tensors cannot be changed; use the operation without the underscore at its end";
}

}  // namespace tuft::loss_graph
