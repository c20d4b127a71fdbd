// One folder of tests/parity/data: a tiny model, an adapter, and the numbers that Transformers + PEFT give for them
// (make_parity_data.py says how).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/lora.h"
#include "engine/model_spec.h"
#include "engine/trainer.h"
#include "engine/weights/safetensors.h"

namespace tuft::parity {

struct ReferenceDatum {
  std::vector<int32_t> tokens;
  std::vector<int64_t> targets;
  std::vector<float> weights;     // cross_entropy
  std::vector<float> logprobs;    // importance_sampling: of the behaviour policy
  std::vector<float> advantages;  // importance_sampling
};

struct ReferenceContinuation {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
};

struct ReferenceAdam {
  engine::AdamParams params;
  std::vector<double> losses;      // before step i
  std::vector<double> grad_norms;  // of step i, before clipping
};

// Eight phrases learnt by heart in thirty steps (make_curve_data.py).
struct ReferenceCurve {
  engine::AdamParams params;
  std::vector<engine::Datum> data;  // for cross_entropy
  double weight = 0;                // the sum of all weights
  std::vector<double> losses;       // before step i: the sum over `data` divided by `weight`
};

// Throws std::runtime_error for a folder that does not hold what it should: a broken checkout, not a test failure.
class ReferenceCase {
 public:
  explicit ReferenceCase(const std::string& name);

  std::filesystem::path model_directory() const { return directory_ / "model"; }
  std::filesystem::path adapter_directory() const { return directory_ / "adapter"; }
  const engine::ModelSpec& model() const { return model_; }
  const engine::AdapterState& adapter() const { return adapter_; }  // read here, not by the code under test
  const std::vector<ReferenceDatum>& data() const { return data_; }
  const ReferenceContinuation& greedy() const { return greedy_; }
  const ReferenceContinuation& greedy_base() const { return greedy_base_; }
  const ReferenceAdam& adam() const { return adam_; }
  size_t logits_of() const { return logits_of_; }  // the datum that logits() belong to
  double cross_entropy() const { return cross_entropy_; }
  double cross_entropy_soft() const { return cross_entropy_soft_; }
  double importance_sampling() const { return importance_sampling_; }

  std::vector<float> numbers(const std::string& tensor) const;  // "logits.base", "logprobs.0", ...
  bool has_gradients(const std::string& loss) const;
  // In AdapterState order: "adam" or "grad.<loss>".
  std::vector<engine::LoraTensor> lora(const std::string& group) const;

  // Datums as a client sends them, for "cross_entropy" or "importance_sampling".
  std::vector<engine::Datum> request_data(const std::string& loss) const;
  engine::Datum soft_datum() const;  // targets and weights [N, 3]
  ReferenceCurve curve() const;

 private:
  std::filesystem::path directory_;
  engine::ModelSpec model_;
  std::unique_ptr<engine::TensorFiles> numbers_;
  engine::AdapterState adapter_;
  std::vector<ReferenceDatum> data_;
  ReferenceContinuation greedy_;
  ReferenceContinuation greedy_base_;
  ReferenceAdam adam_;
  engine::Datum soft_;
  size_t logits_of_ = 0;
  double cross_entropy_ = 0;
  double cross_entropy_soft_ = 0;
  double importance_sampling_ = 0;
};

std::vector<std::string> reference_case_names();

}  // namespace tuft::parity
