// Evaluation: runs the steps of a plan, and then back through those that the loss depends on. Internal to the module.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "loss_graph/plan.h"

namespace tuft::loss_graph {

// The values of one input, row-major.
using InputValues = std::variant<std::span<const float>, std::span<const int64_t>>;

// It has more than 25 methods: a forward and a backward one for each kind of step.
//
// The steps, inputs and gradients are in memory at the same time, so an evaluation takes 8 bytes for each element and 8
// more for each with a gradient. Throws std::bad_alloc.
class Evaluation {
 public:
  // Both outlive this. The inputs have the shapes for which the plan was made.
  Evaluation(const Plan& plan, std::span<const InputValues> inputs);

  // Runs the steps. Returns the problem of a step whose operands it cannot take (an index out of range), which is then
  // failed_step(); empty if there is none.
  std::string forward();
  int failed_step() const { return failed_step_; }
  // The first element of the array that a step made.
  double value(int step) const { return values_[at(step)]; }

  // Computes d(loss)/d(input) of the step that is the input `logprobs`. To be called once, after forward().
  std::span<const double> gradient(int logprobs);

 private:
  size_t at(int step) const { return static_cast<size_t>(plan_.steps[static_cast<size_t>(step)].at); }
  double* values(int step) { return values_.get() + at(step); }
  const double* values(int step) const { return values_.get() + at(step); }
  // The gradient of a step, or null if none reaches it.
  double* gradients(int step);

  void run(const Step& step, double* out);
  void run_input(const Step& step, double* out) const;
  void run_binary(const Step& step, double* out) const;
  void run_where(const Step& step, double* out) const;
  void run_concat(const Step& step, double* out) const;
  bool run_gather(const Step& step, double* out) const;
  void run_reduce(const Step& step, double* out) const;
  void run_scan(const Step& step, double* out) const;

  void find_reached();
  void back(int index);
  void back_binary(const Step& step, const double* y, const double* dy);
  void back_where(const Step& step, const double* dy);
  void back_copy(const Step& step, const double* dy);
  void back_concat(const Step& step, const double* dy);
  void back_gather(const Step& step, const double* dy);
  void back_reduce(const Step& step, const double* y, const double* dy);
  void back_scan(const Step& step, const double* y, const double* dy);
  int64_t gather_source(const Step& step, int64_t row, int64_t col) const;

  const Plan& plan_;
  const std::span<const InputValues> inputs_;
  std::unique_ptr<double[]> values_;
  std::vector<int64_t> gradient_at_;  // of each step in gradients_; below 0: none
  std::vector<double> gradients_;
  int failed_step_ = -1;
};

}  // namespace tuft::loss_graph
