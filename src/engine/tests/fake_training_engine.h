// An Engine whose log-probabilities are a formula known to tests, and that records its calls.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/tests/tiny_model.h"

namespace tuft::engine {

class FakeTrainingEngine final : public Engine, public AdapterStore, public TrainingEngine {
 public:
  // Returns the log-probability of `target` after `token` at `position` of its segment.
  static float logprob(int32_t token, int position, int32_t target) {
    return -0.5F - 0.01F * static_cast<float>(token) - 0.1F * static_cast<float>(position) -
           0.001F * static_cast<float>(target);
  }

  const ModelSpec& model() const override { return model_; }
  std::string_view weights_dtype() const override { return "f32"; }
  AdapterStore& adapters() override { return *this; }
  TrainingEngine& training() override { return *this; }
  DecodeEngine& decoding() override { check_failed("decoding()", __FILE__, __LINE__, "no test decodes"); }

  Status create(const AdapterId& id, const AdapterState& /*state*/) override {
    gradient_sums[id.str()] = 0;
    return {};
  }
  Status remove(const AdapterId& id) override {
    gradient_sums.erase(id.str());
    marks_.erase(id.str());
    return {};
  }
  const LoraSpec* spec(const AdapterId& id) const override {
    return gradient_sums.contains(id.str()) ? &spec_ : nullptr;
  }
  size_t size() const override { return gradient_sums.size(); }
  AdapterMemory memory() const override { return {}; }
  Result<AdapterState> export_state(const AdapterId&, bool) const override { return not_used(); }
  Status import_state(const AdapterId&, const AdapterState&) override { return not_used(); }
  Status clone(const AdapterId&, const AdapterId&) override { return not_used(); }
  Result<AdapterState> take(const AdapterId&) override { return not_used(); }
  int64_t bytes_of(const LoraSpec&, bool) const override { return 0; }

  Status forward(const Pack& pack, bool keep, std::span<float> logprobs) override {
    keeps_pass = false;
    packs.push_back(pack);
    keeps.push_back(keep);
    if (static_cast<int>(packs.size()) == fail_forward) return internal_error("forward failed");
    if (refuses(pack, fail_forward_of)) return internal_error("forward failed");
    size_t segment = 0;
    for (size_t i = 0; i < pack.targets.size(); ++i) {
      const Target& target = pack.targets[i];
      while (target.row >= pack.segments[segment].end) ++segment;
      logprobs[i] = logprob(pack.tokens[static_cast<size_t>(target.row)], target.row - pack.segments[segment].begin,
                            target.token);
    }
    keeps_pass = keep;
    return {};
  }
  Status backward(std::span<const float> dloss_dlogprobs) override {
    keeps_pass = false;
    dloss.emplace_back(dloss_dlogprobs.begin(), dloss_dlogprobs.end());
    const Pack& pack = packs.back();
    size_t segment = 0;
    for (size_t i = 0; i < dloss_dlogprobs.size(); ++i) {
      while (pack.targets[i].row >= pack.segments[segment].end) ++segment;
      gradient_sums[pack.segments[segment].adapter.str()] += dloss_dlogprobs[i];
    }
    if (static_cast<int>(dloss.size()) == fail_backward) return internal_error("backward failed");
    if (refuses(pack, fail_backward_of)) return internal_error("backward failed");
    return {};
  }
  void drop_pass() override { keeps_pass = false; }

  std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep>) override { return {not_used()}; }
  Status clear_gradients(const AdapterId& id) override {
    gradient_sums[id.str()] = 0;
    marks_.erase(id.str());
    return {};
  }
  Status mark_gradients(const AdapterId& id) override {
    ++marks;
    if (id == fail_mark_of) return internal_error("mark failed");
    marks_[id.str()] = gradient_sums.at(id.str());
    return {};
  }
  Status restore_gradients(const AdapterId& id) override {
    gradient_sums[id.str()] = marks_.at(id.str());
    return {};
  }
  Result<std::vector<LoraTensor>> gradients(const AdapterId&) const override { return not_used(); }

  std::vector<Pack> packs;
  std::vector<bool> keeps;
  bool keeps_pass = false;  // retained for backward()
  std::vector<std::vector<float>> dloss;
  std::map<std::string, double> gradient_sums;  // the sum that backward() has added, by adapter
  int fail_forward = 0;                         // number of the call that fails, from 1
  int fail_backward = 0;
  // Every pass that contains a segment of this adapter fails.
  AdapterId fail_forward_of, fail_backward_of, fail_mark_of;
  int marks = 0;

 private:
  static Error not_used() { return internal_error("no test calls this"); }
  static bool refuses(const Pack& pack, const AdapterId& adapter) {
    return std::any_of(pack.segments.begin(), pack.segments.end(),
                       [&](const Segment& segment) { return segment.adapter == adapter && !adapter.empty(); });
  }

  std::map<std::string, double> marks_;

  ModelSpec model_ = tiny_model();
  LoraSpec spec_;
};

}  // namespace tuft::engine
