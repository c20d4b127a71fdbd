// An Engine without a model: logits are a function of the adapter's id and the tokens so far. It aborts if a caller
// violates the contract of a port.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/back_end/kv_sequence.h"
#include "engine/engine.h"
#include "engine/sample/block_pool.h"

namespace tuft::engine::testing {

// It has many methods because it implements all four ports.
class FakeEngine final : public Engine, public AdapterStore, public TrainingEngine, public DecodeEngine {
 public:
  using History = std::vector<int32_t>;
  // Returns the logits of the token after `history`.
  using Model = std::function<std::vector<float>(const std::optional<AdapterId>& adapter, const History& history)>;

  // The KV cache has blocks of 10 bytes and 4 positions.
  explicit FakeEngine(int vocab_size = 16, int64_t kv_blocks = 100, const Clock& clock = system_clock())
      : pool_(4, kv_blocks, clock) {
    spec_.architecture = "FakeForCausalLM";
    spec_.vocab_size = vocab_size;
    spec_.hidden_size = 4;
    spec_.intermediate_size = 8;
    spec_.layers = 1;
    spec_.heads = spec_.kv_heads = 1;
    spec_.head_dim = 4;
    spec_.max_position = 1024;
    model_function = [vocab_size](const std::optional<AdapterId>& adapter, const History& history) {
      size_t state = adapter ? std::hash<std::string>{}(adapter->str()) : 7;
      for (const int32_t token : history) state = state * 1099511628211ULL + static_cast<size_t>(token) + 1;
      std::vector<float> logits(static_cast<size_t>(vocab_size));
      for (auto& logit : logits) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        logit = static_cast<float>(state >> 40) * 0x1.0p-24F * 4.0F;
      }
      return logits;
    };
  }

  // Settings of a test.
  Model model_function;
  std::function<void()> before_open;                         // of a sequence
  std::function<Status(std::span<const Feed>)> before_step;  // an error fails the step
  std::function<Status(const Pack&)> before_forward;
  std::function<Status(const AdapterId&)> before_create;
  std::function<void(std::span<const AdapterStep>)> before_steps;
  std::function<void()> after_steps;
  DeviceTimes on_device;
  double peak = 0;
  double assumed_peak = 0;
  bool breaks_weights = false;    // the next optimizer steps do
  bool without_gradient = false;  // the next optimizer steps find none
  // Observations of a test.
  std::vector<size_t> step_tokens;  // by step
  std::vector<size_t> step_feeds;
  int forks = 0;
  mutable int exports = 0;  // copies of adapters' states
  size_t fed = 0;           // tokens
  size_t adopted = 0;       // tokens taken from the cache
  size_t open_sequences() const { return sequences_.size(); }
  size_t length(SequenceId sequence) const { return sequences_.at(sequence).history.size(); }
  ModelSpec& model_spec() { return spec_; }
  float log_probability(const std::optional<AdapterId>& adapter, const History& history, int32_t token) const {
    const auto logits = model_function(adapter, history);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - std::log(sum));
  }

  const ModelSpec& model() const override { return spec_; }
  std::string_view weights_dtype() const override { return "f32"; }
  AdapterStore& adapters() override { return *this; }
  TrainingEngine& training() override { return *this; }
  DecodeEngine& decoding() override { return *this; }

  Status create(const AdapterId& id, const AdapterState& state) override {
    if (contains(id)) return Error{ErrorCode::kAlreadyExists, "the adapter exists", ""};
    if (before_create) TUFT_TRY(before_create(id));
    const double gradient = state.gradients.empty() ? 0.0 : static_cast<double>(state.gradients[0].a[0]);
    adapters_[id] = {state, gradient, ++last_version_};
    adapters_[id].state.gradients.clear();
    return {};
  }
  Status remove(const AdapterId& id) override {
    if (!contains(id)) return no_adapter();
    pool_.forget(adapters_[id].version);
    adapters_.erase(id);
    return {};
  }
  const LoraSpec* spec(const AdapterId& id) const override {
    const auto found = adapters_.find(id);
    return found == adapters_.end() ? nullptr : &found->second.state.spec;
  }
  size_t size() const override { return adapters_.size(); }
  AdapterMemory memory() const override {
    const auto count = static_cast<int64_t>(adapters_.size());
    return {.weights = 100 * count, .gradients = 10 * count, .optimizer = count};
  }
  Result<AdapterState> export_state(const AdapterId& id, bool with_optimizer) const override {
    const auto found = adapters_.find(id);
    if (found == adapters_.end()) return no_adapter();
    ++exports;
    AdapterState state = found->second.state;
    state.has_optimizer = with_optimizer;
    if (!with_optimizer) state.moments = {};
    return state;
  }
  Status import_state(const AdapterId& id, const AdapterState& state) override {
    if (!contains(id)) return no_adapter();
    pool_.forget(adapters_[id].version);
    adapters_[id] = {state, 0.0, ++last_version_};
    return {};
  }
  Status clone(const AdapterId& source, const AdapterId& copy) override {
    TUFT_ASSIGN(const AdapterState state, export_state(source, false));
    return create(copy, state);
  }
  Result<AdapterState> take(const AdapterId& id) override {
    const auto found = adapters_.find(id);
    if (found == adapters_.end()) return no_adapter();
    TUFT_ASSIGN(AdapterState state, export_state(id, found->second.state.moments.step > 0));
    if (found->second.gradient != 0) state.gradients = gradients(id).value();
    TUFT_TRY(remove(id));
    return state;
  }
  // 60 for an adapter in training, 20 for a frozen one.
  int64_t bytes_of(const LoraSpec&, bool trains) const override { return trains ? 60 : 20; }

  Status forward(const Pack& pack, bool keep, std::span<float> logprobs) override {
    TUFT_CHECK(logprobs.size() == pack.targets.size(), "one log-probability per target");
    if (before_forward) TUFT_TRY(before_forward(pack));
    kept_.reset();
    size_t target = 0;
    for (const Segment& segment : pack.segments) {
      if (!contains(segment.adapter)) return no_adapter();
      for (; target < pack.targets.size() && pack.targets[target].row < segment.end; ++target) {
        const auto begin = pack.tokens.begin() + segment.begin;
        const History history(begin, pack.tokens.begin() + pack.targets[target].row + 1);
        logprobs[target] = log_probability(segment.adapter, history, pack.targets[target].token);
      }
    }
    if (keep) kept_ = pack;
    return {};
  }
  Status backward(std::span<const float> dloss_dlogprobs) override {
    TUFT_CHECK(kept_.has_value(), "backward() without forward(keep)");
    TUFT_CHECK(dloss_dlogprobs.size() == kept_->targets.size(), "one derivative per target");
    for (size_t i = 0; i < dloss_dlogprobs.size(); ++i) {
      for (const Segment& segment : kept_->segments) {
        const int row = kept_->targets[i].row;
        if (row >= segment.begin && row < segment.end) {
          adapters_[segment.adapter].gradient += static_cast<double>(dloss_dlogprobs[i]);
        }
      }
    }
    kept_.reset();
    return {};
  }
  void drop_pass() override { kept_.reset(); }

  std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep> steps) override {
    if (before_steps) before_steps(steps);
    std::vector<Result<OptimReport>> results;
    for (const AdapterStep& step : steps) {
      const auto found = adapters_.find(step.adapter);
      if (found == adapters_.end()) {
        results.emplace_back(no_adapter());
        continue;
      }
      OptimReport report;
      report.grad_norm = std::abs(std::exchange(found->second.gradient, 0.0));
      report.parameters = 1;
      report.applied = std::isfinite(report.grad_norm) && !without_gradient;
      report.finite = !breaks_weights;
      found->second.marked.reset();
      report.step = report.applied ? ++found->second.state.moments.step : found->second.state.moments.step;
      results.emplace_back(report);
    }
    if (after_steps) after_steps();
    return results;
  }
  Status clear_gradients(const AdapterId& id) override {
    if (!contains(id)) return no_adapter();
    adapters_[id].gradient = 0;
    adapters_[id].marked.reset();
    return {};
  }
  Status mark_gradients(const AdapterId& id) override {
    if (!contains(id)) return no_adapter();
    adapters_[id].marked = adapters_[id].gradient;
    return {};
  }
  Status restore_gradients(const AdapterId& id) override {
    if (!contains(id)) return no_adapter();
    TUFT_CHECK(adapters_[id].marked.has_value(), "restore_gradients() without mark_gradients()");
    adapters_[id].gradient = *adapters_[id].marked;
    return {};
  }
  Result<std::vector<LoraTensor>> gradients(const AdapterId& id) const override {
    const auto found = adapters_.find(id);
    if (found == adapters_.end()) return no_adapter();
    return std::vector<LoraTensor>{{TargetModule::kQ, 0, {static_cast<float>(found->second.gradient)}, {}}};
  }

  Result<SequenceId> open(const std::optional<AdapterId>& adapter, uint64_t scope) override {
    if (adapter && !contains(*adapter)) return no_adapter();
    if (before_open) before_open();
    Sequence sequence;
    sequence.adapter = adapter;
    sequence.held.owner = {adapter ? adapters_[*adapter].version : 0, scope};
    sequences_.emplace(last_sequence_ + 1, std::move(sequence));
    return ++last_sequence_;
  }
  Result<SequenceId> fork(SequenceId source) override {
    TUFT_CHECK(sequences_.count(source) == 1, "fork of a sequence that is not open");
    Sequence copy = sequences_[source];
    std::map<SequenceId, Sequence> added;
    added[last_sequence_ + 1].adapter = copy.adapter;
    auto fork = pool_.fork(copy.held);
    if (!fork) return cache_full();
    ++forks;
    copy.held = std::move(fork->sequence);
    added.begin()->second = std::move(copy);
    sequences_.merge(added);
    return ++last_sequence_;
  }
  void close(SequenceId sequence) override {
    TUFT_CHECK(sequences_.count(sequence) == 1, "close of a sequence that is not open");
    pool_.close(sequences_[sequence].held);
    sequences_.erase(sequence);
  }
  int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) override {
    TUFT_CHECK(sequences_.count(sequence) == 1, "adoption by a sequence that is not open");
    Sequence& into = sequences_[sequence];
    const int count = pool_.adopt(into.held, tokens);
    into.history.insert(into.history.end(), tokens.begin(), tokens.begin() + count);
    adopted += static_cast<size_t>(count);
    return count;
  }
  Status step(std::span<const Feed> feeds, const LogitsSink& sink) override {
    if (before_step) TUFT_TRY(before_step(feeds));
    for (const Feed& feed : feeds) {
      TUFT_CHECK(sequences_.count(feed.sequence) == 1, "step of a sequence that is not open");
      if (!pool_.extend(sequences_[feed.sequence].held, static_cast<int>(feed.tokens.size()))) return cache_full();
    }
    size_t tokens = 0;
    for (size_t i = 0; i < feeds.size(); ++i) {
      Sequence& sequence = sequences_[feeds[i].sequence];
      const int count = static_cast<int>(feeds[i].tokens.size());
      tokens += feeds[i].tokens.size();
      for (int row = 0; row < count; ++row) {
        sequence.history.push_back(feeds[i].tokens[static_cast<size_t>(row)]);
        if (row < count - feeds[i].logits) continue;
        const std::vector<float> logits = model_function(sequence.adapter, sequence.history);
        const LogitsRow one{i, row, logits};
        sink({&one, 1});
      }
    }
    for (const Feed& feed : feeds) pool_.commit(sequences_[feed.sequence].held, feed.tokens);
    step_tokens.push_back(tokens);
    step_feeds.push_back(feeds.size());
    fed += tokens;
    return {};
  }
  KvUsage kv_usage() const override { return kv_usage_of(pool_, 10); }
  DeviceTimes device_times() override { return on_device; }
  double peak_flops() const override { return peak; }
  double assumed_peak_flops() const override { return assumed_peak; }
  std::vector<KvBlockTime> take_kv_block_times() override { return pool_.take_times(); }

 private:
  struct Adapter {
    AdapterState state;
    double gradient = 0;
    uint64_t version = 0;
    std::optional<double> marked = {};
  };
  struct Sequence {
    std::optional<AdapterId> adapter;
    History history;
    BlockPool::Sequence held;
  };

  static Error no_adapter() { return not_found("no such adapter", "adapter_not_loaded"); }
  static Error cache_full() { return {ErrorCode::kResourceExhausted, "the KV cache is full", "kv_cache_full"}; }

  ModelSpec spec_;
  std::map<AdapterId, Adapter> adapters_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId last_sequence_ = 0;
  uint64_t last_version_ = 0;
  BlockPool pool_;
  std::optional<Pack> kept_;
};

}  // namespace tuft::engine::testing
