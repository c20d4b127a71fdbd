#include "engine/native/optimizer.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <variant>

#include "engine/native/ops/adam.h"
#include "engine/native/ops/orthogonalize.h"

namespace tuft::engine::native {
namespace {

// A or B of one linear layer of one adapter: the work of one task of the pool.
struct Matrix {
  size_t step = 0;
  LoraPair* pair = nullptr;
  bool is_a = false;
  double squares = 0;  // sum of squares of its gradient
  bool finite = true;  // whether its values are finite after the step

  Parameter& parameter() const { return is_a ? pair->a : pair->b; }
  int64_t columns() const { return is_a ? pair->in : pair->out; }
};

struct DimuonFactors {
  float clip = 1;    // of the gradient
  float weight = 0;  // 1 - beta1
  float size = 0;    // learning rate * (rank / 32)^-0.175
};
using Factors = std::variant<AdamFactors, DimuonFactors>;

double grad_clip_norm(const OptimParams& params) {
  return std::visit([](const auto& one) { return one.grad_clip_norm; }, params);
}

DimuonFactors factors_of(const DimuonParams& params, int rank, double clip) {
  constexpr double kRank = 32.0;
  constexpr double kExponent = -0.175;
  return {static_cast<float>(clip), static_cast<float>(1.0 - params.beta1),
          static_cast<float>(params.learning_rate * std::pow(rank / kRank, kExponent))};
}

bool take_step(const AdamFactors& factors, const Matrix& matrix) {
  const Parameter& p = matrix.parameter();
  return adam_step(factors, static_cast<int64_t>(p.value.size()), p.value.data(), p.gradient.data(), p.first.data(),
                   p.second.data());
}

// The gradient's memory holds the direction in between, and zero in the end.
bool take_step(const DimuonFactors& factors, const Matrix& matrix, OrthogonalizeMemory& memory) {
  const Parameter& p = matrix.parameter();
  const auto size = static_cast<int64_t>(p.value.size());
  move_momentum(factors.weight, factors.clip, size, p.gradient.data(), p.first.data());
  orthogonalize(matrix.pair->rank, matrix.columns(), p.gradient.data(), memory);
  return descend(factors.size, size, p.value.data(), p.gradient.data());
}

AdamFactors factors_of(const AdamParams& params, int64_t step, double clip) {
  const auto t = static_cast<double>(step);
  AdamFactors factors;
  factors.decay = static_cast<float>(1.0 - params.learning_rate * params.weight_decay);
  factors.clip = static_cast<float>(clip);
  factors.first_weight = static_cast<float>(1.0 - params.beta1);
  factors.second_keep = static_cast<float>(params.beta2);
  factors.second_weight = static_cast<float>(1.0 - params.beta2);
  factors.size = static_cast<float>(params.learning_rate / (1.0 - std::pow(params.beta1, t)));
  factors.correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(params.beta2, t)));
  factors.eps = static_cast<float>(params.eps);
  return factors;
}

class CommonStep {
 public:
  CommonStep(std::span<const StepOfAdapter<Adapter>> steps, ThreadPool& pool)
      : steps_(steps), pool_(pool), factors_(steps.size()), memory_(static_cast<size_t>(pool.threads())) {}

  std::vector<Result<OptimReport>> run() {
    prepare();
    over_matrices([](Matrix& matrix, int) {
      const std::span<const float> gradient = matrix.parameter().gradient;
      matrix.squares = sum_of_squares(gradient.data(), static_cast<int64_t>(gradient.size()));
    });
    decide();
    over_matrices([this](Matrix& matrix, int thread) {
      const Factors& factors = factors_[matrix.step];
      if (const auto* dimuon = std::get_if<DimuonFactors>(&factors)) {
        matrix.finite = take_step(*dimuon, matrix, memory_[static_cast<size_t>(thread)]);
      } else {
        matrix.finite = take_step(std::get<AdamFactors>(factors), matrix);
      }
      steps_[matrix.step].adapter->refresh(*matrix.pair, matrix.is_a);
    });
    for (const Matrix& matrix : matrices_) results_[matrix.step]->finite &= matrix.finite;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (results_[i].ok() && results_[i]->applied) steps_[i].adapter->consume_gradients();
    }
    return std::move(results_);
  }

 private:
  template <typename Action>
  void over_matrices(const Action& action) {
    const auto task = [&](int index, int thread) { action(matrices_[static_cast<size_t>(index)], thread); };
    pool_.run(static_cast<int>(matrices_.size()), task);
  }

  static Result<OptimReport> without_memory() {
    return Error{ErrorCode::kResourceExhausted, "not enough memory for the optimizer state", "memory"};
  }

  void prepare() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      Adapter& adapter = *steps_[i].adapter;
      OptimReport report;
      report.parameters = adapter.parameters();
      report.step = adapter.steps();
      results_.push_back(report);
      if (!adapter.has_gradient()) continue;
      for (LoraPair& pair : adapter.pairs()) {
        matrices_.push_back({i, &pair, true});
        matrices_.push_back({i, &pair, false});
      }
    }
  }

  // Decides which adapters step, with which factors, and removes the matrices of the others.
  void decide() {
    std::vector<double> squares(steps_.size());
    for (const Matrix& matrix : matrices_) squares[matrix.step] += matrix.squares;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].adapter->has_gradient()) decide(i, std::sqrt(squares[i]));
    }
    const auto left_out = [this](const Matrix& matrix) {
      const Result<OptimReport>& result = results_[matrix.step];
      return !result.ok() || !result->applied;
    };
    matrices_.erase(std::remove_if(matrices_.begin(), matrices_.end(), left_out), matrices_.end());
  }

  void decide(size_t index, double norm) {
    const auto& [adapter, params] = steps_[index];
    OptimReport& report = *results_[index];
    report.grad_norm = norm;
    if (!std::isfinite(norm)) {
      adapter->clear_gradients();
      return;
    }
    try {
      adapter->prepare_moments();
      if (adapter->optimizer() == Optimizer::kDimuon) {
        for (OrthogonalizeMemory& memory : memory_) memory.reserve(adapter->spec().rank);
      }
    } catch (const std::bad_alloc&) {
      results_[index] = without_memory();
      return;
    }
    double clip = 1.0;
    if (const double most = grad_clip_norm(params); most > 0) {
      clip = std::min(1.0, most / (norm + 1e-6));
      report.clipped = norm > most;
    }
    report.applied = true;
    report.step = adapter->count_step();
    if (const auto* dimuon = std::get_if<DimuonParams>(&params)) {
      factors_[index] = factors_of(*dimuon, adapter->spec().rank, clip);
    } else {
      factors_[index] = factors_of(std::get<AdamParams>(params), report.step, clip);
    }
  }

  std::span<const StepOfAdapter<Adapter>> steps_;
  ThreadPool& pool_;
  std::vector<Result<OptimReport>> results_;
  std::vector<Factors> factors_;
  std::vector<OrthogonalizeMemory> memory_;  // one per thread
  std::vector<Matrix> matrices_;
};

}  // namespace

std::vector<Result<OptimReport>> step_together(std::span<const StepOfAdapter<Adapter>> steps, ThreadPool& pool) {
  return CommonStep(steps, pool).run();
}

}  // namespace tuft::engine::native
