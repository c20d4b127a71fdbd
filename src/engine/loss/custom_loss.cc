#include "engine/loss/custom_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "engine/model_cost.h"

namespace tuft::engine {
namespace {

constexpr double kSecondsPerElement = 10e-9;  // there and back, on a CPU
constexpr int64_t kElementsPerPlanned = 20;   // each evaluation is planned twice: for its cost, and when it runs
constexpr int64_t kPlannedMax = 1 << 21;      // in one request; about 0.2 s
constexpr double kPeakOfACpu = 100e9;         // of unknown peak
constexpr double kShareOfPeak = 0.5;          // that training reaches

Error datum_error(size_t index, const std::string& what, std::string reason) {
  return invalid_argument("data[" + std::to_string(index) + "]" + what, std::move(reason));
}

Error input_error(size_t index, const std::string& name, const std::string& what) {
  return datum_error(index, ".loss_fn_inputs." + name + ": " + what, "bad_datum");
}

// The cost of the newest shapes: many datums of a request have the same.
struct KnownCost {
  std::vector<loss_graph::InputType> types;
  int64_t elements = 0;
  int64_t planned = 0;  // for all shapes so far
};

Status take_inputs(const loss_graph::Program& program, size_t index, Datum& datum, KnownCost& known) {
  auto targets = datum.loss_inputs.find(kTargetTokens);
  if (targets == datum.loss_inputs.end()) return input_error(index, kTargetTokens, "it is missing");
  std::vector<loss_graph::InputType> types = {{targets->second.shape}};
  for (size_t i = 1; i < program.inputs().size(); ++i) {
    const std::string& name = program.inputs()[i].name;
    const auto found = datum.loss_inputs.find(name);
    if (found == datum.loss_inputs.end()) return input_error(index, name, "it is missing; the custom loss reads it");
    if (!fills_shape(found->second)) return input_error(index, name, "its values do not fill its shape");
    types.push_back({found->second.shape, std::holds_alternative<std::vector<float>>(found->second.values)});
    datum.custom_inputs.push_back(name == kTargetTokens ? found->second : std::move(found->second));
  }
  LossTensor kept = std::move(targets->second);
  datum.loss_inputs.clear();
  datum.loss_inputs.emplace(kTargetTokens, std::move(kept));
  if (types != known.types) {
    auto cost = program.cost(types);
    if (!cost.ok()) return datum_error(index, ": custom loss: " + cost.error().message, cost.error().reason);
    known = {std::move(types), cost->elements + kElementsPerPlanned * cost->planned, known.planned + cost->planned};
    if (known.planned > kPlannedMax) {
      return datum_error(index,
                         ": the custom loss is long, and the shapes of the datums differ; send fewer datums in "
                         "one request, or group those of equal length",
                         "custom_loss_too_large");
    }
  }
  datum.custom_elements = known.elements;
  return {};
}

// Only checks: a datum has target_tokens and nothing else.
class CustomTargets final : public Loss {
 public:
  explicit CustomTargets(bool several) : several_(several) {}
  std::span<const LossInput> inputs() const override { return {}; }
  bool several_targets() const override { return several_; }
  DatumLoss datum(const DatumTargets&, std::span<float>) const override { return {}; }

 private:
  const bool several_;
};

// The values of a tensor, or of its dense form in `buffer`.
template <typename T>
std::span<const T> dense(const std::vector<T>& values, const LossTensor& tensor, std::vector<T>& buffer) {
  if (!tensor.places) return values;
  int64_t cells = 1;
  for (const int64_t extent : tensor.shape) cells *= extent;
  buffer.assign(static_cast<size_t>(cells), T{0});
  for (size_t i = 0; i < values.size(); ++i) buffer[static_cast<size_t>((*tensor.places)[i])] = values[i];
  return buffer;
}

struct Buffers {
  std::vector<float> floats;
  std::vector<int64_t> integers;
};

Result<loss_graph::Outcome> evaluate(const loss_graph::Program& program, const CheckedDatum& datum,
                                     std::span<const float> logprobs) {
  std::vector<loss_graph::Tensor> tensors = {{datum.target_shape, logprobs}};
  std::vector<Buffers> buffers(datum.custom_inputs.size());
  for (size_t i = 0; i < datum.custom_inputs.size(); ++i) {
    const LossTensor& input = datum.custom_inputs[i];
    loss_graph::Tensor tensor{input.shape, {}};
    if (const auto* floats = std::get_if<std::vector<float>>(&input.values)) {
      tensor.values = dense(*floats, input, buffers[i].floats);
    } else {
      tensor.values = dense(std::get<std::vector<int64_t>>(input.values), input, buffers[i].integers);
    }
    tensors.push_back(std::move(tensor));
  }
  TUFT_ASSIGN(loss_graph::Outcome outcome, program.evaluate(tensors));
  const bool fits = std::all_of(outcome.gradient.begin(), outcome.gradient.end(),
                                [](double value) { return std::fabs(value) <= std::numeric_limits<float>::max(); });
  if (!fits) return invalid_argument("the gradient is too large for float32", "custom_loss_not_finite");
  return outcome;
}

}  // namespace

Status prepare_custom_loss(TrainRequest& request) {
  if (request.data.size() > kCustomLossDatumsMax) {
    return invalid_argument("a request with a custom loss has at most " + std::to_string(kCustomLossDatumsMax) +
                                " datums, and this one has " + std::to_string(request.data.size()) +
                                "; send them in several requests",
                            "custom_loss_too_large");
  }
  KnownCost known;
  for (size_t i = 0; i < request.data.size(); ++i) {
    TUFT_TRY(take_inputs(*request.custom_loss, i, request.data[i], known));
  }
  return {};
}

std::unique_ptr<Loss> make_custom_targets(const loss_graph::Program& program) {
  return std::make_unique<CustomTargets>(program.inputs().front().rank == 2);
}

int64_t tokens_worth(const ModelSpec& model, double peak_flops, int64_t elements) {
  const ModelCost cost(model);
  const double token =
      cost.forward({}, 0, 1) + cost.backward({}, 1) + cost.head_forward({}, 1) + cost.head_backward({}, 1);
  const double flops_per_second = kShareOfPeak * (peak_flops > 0 ? peak_flops : kPeakOfACpu);
  const double tokens_per_second = flops_per_second / std::max(token, 1.0);
  return std::max<int64_t>(1, std::llround(static_cast<double>(elements) * kSecondsPerElement * tokens_per_second));
}

Result<loss_graph::Outcome> evaluate_custom_loss(const loss_graph::Program& program, const CheckedDatum& datum,
                                                 size_t index, std::span<const float> logprobs) try {
  auto outcome = evaluate(program, datum, logprobs);
  if (outcome.ok()) return outcome;
  Error error = datum_error(index, ": custom loss: " + outcome.error().message, outcome.error().reason);
  error.code = outcome.error().code;
  return error;
} catch (const std::bad_alloc&) {
  return tuft::out_of_memory();
}

}  // namespace tuft::engine
