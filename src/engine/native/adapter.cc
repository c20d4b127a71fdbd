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

// The adapter's tensors without values.
std::vector<LoraPair> pairs_of(const ModelSpec& model, const LoraSpec& spec) {
  std::vector<LoraPair> pairs;
  for (const LoraPlace& place : lora_places(model, spec)) {
    LoraPair& pair = pairs.emplace_back();
    static_cast<LoraPlace&>(pair) = place;
    pair.rank = spec.rank;
  }
  return pairs;
}

// Values of one kind (weights, gradients or a moment) as checkpoints hold them. An absent one is zero.
std::vector<LoraTensor> tensors_of(const std::vector<LoraPair>& pairs, Floats Parameter::*kind) {
  std::vector<LoraTensor> tensors;
  tensors.reserve(pairs.size());
  for (const LoraPair& pair : pairs) {
    LoraTensor tensor{pair.site, pair.layer, std::vector<float>(size_of(pair.rank, pair.in)),
                      std::vector<float>(size_of(pair.out, pair.rank))};
    const Floats& a = pair.a.*kind;
    const Floats& b = pair.b.*kind;
    if (!a.empty()) std::copy_n(a.data(), tensor.a.size(), tensor.a.begin());
    if (!b.empty()) transpose(b.data(), pair.rank, pair.out, 1.0F, tensor.b.data());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void set_tensors(const std::vector<LoraTensor>& tensors, Floats Parameter::*kind, std::vector<LoraPair>& pairs) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::copy(tensors[i].a.begin(), tensors[i].a.end(), (pairs[i].a.*kind).data());
    transpose(tensors[i].b.data(), pairs[i].out, pairs[i].rank, 1.0F, (pairs[i].b.*kind).data());
  }
}

void allocate(std::vector<LoraPair>& pairs, Floats Parameter::*kind) {
  for (LoraPair& pair : pairs) {
    pair.a.*kind = Floats(size_of(pair.rank, pair.in), true);
    pair.b.*kind = Floats(size_of(pair.rank, pair.out), true);
  }
}

void clear(std::vector<LoraPair>& pairs, Floats Parameter::*kind) {
  for (LoraPair& pair : pairs) {
    for (Floats* values : {&(pair.a.*kind), &(pair.b.*kind)}) std::fill_n(values->data(), values->size(), 0.0F);
  }
}

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::create(const ModelSpec& model, const AdapterState& state) {
  TUFT_TRY(check_adapter(model, state));
  auto adapter = std::make_unique<Adapter>();
  adapter->spec_ = state.spec;
  adapter->layers_ = model.layers;
  adapter->pairs_ = pairs_of(model, state.spec);
  for (LoraPair& pair : adapter->pairs_) {
    pair.a_scaled = Floats(size_of(pair.rank, pair.in), true);
    pair.b_scaled = Floats(size_of(pair.rank, pair.out), true);
  }
  adapter->parameters_ = parameters_of(model, state.spec);
  allocate(adapter->pairs_, &Parameter::value);
  adapter->assign(state);
  if (!state.gradients.empty()) {
    adapter->prepare_gradients();
    set_tensors(state.gradients, &Parameter::gradient, adapter->pairs_);
  }
  return adapter;
}

std::unique_ptr<Adapter> Adapter::clone(ThreadPool& pool) const {
  auto copy = std::make_unique<Adapter>();
  copy->spec_ = spec_;
  copy->layers_ = layers_;
  copy->parameters_ = parameters_;
  copy->pairs_.reserve(pairs_.size());
  for (const LoraPair& from : pairs_) {
    LoraPair to;
    static_cast<LoraPlace&>(to) = from;
    to.rank = from.rank;
    to.a.value = Floats(from.a.value.size());
    to.b.value = Floats(from.b.value.size());
    to.a_scaled = Floats(from.a_scaled.size());
    to.b_scaled = Floats(from.b_scaled.size());
    copy->pairs_.push_back(std::move(to));
  }
  const auto fill = [&](int index, int) {
    const LoraPair& from = pairs_[static_cast<size_t>(index)];
    LoraPair& to = copy->pairs_[static_cast<size_t>(index)];
    std::copy_n(from.a.value.data(), from.a.value.size(), to.a.value.data());
    std::copy_n(from.b.value.data(), from.b.value.size(), to.b.value.data());
    std::copy_n(from.a_scaled.data(), from.a_scaled.size(), to.a_scaled.data());
    std::copy_n(from.b_scaled.data(), from.b_scaled.size(), to.b_scaled.data());
  };
  pool.run(static_cast<int>(pairs_.size()), fill);
  return copy;
}

LoraPair* Adapter::find(Site site, int layer) {
  const int index = lora_place_index(layers_, spec_, site, layer);
  return index < 0 ? nullptr : &pairs_[static_cast<size_t>(index)];
}

AdapterMemory Adapter::memory() const {
  const int64_t bytes = parameters_ * static_cast<int64_t>(sizeof(float));
  const int64_t copies = int64_t{has_gradients_} + int64_t{!marked_gradients_.empty()};
  return {.weights = 2 * bytes, .gradients = copies * bytes, .optimizer = has_moments_ ? 2 * bytes : 0};
}

AdapterState Adapter::state(bool with_optimizer) const {
  AdapterState state;
  state.spec = spec_;
  state.tensors = tensors_of(pairs_, &Parameter::value);
  state.has_optimizer = with_optimizer;
  if (with_optimizer) {
    state.adam.step = step_;
    state.adam.first = tensors_of(pairs_, &Parameter::first);
    state.adam.second = tensors_of(pairs_, &Parameter::second);
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
    step_ = state.adam.step;
    set_tensors(state.adam.first, &Parameter::first, pairs_);
    set_tensors(state.adam.second, &Parameter::second, pairs_);
  } else if (has_moments_) {
    clear(pairs_, &Parameter::first);
    clear(pairs_, &Parameter::second);
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
  if (has_moments_) return;
  allocate(pairs_, &Parameter::first);
  allocate(pairs_, &Parameter::second);
  has_moments_ = true;
}

void Adapter::prepare_gradients() {
  if (!has_gradients_) allocate(pairs_, &Parameter::gradient);
  has_gradients_ = true;
  gradients_touched_ = true;
}

void Adapter::clear_gradients() {
  if (has_gradients_) clear(pairs_, &Parameter::gradient);
  gradients_touched_ = false;
  drop_mark();
}

void Adapter::drop_mark() {
  marked_ = false;
  marked_gradients_.clear();
}

void Adapter::mark_gradients() {
  if (!gradients_touched_) {
    drop_mark();
    marked_ = true;
    return;
  }
  std::vector<Floats> copies = std::move(marked_gradients_);
  drop_mark();
  for (size_t i = copies.size(); i < 2 * pairs_.size(); ++i) {
    const LoraPair& pair = pairs_[i / 2];
    copies.emplace_back(i % 2 == 0 ? pair.a.gradient.size() : pair.b.gradient.size());
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    const LoraPair& pair = pairs_[i / 2];
    const Floats& gradient = i % 2 == 0 ? pair.a.gradient : pair.b.gradient;
    std::copy_n(gradient.data(), gradient.size(), copies[i].data());
  }
  marked_gradients_ = std::move(copies);
  marked_ = true;
}

bool Adapter::restore_gradients() {
  if (!marked_) return false;
  if (marked_gradients_.empty()) {
    if (has_gradients_) clear(pairs_, &Parameter::gradient);
    gradients_touched_ = false;
    return true;
  }
  for (size_t i = 0; i < marked_gradients_.size(); ++i) {
    LoraPair& pair = pairs_[i / 2];
    Floats& gradient = i % 2 == 0 ? pair.a.gradient : pair.b.gradient;
    std::copy_n(marked_gradients_[i].data(), gradient.size(), gradient.data());
  }
  return true;
}

void Adapter::consume_gradients() {
  gradients_touched_ = false;
  drop_mark();
}

}  // namespace tuft::engine::native
