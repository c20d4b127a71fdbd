#include "engine/torch/training_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

namespace tuft::engine::torch {
void TrainingPass::drop() {
  batch_.reset();
  adapters_.clear();
  owners_.clear();
  inputs_.clear();
  output_ = top_ = at::Tensor();
}

bool TrainingPass::uses(const Adapter* adapter) const {
  return std::any_of(adapters_.begin(), adapters_.end(), [&](const auto& held) { return held.get() == adapter; });
}

bool TrainingPass::trains_blocks() const {
  return std::any_of(adapters_.begin(), adapters_.end(),
                     [](const auto& adapter) { return adapter != nullptr && adapter->has_block_modules(); });
}

void TrainingPass::make_batch(const Pack& pack) {
  std::vector<Transformer::Rows> sequences;
  for (size_t i = 0; i < pack.segments.size(); ++i) {
    const Segment& segment = pack.segments[i];
    const auto count = static_cast<size_t>(segment.end - segment.begin);
    sequences.push_back(
        {adapters_[i].get(), std::span(pack.tokens).subspan(static_cast<size_t>(segment.begin), count), 0});
    owners_.insert(owners_.end(), count, adapters_[i].get());
  }
  batch_ = transformer_.make_batch(sequences);
}

void TrainingPass::run_blocks(bool keep) {
  const c10::NoGradGuard no_graph;
  const int layers = transformer_.spec().layers;
  at::Tensor x = transformer_.embed(*batch_);
  keep = keep && trains_blocks();
  const int64_t room = keep ? activation_bytes_max_ - batch_->lora.training_bytes() : 0;
  const int64_t fit = std::max<int64_t>(0, room) / (transformer_.activation_bytes() * std::max<int64_t>(1, x.size(0)));
  // The last blocks keep their graph, because its memory is the first to be free again.
  const int recomputed = keep ? static_cast<int>(std::max<int64_t>(0, layers - fit)) : layers;
  const auto enter = [&](int layer) {
    if (!keep) return;
    x = x.detach().requires_grad_(layer > 0);
    inputs_.push_back(x);
  };
  for (int layer = 0; layer < recomputed; ++layer) {
    enter(layer);
    x = transformer_.block(layer, x, *batch_);
  }
  if (recomputed < layers) {
    enter(recomputed);
    const c10::AutoGradMode graph(true);
    for (int layer = recomputed; layer < layers; ++layer) x = transformer_.block(layer, x, *batch_);
    output_ = x;
  }
  top_ = x.detach();
}

TrainingPass::Piece TrainingPass::make_piece(std::span<const int> indices) const {
  const Placement& placement = transformer_.placement();
  Piece piece;
  std::vector<int64_t> rows;
  std::vector<int64_t> target_rows;
  std::vector<int64_t> target_places;
  std::vector<float> inverse;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<size_t>(indices[i]);
    rows.push_back(rows_.rows[index]);
    piece.owners.push_back(owners_[static_cast<size_t>(rows_.rows[index])]);
    if (!rows_.inverse_temperatures.empty()) inverse.push_back(rows_.inverse_temperatures[index]);
    for (size_t t = rows_.first[index]; t < rows_.first[index + 1]; ++t) {
      piece.targets.push_back(t);
      target_rows.push_back(static_cast<int64_t>(i));
      target_places.push_back(static_cast<int64_t>(i) * transformer_.spec().vocab_size + rows_.targets[t].token);
    }
  }
  piece.rows = to_device(rows, placement);
  piece.target_rows = to_device(target_rows, placement);
  piece.target_places = to_device(target_places, placement);
  if (!inverse.empty()) piece.inverse_temperatures = to_device(inverse, placement).unsqueeze(1);
  return piece;
}

at::Tensor TrainingPass::tempered(const Piece& piece, const at::Tensor& logits) const {
  return piece.inverse_temperatures.defined() ? logits * piece.inverse_temperatures : logits;
}

void TrainingPass::head_forward(std::span<float> logprobs) {
  const c10::NoGradGuard no_graph;
  if (rows_.size() == 0) return;
  std::vector<int> all(rows_.size());
  std::iota(all.begin(), all.end(), 0);
  const auto piece_rows = static_cast<size_t>(transformer_.logits_rows_max());
  std::vector<at::Tensor> parts;
  for (size_t begin = 0; begin < all.size(); begin += piece_rows) {
    const Piece piece = make_piece(std::span(all).subspan(begin, std::min(piece_rows, all.size() - begin)));
    const at::Tensor normed = transformer_.final_norm(top_.index_select(0, piece.rows));
    at::Tensor logits = transformer_.logits(normed);
    const at::Tensor delta = LoraPlan(piece.owners, transformer_.placement()).delta(normed, LoraSite::kHead, 0);
    if (delta.defined()) logits += delta;
    logits = tempered(piece, logits);
    const at::Tensor sums = at::logsumexp(logits, 1);
    parts.push_back(logits.view(-1).index_select(0, piece.target_places) - sums.index_select(0, piece.target_rows));
  }
  const at::Tensor host = at::cat(parts).to(at::kCPU);
  std::copy_n(host.data_ptr<float>(), logprobs.size(), logprobs.begin());
}

void TrainingPass::forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
                           std::span<float> logprobs) {
  drop();
  adapters_ = adapters;
  make_batch(pack);
  rows_ = TargetRows(pack);
  run_blocks(keep);
  head_forward(logprobs);
  if (!keep) drop();
}

void TrainingPass::head_backward(const Piece& piece, std::span<const float> gradient, at::Tensor& dx) {
  const Placement& placement = transformer_.placement();
  LoraPlan plan(piece.owners, placement);
  LoraPlan::Hidden hidden;
  const at::Tensor top = top_.index_select(0, piece.rows).requires_grad_(!inputs_.empty());
  at::Tensor normed;
  {
    const c10::AutoGradMode graph(true);
    normed = transformer_.final_norm(top);
  }
  const c10::NoGradGuard no_graph;
  at::Tensor logits = transformer_.logits(normed);
  const at::Tensor delta = plan.delta(normed, LoraSite::kHead, 0, &hidden);
  if (delta.defined()) logits += delta;
  logits = tempered(piece, logits);
  std::vector<float> weights;
  for (const size_t target : piece.targets) weights.push_back(gradient[target]);
  const at::Tensor of_targets = to_device(weights, placement);
  // d logprob(t) / d logits = onehot(t) - softmax, summed over the targets of a row.
  const at::Tensor totals =
      at::zeros({logits.size(0)}, placement.f32()).index_add_(0, piece.target_rows, of_targets).unsqueeze(1);
  at::Tensor dlogits = at::softmax(logits, 1).mul_(totals.neg());
  dlogits.view(-1).index_add_(0, piece.target_places, of_targets);
  dlogits = tempered(piece, dlogits).to(placement.activations);
  const at::Tensor dnormed = transformer_.logits_backward(dlogits);
  if (delta.defined()) {
    plan.backward(normed.detach(), hidden, dlogits, LoraSite::kHead, 0, dnormed);
    plan.collect();
  }
  if (inputs_.empty()) return;
  normed.backward(dnormed);
  dx.index_copy_(0, piece.rows, top.grad());
}

void TrainingPass::backward(std::span<const float> gradient) {
  for (const auto& adapter : adapters_) {
    if (adapter != nullptr) adapter->prepare_gradients();
  }
  const std::vector<int> active = rows_.active(gradient);
  at::Tensor dx = at::zeros_like(top_);
  const auto piece_rows = static_cast<size_t>(transformer_.logits_rows_max());
  for (size_t begin = 0; begin < active.size(); begin += piece_rows) {
    head_backward(make_piece(std::span(active).subspan(begin, std::min(piece_rows, active.size() - begin))), gradient,
                  dx);
  }
  if (!active.empty()) backward_blocks(std::move(dx));
  batch_->lora.collect();
  drop();
}

void TrainingPass::backward_blocks(at::Tensor dx) {
  const c10::AutoGradMode graph(true);
  for (auto layer = static_cast<int>(inputs_.size()) - 1; layer >= 0; --layer) {
    const at::Tensor input = std::move(inputs_.back());
    inputs_.pop_back();
    const at::Tensor output =
        output_.defined() ? std::exchange(output_, {}) : transformer_.block(layer, input, *batch_);
    output.backward(dx);
    dx = input.grad();
  }
}

}  // namespace tuft::engine::torch
