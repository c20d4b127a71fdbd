#include "engine/native/lora_linear.h"

#include "engine/native/buffer.h"

namespace tuft::engine::native {
namespace {

LoraPair* pair_of(const Run& run, const LinearUse& use) {
  return run.adapter == nullptr ? nullptr : run.adapter->find(use.module, use.layer);
}

Right row_major(std::span<const float> matrix, int k, int n) {
  return {Right::Form::kRowMajor, matrix.data(), false, k, n};
}

bool any_pair(const Run& run, std::span<const LinearUse> uses) {
  for (const LinearUse& use : uses) {
    if (pair_of(run, use) != nullptr) return true;
  }
  return false;
}

}  // namespace

std::vector<Run> runs_of_rows(const std::vector<Run>& runs, std::span<const int> rows) {
  std::vector<Run> result;
  size_t run = 0;
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    while (rows[static_cast<size_t>(i)] >= runs[run].end) ++run;
    if (result.empty() || result.back().adapter != runs[run].adapter) result.push_back({runs[run].adapter, i, i});
    result.back().end = i + 1;
  }
  return result;
}

void LoraLinear::shrink(const LinearInput& input, std::span<const LinearUse> uses, const Left* whole, Arena& keep) {
  std::vector<Sum> sums;
  for (const LinearUse& use : uses) use.hidden->assign(input.runs.size(), nullptr);
  for (size_t r = 0; r < input.runs.size(); ++r) {
    const Run& run = input.runs[r];
    if (!any_pair(run, uses)) continue;
    Left left;
    if (whole != nullptr && run.rows() == input.rows) {
      left = *whole;
    } else {
      left = gemm_.pack(scratch_, input.x + static_cast<ptrdiff_t>(run.begin) * input.in, input.in, 0, run.rows(),
                        input.in);
    }
    for (const LinearUse& use : uses) {
      const LoraPair* pair = pair_of(run, use);
      if (pair == nullptr) continue;
      float* hidden = keep.take(floats(run.rows(), pair->rank));
      (*use.hidden)[r] = hidden;
      sums.push_back(
          {hidden, pair->rank, pair->rank, nullptr, false, {{left, row_major(pair->a_scaled, pair->in, pair->rank)}}});
    }
  }
  gemm_.multiply(sums);
}

void LoraLinear::hidden(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep) {
  shrink(input, uses, nullptr, keep);
}

void LoraLinear::forward(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep) {
  const Left x = gemm_.pack(scratch_, input.x, input.in, 0, input.rows, input.in);
  shrink(input, uses, &x, keep);
  std::vector<Sum> sums;
  for (const LinearUse& use : uses) {
    Sum sum{use.y, use.linear->out, use.linear->out, use.linear->bias_data(), false, {{x, use.linear->forward()}}};
    for (size_t r = 0; r < input.runs.size(); ++r) {
      const Run& run = input.runs[r];
      const LoraPair* pair = pair_of(run, use);
      if (pair == nullptr) continue;
      const Left left = gemm_.pack(scratch_, (*use.hidden)[r], pair->rank, run.begin, run.rows(), pair->rank);
      sum.products.push_back({left, row_major(pair->b.value, pair->rank, pair->out)});
    }
    sums.push_back(std::move(sum));
  }
  gemm_.multiply(sums);
}

void LoraLinear::backward(const LinearInput& input, std::span<const LinearUse> uses, float* dx) {
  Sum to_x{dx, input.in, input.in, nullptr, false, {}};
  std::vector<Sum> shrinks;
  std::vector<Outer> to_a;
  std::vector<Outer> to_b;
  struct Expand {
    const Run* run;
    const LoraPair* pair;
    const float* dhidden;
  };
  std::vector<Expand> expands;
  std::vector<Left> whole;
  for (const LinearUse& use : uses) {
    whole.push_back(gemm_.pack(scratch_, use.y, use.linear->out, 0, input.rows, use.linear->out));
    to_x.products.push_back({whole.back(), use.linear->backward()});
  }
  for (size_t r = 0; r < input.runs.size(); ++r) {
    const Run& run = input.runs[r];
    for (size_t u = 0; u < uses.size(); ++u) {
      LoraPair* pair = pair_of(run, uses[u]);
      if (pair == nullptr) continue;
      const float* dy = uses[u].y + static_cast<ptrdiff_t>(run.begin) * pair->out;
      const Left left =
          run.rows() == input.rows ? whole[u] : gemm_.pack(scratch_, dy, pair->out, 0, run.rows(), pair->out);
      float* dhidden = scratch_.take(floats(run.rows(), pair->rank));
      shrinks.push_back({dhidden,
                         pair->rank,
                         pair->rank,
                         nullptr,
                         false,
                         {{left, row_major(pair->b_scaled, pair->out, pair->rank)}}});
      expands.push_back({&run, pair, dhidden});
      to_a.push_back({dhidden, pair->rank, pair->rank, input.x + static_cast<ptrdiff_t>(run.begin) * input.in, input.in,
                      input.in, run.rows(), pair->a.gradient.data()});
      to_b.push_back({(*uses[u].hidden)[r], pair->rank, pair->rank, dy, pair->out, pair->out, run.rows(),
                      pair->b.gradient.data()});
    }
  }
  gemm_.multiply(shrinks);
  gemm_.accumulate(to_a);
  gemm_.accumulate(to_b);
  if (dx == nullptr) return;
  for (const Expand& expand : expands) {
    const LoraPair& pair = *expand.pair;
    const Left left = gemm_.pack(scratch_, expand.dhidden, pair.rank, expand.run->begin, expand.run->rows(), pair.rank);
    to_x.products.push_back({left, row_major(pair.a.value, pair.rank, pair.in)});
  }
  gemm_.multiply({&to_x, 1});
}

}  // namespace tuft::engine::native
