#include "engine/torch/attention.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>

namespace tuft::engine::torch {
namespace {

at::Tensor ends_of(const std::vector<Spans::Span>& spans, int64_t Spans::Span::*count, const Placement& placement) {
  std::vector<int32_t> ends = {0};
  for (const Spans::Span& span : spans) ends.push_back(ends.back() + static_cast<int32_t>(span.*count));
  return to_device(ends, placement);
}

// Repeats each key-value head for the query heads that share it: [1, heads, rows, head_dim].
at::Tensor widen(const at::Tensor& x, int64_t heads) {
  const int64_t rows = x.size(0);
  const int64_t own = x.size(1);
  const int64_t width = x.size(2);
  const at::Tensor all =
      own == heads ? x : x.unsqueeze(2).expand({rows, own, heads / own, width}).reshape({rows, heads, width});
  return all.transpose(0, 1).unsqueeze(0);
}

// Returns true if the results are equal within the precision of bf16.
bool close(const at::Tensor& got, const at::Tensor& want) {
  constexpr double kError = 0.02;
  const at::Tensor wide = want.to(at::kFloat);
  const double difference = (got.to(at::kFloat) - wide).abs().max().item<double>();
  return difference < kError * (1.0 + wide.abs().max().item<double>());
}

}  // namespace

void Spans::append(int64_t queries, int64_t keys) {
  Span span{0, queries, 0, keys};
  if (!spans_.empty()) {
    span.query = spans_.back().query + spans_.back().queries;
    span.key = spans_.back().key + spans_.back().keys;
  }
  spans_.push_back(span);
  with_past_ = with_past_ || queries != keys;
  longest_query_ = std::max(longest_query_, queries);
  longest_key_ = std::max(longest_key_, keys);
}

void Spans::upload(const Placement& placement) {
  query_ends_ = ends_of(spans_, &Span::queries, placement);
  key_ends_ = with_past_ ? ends_of(spans_, &Span::keys, placement) : query_ends_;
}

Attention::Attention(const ModelSpec& spec, const Placement& placement)
    : placement_(placement), heads_(spec.heads), kv_heads_(spec.kv_heads), head_dim_(spec.head_dim) {
  constexpr int64_t kFusedWidthMax = 256;
  const bool could = placement.is_cuda() && placement.activations == at::kBFloat16 && head_dim_ % 8 == 0 &&
                     head_dim_ <= kFusedWidthMax;
  if (!could) return;
  try {
    problem_ = probe();
  } catch (const std::exception& error) {
    fused_ = fused_with_past_ = false;
    problem_ = "it fails on this device";
  }
}

at::Tensor Attention::plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) const {
  std::vector<at::Tensor> outs;
  outs.reserve(spans.all().size());
  for (const Spans::Span& span : spans.all()) {
    const at::Tensor query = q.narrow(0, span.query, span.queries).transpose(0, 1).unsqueeze(0);
    const at::Tensor key = widen(k.narrow(0, span.key, span.keys), heads_);
    const at::Tensor value = widen(v.narrow(0, span.key, span.keys), heads_);
    const bool whole = span.queries == span.keys;
    at::Tensor out;
    if (whole || span.queries == 1) {
      out = at::scaled_dot_product_attention(query, key, value, {}, 0.0, whole);
    } else {
      const at::Tensor all = at::ones({span.queries, span.keys}, at::TensorOptions().device(placement_.device));
      const at::Tensor mask = all.tril(span.keys - span.queries).to(at::kBool);
      out = at::scaled_dot_product_attention(query, key, value, mask);
    }
    outs.push_back(out.squeeze(0).transpose(0, 1));
  }
  const at::Tensor all = outs.size() == 1 ? outs.front() : at::cat(outs);
  return all.reshape({q.size(0), heads_ * head_dim_});
}

at::Tensor Attention::fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) {
  const auto result = at::_flash_attention_forward(q, k, v, spans.query_ends_, spans.key_ends_, spans.longest_query_,
                                                   spans.longest_key_, 0.0, true, false);
  return std::get<0>(result).flatten(1, 2);
}

at::Tensor Attention::operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const Spans& spans) const {
  const bool use = spans.with_past() ? fused_with_past_ : fused_;
  return use ? fused(q, k, v, spans) : plain(q, k, v, spans);
}

at::Tensor Attention::masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& known) const {
  const int64_t rows = q.size(0);
  // The query heads of one key-value head take the place of queries, so that no key or value is copied for them.
  const at::Tensor query = q.reshape({rows, kv_heads_, heads_ / kv_heads_, head_dim_});
  const auto keys = [&](const at::Tensor& x) { return x.view({rows, -1, kv_heads_, head_dim_}).transpose(1, 2); };
  return at::scaled_dot_product_attention(query, keys(k), keys(v), known).reshape({rows, heads_ * head_dim_});
}

bool Attention::try_fused(const Spans& spans) const {
  const Spans::Span& last = spans.all().back();
  // Queries and keys of a block have other heads between their rows.
  const auto leaf = [&](int64_t rows, int64_t heads) {
    return at::randn({rows, heads + 1, head_dim_}, placement_.active()).narrow(1, 0, heads).requires_grad_(true);
  };
  const at::Tensor q = leaf(last.query + last.queries, heads_);
  const at::Tensor k = leaf(last.key + last.keys, kv_heads_);
  const at::Tensor v = leaf(last.key + last.keys, kv_heads_);
  const at::Tensor want = plain(q, k, v, spans);
  const at::Tensor got = fused(q, k, v, spans);
  if (!close(got, want)) return false;
  if (spans.with_past()) return true;  // decode steps have no gradients
  const at::Tensor gradient = at::randn(want.sizes(), placement_.active());
  std::vector<at::Tensor> expected;
  want.backward(gradient);
  for (const at::Tensor& x : {q, k, v}) {
    expected.push_back(x.grad());
    x.mutable_grad() = at::Tensor();
  }
  got.backward(gradient);
  return close(q.grad(), expected[0]) && close(k.grad(), expected[1]) && close(v.grad(), expected[2]);
}

std::string Attention::probe() {
  const c10::AutoGradMode graph(true);
  Spans whole;
  Spans with_past;
  for (const int64_t length : {5, 1, 33}) {
    whole.append(length, length);
    with_past.append(length > 9 ? 9 : 1, length);
  }
  whole.upload(placement_);
  with_past.upload(placement_);
  fused_ = try_fused(whole);
  fused_with_past_ = try_fused(with_past);
  if (fused_ && fused_with_past_) return {};
  return fused_ ? "its results with a KV cache differ from the plain ones" : "its results differ from the plain ones";
}

}  // namespace tuft::engine::torch
