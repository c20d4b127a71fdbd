#include "engine/native/adapter.h"

#include <algorithm>
#include <utility>

namespace tuft::engine::native {
namespace {

size_t size_of(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

// to[c][r] = from[r][c] * factor
void transpose(const float* from, int rows, int columns, float factor, float* to) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      to[static_cast<int64_t>(c) * rows + r] = from[static_cast<int64_t>(r) * columns + c] * factor;
    }
  }
}

// Returns the adapter's pairs with their shapes, but without values.
std::vector<LoraPair> pairs_of(const ModelSpec& model, const LoraSpec& spec) {
  std::vector<LoraPair> pairs;
  for (const LoraLayer& layer : lora_layers(model, spec)) {
    LoraPair& pair = pairs.emplace_back();
    static_cast<LoraLayer&>(pair) = layer;
    pair.rank = spec.rank;
  }
  return pairs;
}

// Returns values of one kind (weights, gradients or a moment) in the layout of checkpoints; zeros if there are none.
std::vector<LoraTensor> tensors_of(const std::vector<LoraPair>& pairs, std::span<float> Parameter::*kind) {
  std::vector<LoraTensor> tensors;
  tensors.reserve(pairs.size());
  for (const LoraPair& pair : pairs) {
    LoraTensor tensor{pair.module, pair.layer, std::vector<float>(size_of(pair.rank, pair.in)),
                      std::vector<float>(size_of(pair.out, pair.rank))};
    const std::span<const float> a = pair.a.*kind;
    const std::span<const float> b = pair.b.*kind;
    if (!a.empty()) std::copy_n(a.data(), tensor.a.size(), tensor.a.begin());
    if (!b.empty()) transpose(b.data(), pair.rank, pair.out, 1.0F, tensor.b.data());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void set_tensors(const std::vector<LoraTensor>& tensors, std::span<float> Parameter::*kind,
                 std::vector<LoraPair>& pairs) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::copy(tensors[i].a.begin(), tensors[i].a.end(), (pairs[i].a.*kind).data());
    transpose(tensors[i].b.data(), pairs[i].out, pairs[i].rank, 1.0F, (pairs[i].b.*kind).data());
  }
}

// Places values side by side in one block. Used once without a block to find the size, and once with the block.
class Layout {
 public:
  explicit Layout(float* block) : block_(block) {}
  void add(std::span<float>& values, size_t size) {
    constexpr size_t kAlign = 16;
    if (block_ != nullptr) values = {block_ + used_, size};
    used_ += (size + kAlign - 1) / kAlign * kAlign;
  }
  size_t used() const { return used_; }

 private:
  float* block_;
  size_t used_ = 0;
};

// Returns a block for everything that `add(pair, layout)` places for every pair; zeroed if `zero`.
template <typename Add>
Floats lay_out(std::vector<LoraPair>& pairs, bool zero, const Add& add) {
  Layout size(nullptr);
  for (LoraPair& pair : pairs) add(pair, size);
  Floats block(size.used(), zero);
  Layout places(block.data());
  for (LoraPair& pair : pairs) add(pair, places);
  return block;
}

Floats lay_out(std::vector<LoraPair>& pairs, std::span<float> Parameter::*kind, bool zero = true) {
  return lay_out(pairs, zero, [kind](LoraPair& pair, Layout& layout) {
    layout.add(pair.a.*kind, size_of(pair.rank, pair.in));
    layout.add(pair.b.*kind, size_of(pair.rank, pair.out));
  });
}

void copy_block(const Floats& from, Floats& to, ThreadPool& pool) {
  constexpr size_t kPiece = size_t{1} << 16;
  const auto copy = [&](int index, int) {
    const size_t begin = static_cast<size_t>(index) * kPiece;
    std::copy_n(from.data() + begin, std::min(kPiece, from.size() - begin), to.data() + begin);
  };
  pool.run(static_cast<int>((from.size() + kPiece - 1) / kPiece), copy);
}

void clear(Floats& block) {
  std::fill_n(block.data(), block.size(), 0.0F);
}

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::create(const ModelSpec& model, const AdapterState& state) {
  TUFT_TRY(check_adapter(model, state));
  auto adapter = std::make_unique<Adapter>();
  adapter->spec_ = state.spec;
  adapter->optimizer_ = state.optimizer;
  adapter->layers_ = model.layers;
  adapter->pairs_ = pairs_of(model, state.spec);
  adapter->parameters_ = parameters_of(model, state.spec);
  adapter->place_weights(true);
  adapter->assign(state);
  if (!state.gradients.empty()) {
    adapter->prepare_gradients();
    set_tensors(state.gradients, &Parameter::gradient, adapter->pairs_);
  }
  return adapter;
}

std::unique_ptr<Adapter> Adapter::clone(ThreadPool& pool, bool with_moments) const {
  auto copy = std::make_unique<Adapter>();
  copy->spec_ = spec_;
  copy->optimizer_ = optimizer_;
  copy->layers_ = layers_;
  copy->parameters_ = parameters_;
  for (const LoraPair& from : pairs_) {
    LoraPair& to = copy->pairs_.emplace_back();
    static_cast<LoraLayer&>(to) = from;
    to.rank = from.rank;
  }
  // Nobody gets a token while this runs, and zeroing would take as long as copying: all threads touch the memory first.
  copy->place_weights(false);
  copy_block(weights_, copy->weights_, pool);
  if (with_moments && has_moments()) {
    copy->place_moments(false);
    copy_block(first_, copy->first_, pool);
    copy_block(second_, copy->second_, pool);
    copy->step_ = step_;
  }
  return copy;
}

// Sampling reads a_scaled and the value of b of all pairs; both come first, so that it reads them in order.
void Adapter::place_weights(bool zero) {
  weights_ = lay_out(pairs_, zero, [](LoraPair& pair, Layout& layout) {
    layout.add(pair.a_scaled, size_of(pair.rank, pair.in));
    layout.add(pair.b.value, size_of(pair.rank, pair.out));
    layout.add(pair.a.value, size_of(pair.rank, pair.in));
    layout.add(pair.b_scaled, size_of(pair.rank, pair.out));
  });
}

LoraPair* Adapter::find(TargetModule module, int layer) {
  const int index = lora_layer_index(layers_, spec_, module, layer);
  return index < 0 ? nullptr : &pairs_[static_cast<size_t>(index)];
}

AdapterMemory Adapter::memory() const {
  const int64_t bytes = parameters_ * static_cast<int64_t>(sizeof(float));
  const int64_t copies = int64_t{!gradients_.empty()} + int64_t{!marked_gradients_.empty()};
  const int64_t moments = int64_t{!first_.empty()} + int64_t{!second_.empty()};
  return {.weights = 2 * bytes, .gradients = copies * bytes, .optimizer = moments * bytes};
}

// In training: value, scaled copy, gradient, mark and two moments. For sampling: value and scaled copy.
int64_t Adapter::bytes(const ModelSpec& model, const LoraSpec& spec, bool trains) {
  return parameters_of(model, spec) * static_cast<int64_t>(sizeof(float)) * (trains ? 6 : 2);
}

AdapterState Adapter::state(bool with_optimizer) const {
  AdapterState state;
  state.spec = spec_;
  state.tensors = tensors_of(pairs_, &Parameter::value);
  state.optimizer = optimizer_;
  state.has_optimizer = with_optimizer;
  if (with_optimizer) {
    state.moments.step = step_;
    state.moments.first = tensors_of(pairs_, &Parameter::first);
    if (optimizer_ == Optimizer::kAdamW) state.moments.second = tensors_of(pairs_, &Parameter::second);
  }
  return state;
}

std::vector<LoraTensor> Adapter::gradients() const {
  return tensors_of(pairs_, &Parameter::gradient);
}

void Adapter::assign(const AdapterState& state) {
  if (state.has_optimizer) prepare_moments();
  spec_ = state.spec;
  set_tensors(state.tensors, &Parameter::value, pairs_);
  for (LoraPair& pair : pairs_) {
    refresh(pair, true);
    refresh(pair, false);
  }
  clear_gradients();
  step_ = 0;
  if (state.has_optimizer) {
    step_ = state.moments.step;
    set_tensors(state.moments.first, &Parameter::first, pairs_);
    if (optimizer_ == Optimizer::kAdamW) set_tensors(state.moments.second, &Parameter::second, pairs_);
  } else {
    clear(first_);
    clear(second_);
  }
}

void Adapter::refresh(LoraPair& pair, bool is_a) const {
  if (is_a) {
    transpose(pair.a.value.data(), pair.rank, pair.in, spec_.scale(), pair.a_scaled.data());
  } else {
    transpose(pair.b.value.data(), pair.rank, pair.out, spec_.scale(), pair.b_scaled.data());
  }
}

void Adapter::prepare_moments() {
  if (!has_moments()) place_moments(true);
}

void Adapter::place_moments(bool zero) {
  Floats second;
  if (optimizer_ == Optimizer::kAdamW) second = lay_out(pairs_, &Parameter::second, zero);
  first_ = lay_out(pairs_, &Parameter::first, zero);
  second_ = std::move(second);
}

void Adapter::prepare_gradients() {
  if (gradients_.empty()) gradients_ = lay_out(pairs_, &Parameter::gradient);
  gradients_touched_ = true;
}

void Adapter::clear_gradients() {
  clear(gradients_);
  gradients_touched_ = false;
  drop_mark();
}

void Adapter::drop_mark() {
  marked_ = false;
  marked_gradients_ = {};
}

void Adapter::mark_gradients() {
  if (gradients_touched_) {
    std::copy_n(gradients_.data(), gradients_.size(), marked_gradients_.reserve(gradients_.size()));
  } else {
    drop_mark();
  }
  marked_ = true;
}

bool Adapter::restore_gradients() {
  if (!marked_) return false;
  gradients_touched_ = !marked_gradients_.empty();
  if (gradients_touched_) {
    std::copy_n(marked_gradients_.data(), gradients_.size(), gradients_.data());
  } else {
    clear(gradients_);
  }
  return true;
}

void Adapter::consume_gradients() {
  gradients_touched_ = false;
  drop_mark();
}

}  // namespace tuft::engine::native
