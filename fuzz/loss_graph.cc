// Parses custom losses and evaluates them for a small datum. The input is a line with the inputs, such as
// "logprobs:1 tau:0", and the graph.
#include <cmath>
#include <string>
#include <vector>

#include "loss_graph/program.h"
#include "target.h"

namespace loss_graph = tuft::loss_graph;

namespace {

std::vector<loss_graph::Input> inputs_of(std::string_view line) {
  std::vector<loss_graph::Input> inputs;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const size_t colon = word.find(':');
    const bool has_rank = colon != std::string_view::npos && colon + 1 < word.size();
    inputs.push_back({std::string(word.substr(0, colon)), has_rank ? word[colon + 1] - '0' : 1});
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return inputs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = tuft::fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  loss_graph::Limits limits;
  limits.array_elements = 1 << 10;
  limits.evaluation_elements = 1 << 12;
  const auto program =
      loss_graph::Program::parse(text.substr(std::min(end + 1, text.size())), inputs_of(text.substr(0, end)), limits);
  if (!program.ok()) {
    tuft::fuzz::require(!program.error().message.empty());
    return 0;
  }
  constexpr int64_t kExtents[] = {3, 2};
  const std::vector<float> floats = {-0.5F, 0.0F, 1.0F, 2.0F, -1.0F, 0.25F};
  std::vector<loss_graph::Tensor> tensors;
  std::vector<loss_graph::InputType> types;
  for (const loss_graph::Input& input : (*program)->inputs()) {
    loss_graph::Tensor tensor;
    size_t count = 1;
    for (int dim = 0; dim < input.rank; ++dim) {
      tensor.shape.push_back(kExtents[dim]);
      count *= static_cast<size_t>(kExtents[dim]);
    }
    tensor.values = std::span<const float>(floats.data(), count);
    types.push_back({tensor.shape});
    tensors.push_back(std::move(tensor));
  }
  const auto cost = (*program)->cost(types);
  const auto outcome = (*program)->evaluate(tensors);
  tuft::fuzz::require(cost.ok() || !outcome.ok());
  if (!outcome.ok()) return 0;
  tuft::fuzz::require(cost->elements <= limits.evaluation_elements && std::isfinite(outcome->loss));
  return 0;
}
