// Compares the computed memory of a training pass with what passes take.
#include "engine/native/pass_memory.h"

#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"
#include "engine/native/training_pass.h"

namespace tuft::engine::native::test {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

class PassMemory : public ::testing::Test {
 protected:
  using Adapters = std::vector<std::shared_ptr<Adapter>>;

  explicit PassMemory(int layers = 2) : spec_(spec_of(layers)) {}
  static ModelSpec spec_of(int layers) {
    ModelSpec spec = tiny_spec(Family::kQwen3, true);
    spec.layers = layers;
    return spec;
  }

  std::shared_ptr<Adapter> adapter(int rank) {
    return Adapter::create(spec_, random_adapter(spec_, rank, static_cast<uint64_t>(rank))).value();
  }
  // Two segments, each row with a target.
  Pack two_segments(const char* first, const char* second) const {
    Pack pack;
    pack.tokens = random_tokens(spec_, 700, 3);
    pack.segments = {{AdapterId(first), 0, 400}, {AdapterId(second), 400, 700}};
    for (int row = 0; row < 700; ++row) pack.targets.push_back({row, 1});
    return pack;
  }
  void forward(TrainingPass& pass, const Pack& pack, const Adapters& adapters, bool keep) {
    std::vector<float> logprobs(pack.targets.size());
    pass.forward(pack, adapters, keep, logprobs);
  }
  static void backward(TrainingPass& pass) { pass.backward(std::vector<float>(pass.targets(), -1.0F)); }
  static size_t sum(const PassFloats& need) { return need.keep + need.layer + need.scratch; }
  static void expect_about(size_t taken, size_t computed) {
    EXPECT_LE(taken, computed);
    EXPECT_GE(taken, computed / 10 * 8);
  }

  const ModelSpec spec_;
  const MemoryTensors tensors_{spec_, 7};
  ThreadPool pool_{2};
  Model model_{spec_, load_weights(spec_, tensors_, WeightsDtype::kFloat32, pool_).value(), pool_};
};

TEST_F(PassMemory, IsThatOfForwardAndBackwardOfOneAdapter) {
  TrainingPass pass(model_, kNoLimit, {});
  const Pack both = two_segments("a", "a");
  const auto a = adapter(5);
  forward(pass, both, {a, a}, true);
  const PassFloats need = pass.memory_of(both, true, false);
  backward(pass);
  expect_about(pass.most(), sum(need));
  EXPECT_GE(need.threads, model_.transformer().thread_floats());
}

TEST_F(PassMemory, IsThatOfForwardAndBackwardOfSeveralAdapters) {
  TrainingPass pass(model_, kNoLimit, {});
  const Pack both = two_segments("a", "b");
  forward(pass, both, {adapter(5), adapter(17)}, true);
  const PassFloats need = pass.memory_of(both, true, false);
  backward(pass);
  expect_about(pass.most(), sum(need));
}

TEST_F(PassMemory, IsThatOfForwardAlone) {
  TrainingPass pass(model_, kNoLimit, {});
  const Pack both = two_segments("", "");
  forward(pass, both, {nullptr, nullptr}, false);
  expect_about(pass.most(), sum(pass.memory_of(both, false, false)));
}

TEST_F(PassMemory, LongPassTakesWhatWasComputedAndGivesItBack) {
  TrainingPass pass(model_, 1, {});
  const Pack both = two_segments("a", "a");
  const auto a = adapter(5);
  forward(pass, both, {a, a}, true);
  EXPECT_EQ(pass.most(), sum(pass.memory_of(both, true, true))) << "no more than was asked for";
  EXPECT_GT(pass.held(), 0U);
  backward(pass);
  EXPECT_EQ(pass.held(), 0U);
  forward(pass, both, {a, a}, true);
  pass.drop();
  EXPECT_EQ(pass.held(), 0U) << "without its backward pass";
  forward(pass, both, {a, a}, false);
  EXPECT_EQ(pass.held(), 0U);
}

class PassMemoryOfManyLayers : public PassMemory {
 protected:
  PassMemoryOfManyLayers() : PassMemory(16) {}
};

TEST_F(PassMemoryOfManyLayers, LongPassWithinTheLimitKeepsItsMemory) {
  const Pack both = two_segments("a", "a");
  const auto a = adapter(5);
  TrainingPass other(model_, kNoLimit, {});
  forward(other, both, {a, a}, true);
  const size_t limit = other.memory_of(both, true, true).total();
  TrainingPass pass(model_, static_cast<int64_t>(limit * sizeof(float)), {});
  forward(pass, both, {a, a}, true);
  const PassFloats need = pass.memory_of(both, true, true);
  backward(pass);
  EXPECT_GE(pass.held(), need.keep / 10 * 8);
  EXPECT_LT(pass.most(), sum(pass.memory_of(both, true, false))) << "its blocks kept only their input";
}

}  // namespace
}  // namespace tuft::engine::native::test
