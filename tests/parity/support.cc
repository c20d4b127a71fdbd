#include "support.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.h"
#include "engine/train/scheduler.h"

namespace tuft::parity {

testing::AssertionResult near_all(std::span<const float> got, std::span<const float> want, double absolute,
                                  double relative) {
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " values, not " << want.size();
  size_t worst = 0;
  size_t bad = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double excess =
        std::abs(static_cast<double>(got[i]) - want[i]) - absolute - relative * std::abs(static_cast<double>(want[i]));
    if (excess <= 0) continue;  // NaN goes on
    ++bad;
    if (bad == 1 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (bad == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << bad << " of " << got.size() << " differ, most at " << worst << ": "
                                     << got[worst] << ", not " << want[worst];
}

testing::AssertionResult same_all(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " values, not " << want.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return testing::AssertionFailure() << "other bits at " << i << ": " << got[i] << ", not " << want[i]
                                         << " (difference " << got[i] - want[i] << ")";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult agree(const BackEnd& back_end, std::span<const float> got, std::span<const float> want,
                               double error) {
  return back_end.bitwise ? same_all(got, want) : near_all(got, want, error);
}

testing::AssertionResult near_lora(const std::vector<engine::LoraTensor>& got,
                                   const std::vector<engine::LoraTensor>& want, double absolute, double relative,
                                   double of_largest) {
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " tensors, not " << want.size();
  const auto allowance = [&](std::span<const float> values) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    return absolute + of_largest * largest;
  };
  testing::AssertionResult failure = testing::AssertionFailure();
  bool failed = false;
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string name =
        std::string(engine::module_name(want[i].module)) + " of layer " + std::to_string(want[i].layer);
    if (got[i].module != want[i].module || got[i].layer != want[i].layer) {
      return testing::AssertionFailure() << "tensor " << i << " is not " << name;
    }
    const auto a = near_all(got[i].a, want[i].a, allowance(want[i].a), relative);
    const auto b = near_all(got[i].b, want[i].b, allowance(want[i].b), relative);
    if (!a) failure << "\n  A of " << name << ": " << a.message();
    if (!b) failure << "\n  B of " << name << ": " << b.message();
    failed = failed || !a || !b;
  }
  return failed ? failure : testing::AssertionSuccess();
}

std::vector<float> score(engine::Engine& engine, const engine::AdapterId& adapter, const std::vector<int32_t>& tokens,
                         std::span<const int64_t> targets) {
  engine::Pack pack;
  pack.tokens = tokens;
  pack.segments.push_back({adapter, 0, static_cast<int>(tokens.size())});
  for (size_t row = 0; row < targets.size(); ++row) {
    pack.targets.push_back({static_cast<int>(row), static_cast<int32_t>(targets[row])});
  }
  std::vector<float> logprobs(targets.size());
  const Status status = engine.training().forward(pack, false, logprobs);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return logprobs;
}

std::optional<engine::TrainOutput> train(engine::Engine& engine, engine::TrainRequest request, int batch_tokens) {
  engine::TrainerOptions options;
  options.batch_tokens = batch_tokens;
  options.tokens_max = engine.model().max_position;
  auto output = engine::train_alone(engine, std::move(request), options);
  if (output.ok()) return std::move(output).value();
  ADD_FAILURE() << output.error().message;
  return std::nullopt;
}

std::vector<float> all_logits(engine::Engine& engine, const std::optional<engine::AdapterId>& adapter,
                              std::span<const int32_t> tokens, size_t piece) {
  std::vector<float> all;
  auto sequence = engine.decoding().open(adapter, 0);
  if (!sequence.ok()) {
    ADD_FAILURE() << sequence.error().message;
    return all;
  }
  const auto keep = engine::for_each_row(
      [&](size_t, int, std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
  while (!tokens.empty()) {
    const auto next = tokens.first(std::min(piece, tokens.size()));
    tokens = tokens.subspan(next.size());
    const engine::Feed feed{*sequence, next, static_cast<int>(next.size())};
    const Status status = engine.decoding().step({&feed, 1}, keep);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  engine.decoding().close(*sequence);
  return all;
}

std::vector<engine::SampleResult> sample(engine::Engine& engine, const std::vector<engine::SampleRequest>& requests) {
  engine::SamplerOptions options;
  options.tokens_max = engine.model().max_position;
  const auto sampler =
      engine::make_sampler(engine.model(), engine.adapters(), engine.decoding(), options, {}, system_clock());
  std::vector<engine::SampleResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto done = [&results, i](Result<engine::SampleResult> result) {
      EXPECT_TRUE(result.ok()) << result.error().message;
      if (result.ok()) results[i] = std::move(*result);
    };
    const auto number = sampler->submit(requests[i], done);
    EXPECT_TRUE(number.ok()) << number.error().message;
  }
  while (!sampler->idle()) sampler->step();
  return results;
}

void ParityTest::SetUp() {
  if (!back_end().missing.empty()) GTEST_SKIP() << back_end().missing;
  reference_ = std::make_unique<ReferenceCase>(std::get<1>(GetParam()));
  engine_ = make_engine({});
}

std::unique_ptr<engine::Engine> ParityTest::make_engine(const Wish& wish) {
  auto made = back_end().make(reference_->model_directory(), wish);
  if (!made.ok()) throw std::runtime_error(made.error().message);
  const Status status = (*made)->adapters().create(adapter_, reference_->adapter());
  if (!status.ok()) throw std::runtime_error(status.error().message);
  return std::move(*made);
}

}  // namespace tuft::parity
