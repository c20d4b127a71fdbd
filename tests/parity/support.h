// What the parity tests share: comparing, and driving an engine to an end.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "back_end.h"
#include "engine/sample/sampler.h"
#include "reference_case.h"

namespace tuft::parity {

// Every |got - want| <= absolute + relative * |want|; names the worst element otherwise.
testing::AssertionResult near_all(std::span<const float> got, std::span<const float> want, double absolute,
                                  double relative = 0.0);
// The same bits.
testing::AssertionResult same_all(std::span<const float> got, std::span<const float> want);

// A and B of every tensor as near_all; `of_largest` times the largest |want| of a tensor is added to the allowance.
testing::AssertionResult near_lora(const std::vector<engine::LoraTensor>& got,
                                   const std::vector<engine::LoraTensor>& want, double absolute, double relative,
                                   double of_largest = 0.0);

// log p(targets[i] | tokens[0..i]) of one sequence alone, by forward().
std::vector<float> score(engine::Engine& engine, const engine::AdapterId& adapter, const std::vector<int32_t>& tokens,
                         std::span<const int64_t> targets);

// The result of one request that runs alone; fails the test and returns nothing on an error.
std::optional<engine::TrainOutput> train(engine::Engine& engine, engine::TrainRequest request, int batch_tokens);

// Raw logits of all rows of a sequence, its tokens fed `piece` at a time.
std::vector<float> all_logits(engine::Engine& engine, const std::optional<engine::AdapterId>& adapter,
                              std::span<const int32_t> tokens, size_t piece);

// Runs the requests together to their ends, in order of submission.
std::vector<engine::SampleResult> sample(engine::Engine& engine, const std::vector<engine::SampleRequest>& requests);

// Of two ways to the same numbers: the same bits where the back end promises them, else within `error`.
testing::AssertionResult agree(const BackEnd& back_end, std::span<const float> got, std::span<const float> want,
                               double error = 1e-5);

// One test per back end and case; makes the engine and puts the reference adapter into it under the name "reference".
class ParityTest : public testing::TestWithParam<std::tuple<BackEnd, std::string>> {
 protected:
  void SetUp() override;
  // Another engine of the same case.
  std::unique_ptr<engine::Engine> make_engine(const Wish& wish);

  const BackEnd& back_end() const { return std::get<0>(GetParam()); }

  const engine::AdapterId adapter_{"reference"};
  std::unique_ptr<ReferenceCase> reference_;
  std::unique_ptr<engine::Engine> engine_;  // f32
};

inline std::string parity_name(const testing::TestParamInfo<ParityTest::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param);
}

}  // namespace tuft::parity

// Instantiates a suite derived from ParityTest for every back end and case.
#define TUFT_PARITY_SUITE(suite)                                                                      \
  INSTANTIATE_TEST_SUITE_P(All, suite,                                                                \
                           testing::Combine(testing::ValuesIn(tuft::parity::back_ends()),             \
                                            testing::ValuesIn(tuft::parity::reference_case_names())), \
                           tuft::parity::parity_name)
