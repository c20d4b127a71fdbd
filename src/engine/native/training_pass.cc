#include "engine/native/training_pass.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>

#include "engine/native/buffer.h"
#include "engine/native/for_rows.h"
#include "engine/native/ops/rows.h"

namespace tuft::engine::native {
namespace {

// Whether so little is free is not asked: it takes longer than a short pass.
constexpr int64_t kAskedBytesMin = int64_t{64} << 20;

}  // namespace

void TrainingPass::drop() {
  kept_ = false;
  adapters_.clear();
  batch_ = {};
  keep_.reset();
  layer_.reset();
  blocks_.clear();
  inputs_.clear();
  logits_ = nullptr;
  is_long_ = false;
  if (std::exchange(gives_back_, false)) give_memory_back();
}

void TrainingPass::give_memory_back() {
  keep_.renew(0);
  layer_.renew(0);
  model_.scratch().renew(0);
  model_.transformer().give_thread_memory_back();
}

size_t TrainingPass::held() const {
  return keep_.size() + layer_.size() + model_.scratch().size() + model_.transformer().thread_floats();
}

bool TrainingPass::has_room(const PassFloats& need) const {
  const auto missing = (static_cast<int64_t>(need.total()) - static_cast<int64_t>(held())) * int64_t{sizeof(float)};
  if (free_memory_ == nullptr || missing <= kAskedBytesMin) return true;
  const std::optional<int64_t> free = free_memory_();
  return !free || missing <= *free;
}

PassFloats TrainingPass::memory_of(const Pack& pack, bool backward, bool recompute) const {
  PassShape shape;
  shape.rows = pack.tokens.size();
  shape.segments = pack.segments.size();
  for (const Segment& segment : pack.segments) {
    const auto length = static_cast<size_t>(segment.end - segment.begin);
    shape.kv_blocks += (length + kKvBlock - 1) / kKvBlock;
    shape.longest = std::max(shape.longest, length);
    shape.one_adapter = shape.one_adapter && segment.adapter == pack.segments.front().adapter;
  }
  for (const auto& adapter : adapters_) {
    if (adapter != nullptr) shape.rank = std::max(shape.rank, static_cast<size_t>(adapter->spec().rank));
  }
  shape.logits_rows = std::min(rows_.size(), static_cast<size_t>(model_.logits_rows_max()));
  shape.keeps_logits = backward && shape.logits_rows == rows_.size();
  shape.backward = backward;
  shape.recompute = recompute;
  shape.threads = static_cast<size_t>(model_.pool().threads());
  return pass_floats(model_.spec(), shape);
}

// Decides whether the pass is long, and what becomes of its memory. Nothing else on this thread takes memory until it
// ends.
void TrainingPass::ask_for_memory(const Pack& pack, bool backward) {
  const size_t activations = Transformer::activation_floats(model_.spec()) * sizeof(float) * pack.tokens.size() *
                             static_cast<size_t>(model_.spec().layers);
  is_long_ = static_cast<int64_t>(activations) > activation_bytes_max_ || !has_room(memory_of(pack, backward, false));
  if (!is_long_) return;
  const PassFloats need = memory_of(pack, backward, true);
  gives_back_ = static_cast<int64_t>(need.total() * sizeof(float)) > activation_bytes_max_ || !has_room(need);
  if (!gives_back_) return;
  give_memory_back();
  if (!has_room(need)) throw std::bad_alloc();
  keep_.renew(need.keep);
  layer_.renew(need.layer);
  model_.scratch().renew(need.scratch);
}

bool TrainingPass::uses(const Adapter* adapter) const {
  return std::any_of(adapters_.begin(), adapters_.end(), [&](const auto& held) { return held.get() == adapter; });
}

void TrainingPass::make_batch(const Pack& pack) {
  const ModelSpec& spec = model_.spec();
  const size_t block = static_cast<size_t>(spec.kv_heads) * static_cast<size_t>(kv_head_floats(spec.head_dim));
  cache_pointers_.clear();
  std::vector<size_t> first;
  for (const Segment& segment : pack.segments) {
    first.push_back(cache_pointers_.size());
    for (int at = segment.begin; at < segment.end; at += kKvBlock) cache_pointers_.push_back(keep_.take(block));
  }
  for (size_t i = 0; i < pack.segments.size(); ++i) {
    const Segment& segment = pack.segments[i];
    const std::span<const int32_t> tokens(pack.tokens);
    batch_.append(adapters_[i].get(),
                  tokens.subspan(static_cast<size_t>(segment.begin), static_cast<size_t>(segment.end - segment.begin)),
                  0, cache_pointers_.data() + first[i]);
  }
}

void TrainingPass::temper(size_t index, float* logits) const {
  if (rows_.inverse_temperatures.empty() || rows_.inverse_temperatures[index] == 1.0F) return;
  scale_row(rows_.inverse_temperatures[index], model_.spec().vocab_size, logits);
}

void TrainingPass::run_blocks(bool keep) {
  Transformer& transformer = model_.transformer();
  const int layers = model_.spec().layers;
  const int rows = batch_.rows;
  const size_t width = floats(rows, model_.spec().hidden_size);
  recompute_ = keep && is_long_;
  const bool keep_all = keep && !recompute_;
  inputs_.assign(static_cast<size_t>(layers) + 1, keep_.take(width));
  for (size_t i = 1; i < inputs_.size() && keep; ++i) inputs_[i] = keep_.take(width);
  for (int i = 0; i < (keep_all ? layers : 1); ++i) blocks_.push_back(transformer.allocate(keep_, rows, keep));
  transformer.embed(batch_, inputs_.front());
  for (int layer = 0; layer < layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    BlockActivations& activations = blocks_[keep_all ? index : 0];
    activations.input = inputs_[index];
    if (!keep_all) layer_.reset();
    transformer.forward(batch_, layer, 0, activations, inputs_[index + 1], keep_all ? keep_ : layer_);
  }
}

BlockActivations& TrainingPass::recomputed(int layer) {
  if (!recompute_) return blocks_[static_cast<size_t>(layer)];
  layer_.reset();
  BlockActivations& activations = blocks_.front();
  activations.input = inputs_[static_cast<size_t>(layer)];
  // The output is already known. It is written to the memory of the last block's output, which is no longer needed.
  model_.transformer().forward(batch_, layer, 0, activations, inputs_.back(), layer_);
  return activations;
}

void TrainingPass::gather(std::span<const int> indices, float* to) {
  const int width = model_.spec().hidden_size;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int row = rows_.rows[static_cast<size_t>(indices[i])];
    std::copy_n(inputs_.back() + static_cast<ptrdiff_t>(row) * width, width, to + static_cast<ptrdiff_t>(i) * width);
  }
}

void TrainingPass::head_forward(bool keep, std::span<float> logprobs) {
  const int hidden = model_.spec().hidden_size;
  const int vocab = model_.spec().vocab_size;
  const int count = static_cast<int>(rows_.size());
  const int piece = std::min(count, model_.logits_rows_max());
  logits_ = keep && piece == count && count > 0 ? keep_.take(floats(count, vocab)) : nullptr;
  for (int begin = 0; begin < count; begin += piece) {
    const ArenaScope scope(model_.scratch());
    Arena& scratch = model_.scratch();
    Model::HeadRows head;
    head.rows = std::min(piece, count - begin);
    std::vector<int> indices(static_cast<size_t>(head.rows));
    std::iota(indices.begin(), indices.end(), begin);
    const auto rows = std::span(rows_.rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(head.rows));
    const std::vector<Run> runs = runs_of_rows(batch_.runs, rows);
    head.runs = runs;
    head.normed = scratch.take(floats(head.rows, hidden));
    head.logits = logits_ != nullptr ? logits_ : scratch.take(floats(head.rows, vocab));
    gather(indices, head.normed);
    model_.transformer().normalize(head.normed, model_.weights().final_norm, head.rows, head.normed, nullptr);
    layer_.reset();
    model_.head_forward(head, layer_);
    const auto write = [&](int row, int thread) {
      Distribution& distribution = distributions_[static_cast<size_t>(thread)];
      float* logits = head.logits + static_cast<ptrdiff_t>(row) * vocab;
      const auto index = static_cast<size_t>(begin + row);
      temper(index, logits);
      const bool finite = distribution.load({logits, static_cast<size_t>(vocab)});
      for (size_t t = rows_.first[index]; t < rows_.first[index + 1]; ++t) {
        logprobs[t] = finite ? distribution.logprob(rows_.targets[t].token) : std::numeric_limits<float>::quiet_NaN();
      }
    };
    model_.pool().run(head.rows, write);
  }
}

void TrainingPass::forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
                           std::span<float> logprobs) {
  drop();
  model_.scratch().reset();
  adapters_ = adapters;
  rows_ = TargetRows(pack);
  ask_for_memory(pack, keep);
  make_batch(pack);
  run_blocks(keep);
  head_forward(keep, logprobs);
  if (keep) {
    kept_ = true;
  } else {
    drop();
  }
}

void TrainingPass::head_backward_piece(std::span<const float> gradient, std::span<const int> active, float* dx) {
  Arena& scratch = model_.scratch();
  const ArenaScope scope(scratch);
  const int hidden = model_.spec().hidden_size;
  const int vocab = model_.spec().vocab_size;
  Model::HeadRows head;
  head.rows = static_cast<int>(active.size());
  std::vector<int> rows;
  for (const int index : active) rows.push_back(rows_.rows[static_cast<size_t>(index)]);
  const std::vector<Run> runs = runs_of_rows(batch_.runs, rows);
  head.runs = runs;
  float* top = scratch.take(floats(head.rows, hidden));
  float* inverse = scratch.take(static_cast<size_t>(head.rows));
  head.normed = scratch.take(floats(head.rows, hidden));
  gather(active, top);
  model_.transformer().normalize(top, model_.weights().final_norm, head.rows, head.normed, inverse);
  layer_.reset();
  if (logits_ != nullptr) {
    head.logits = logits_;
    // Moves the active rows over the rows that are no longer needed.
    for (int i = 0; i < head.rows; ++i) {
      const int from = active[static_cast<size_t>(i)];
      if (from == i) continue;
      std::copy_n(logits_ + static_cast<ptrdiff_t>(from) * vocab, vocab, logits_ + static_cast<ptrdiff_t>(i) * vocab);
    }
    model_.head_hidden(head, layer_);
  } else {
    head.logits = scratch.take(floats(head.rows, vocab));
    model_.head_forward(head, layer_);
  }
  for_rows(model_.pool(), head.rows, 4 * vocab, [&](int row) {
    const auto index = static_cast<size_t>(active[static_cast<size_t>(row)]);
    float* logits = head.logits + static_cast<ptrdiff_t>(row) * vocab;
    if (logits_ == nullptr) temper(index, logits);
    float total = 0;
    for (size_t t = rows_.first[index]; t < rows_.first[index + 1]; ++t) total += gradient[t];
    softmax_gradient(total, logsumexp(logits, vocab), vocab, logits);
    for (size_t t = rows_.first[index]; t < rows_.first[index + 1]; ++t) logits[rows_.targets[t].token] += gradient[t];
    temper(index, logits);
  });
  float* dnormed = scratch.take(floats(head.rows, hidden));
  model_.head_backward(head, dnormed);
  model_.transformer().normalize_backward(top, model_.weights().final_norm, inverse, dnormed, head.rows, false,
                                          dnormed);
  for (int i = 0; i < head.rows; ++i) {
    std::copy_n(dnormed + static_cast<ptrdiff_t>(i) * hidden, hidden,
                dx + static_cast<ptrdiff_t>(rows[static_cast<size_t>(i)]) * hidden);
  }
}

bool TrainingPass::head_backward(std::span<const float> gradient, float* dx) {
  const std::vector<int> active = rows_.active(gradient);
  const auto piece = static_cast<size_t>(model_.logits_rows_max());
  for (size_t begin = 0; begin < active.size(); begin += piece) {
    head_backward_piece(gradient, std::span(active).subspan(begin, std::min(piece, active.size() - begin)), dx);
  }
  return !active.empty();
}

void TrainingPass::backward(std::span<const float> gradient) {
  model_.scratch().reset();
  for (const auto& adapter : adapters_) {
    if (adapter != nullptr) adapter->prepare_gradients();
  }
  const size_t width = floats(batch_.rows, model_.spec().hidden_size);
  float* dx = keep_.take(width);
  std::fill_n(dx, width, 0.0F);
  const bool any = head_backward(gradient, dx);
  const bool blocks = any && std::any_of(adapters_.begin(), adapters_.end(), [](const auto& adapter) {
                        return adapter != nullptr && adapter->has_block_modules();
                      });
  for (int layer = model_.spec().layers - 1; layer >= 0 && blocks; --layer) {
    model_.transformer().backward(batch_, layer, recomputed(layer), layer > 0, dx);
  }
  drop();
}

}  // namespace tuft::engine::native
