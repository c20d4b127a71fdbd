#include "engine/torch/back_end.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "engine/device_peak.h"

namespace tuft::engine::torch {
namespace {

constexpr int64_t kActivationBytesCpu = int64_t{2} << 30;
constexpr int64_t kActivationBytesUnknown = int64_t{8} << 30;

int64_t activation_bytes(const Placement& placement, const TorchOptions& options) {
  if (options.activation_bytes_max > 0) return options.activation_bytes_max;
  if (!placement.is_cuda()) return kActivationBytesCpu;
  const auto free = free_memory(placement.device);
  return free ? *free / 4 : kActivationBytesUnknown;
}

int64_t gathered_keys(const ModelSpec& spec, const Placement& placement, const TorchOptions& options) {
  const int64_t bytes = options.gathered_bytes_max > 0 ? options.gathered_bytes_max : side_bytes_max(placement.device);
  return std::max<int64_t>(1, bytes / (KvCache::bytes_per_token(spec, placement) / spec.layers));
}

at::Tensor to_host(const at::Tensor& on_device, const Placement& placement) {
  if (!placement.is_cuda()) return on_device.contiguous();
  at::Tensor host = host_empty(on_device.sizes(), on_device.scalar_type(), placement);
  host.copy_(on_device);
  return host;
}

PeakType peak_type(const Placement& placement) {
  return placement.activations == at::kBFloat16 ? PeakType::kBf16 : PeakType::kF32;
}

}  // namespace

// The KV cache takes its memory before the limit of activations is computed from the rest.
BackEnd::BackEnd(ModelSpec spec, Weights weights, const Placement& placement, const TorchOptions& options)
    : transformer_(std::move(spec), std::move(weights), placement),
      clock_(placement),
      pool_(options.threads),
      pass_(transformer_),
      cache_(transformer_.spec(), placement, options.kv_bytes_max),
      peak_flops_(known_peak_flops(device_name(placement.device), peak_type(placement))),
      assumed_peak_flops_(
          placement.is_cuda() ? engine::assumed_peak_flops(device_name(placement.device), peak_type(placement)) : 0) {
  pass_.set_activation_bytes_max(activation_bytes(placement, options));
  gathered_keys_max_ = gathered_keys(transformer_.spec(), placement, options);
  const bool can = cache_.pool().limit() > 0 && std::string_view(no_graph_capture(placement)).empty();
  if (options.capture_decode && can) {
    decode_ = std::make_unique<Decode>(transformer_, cache_, gathered_keys_max_, make_graph_capture);
  }
}

std::string_view BackEnd::weights_dtype() const {
  return transformer_.placement().weights == at::kBFloat16 ? "bf16" : "f32";
}

void BackEnd::forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
                      std::span<float> logprobs) {
  const DeviceClock::Scope scope(clock_, &DeviceTimes::forward);
  pass_.forward(pack, adapters, keep, logprobs);
}

void BackEnd::backward(std::span<const float> dloss_dlogprobs) {
  const DeviceClock::Scope scope(clock_, &DeviceTimes::backward);
  pass_.backward(dloss_dlogprobs);
}

std::vector<Result<OptimReport>> BackEnd::optim_steps(std::span<const StepOfAdapter<Adapter>> steps) {
  constexpr const char* kWhat = "the optimizer state";
  const c10::NoGradGuard no_graph;
  std::optional<DeviceClock::Scope> scope;
  std::vector<at::Tensor> scalars;
  const auto norms = guarded(kWhat, [&]() -> Result<at::Tensor> {
    scope.emplace(clock_, &DeviceTimes::optim_step);
    for (const auto& one : steps) scalars.push_back(one.adapter->grad_norm());
    return at::stack(scalars).to(at::kCPU);
  });
  if (!norms.ok()) return {steps.size(), Result<OptimReport>(norms.error())};
  std::vector<Result<OptimReport>> results;
  for (size_t i = 0; i < steps.size(); ++i) {
    results.push_back(guarded(kWhat, [&]() -> Result<OptimReport> {
      return steps[i].adapter->optim_step(std::get<AdamParams>(steps[i].params), norms->data_ptr<double>()[i]);
    }));
  }
  const auto largest = guarded(kWhat, [&]() -> Result<at::Tensor> {
    scalars.clear();
    for (const auto& one : steps) scalars.push_back(one.adapter->largest_value());
    return at::stack(scalars).to(at::kCPU);
  });
  for (size_t i = 0; i < steps.size() && largest.ok(); ++i) {
    if (!results[i].ok() || !results[i]->applied) continue;
    results[i]->finite = std::isfinite(largest->data_ptr<float>()[i]);
  }
  return results;
}

BackEnd::StepBatch BackEnd::make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  std::vector<Transformer::Rows> rows;
  std::vector<int64_t> write_slots;
  std::vector<int64_t> read_slots;
  std::vector<int> first_rows(feeds.size());
  int row = 0;
  for (const size_t i : by_adapter(fed)) {
    const BlockPool::Sequence& held = fed[i]->kv.held();
    const int count = static_cast<int>(feeds[i].tokens.size());
    first_rows[i] = row;
    row += count;
    rows.push_back({fed[i]->adapter.get(), feeds[i].tokens, held.length});
    for (int position = 0; position < held.length + count; ++position) {
      read_slots.push_back(KvCache::slot(held, position));
      if (position >= held.length) write_slots.push_back(read_slots.back());
    }
  }
  Batch batch = transformer_.make_batch(rows);
  batch.cache = &cache_;
  batch.write_slots = to_device(write_slots, transformer_.placement());
  if (batch.spans.with_past()) batch.read_slots = to_device(read_slots, transformer_.placement());
  return {std::move(batch), std::move(first_rows)};
}

void BackEnd::send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed,
                          std::span<const int> first_rows, const at::Tensor& top, const LogitsSink& sink) {
  const Placement& placement = transformer_.placement();
  const auto vocab = static_cast<size_t>(model().vocab_size);
  const auto piece = static_cast<size_t>(transformer_.logits_rows_max());
  for (size_t begin = 0; begin < wanted.size(); begin += piece) {
    const auto some = wanted.subspan(begin, std::min(piece, wanted.size() - begin));
    std::vector<int64_t> rows;
    std::vector<Adapter*> owners;
    for (const WantedRow& want : some) {
      rows.push_back(first_rows[want.feed] + want.row);
      owners.push_back(fed[want.feed]->adapter.get());
    }
    const at::Tensor normed = transformer_.final_norm(top.index_select(0, to_device(rows, placement)));
    at::Tensor logits = transformer_.logits(normed);
    const at::Tensor delta = LoraPlan(owners, placement).delta(normed, LoraSite::kHead, 0);
    if (delta.defined()) logits += delta;
    const at::Tensor host = to_host(logits, placement);
    const float* from = host.data_ptr<float>();
    std::vector<LogitsRow> sent;
    for (const WantedRow& want : some) {
      sent.push_back({want.feed, want.row, {from, vocab}});
      from += vocab;
    }
    sink(sent);
  }
}

bool BackEnd::decode(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
  if (decode_ == nullptr) return false;
  std::vector<Decode::Row> rows;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].tokens.size() != 1 || feeds[i].logits != 1) return false;
    rows.push_back({fed[i]->adapter.get(), feeds[i].tokens.front(), &fed[i]->kv.held()});
  }
  const auto logits = decode_->step(rows);
  if (!logits) return false;
  ++captured_steps_;
  const at::Tensor host = to_host(logits->narrow(0, 0, static_cast<int64_t>(rows.size())), transformer_.placement());
  const float* from = host.data_ptr<float>();
  const auto vocab = static_cast<size_t>(model().vocab_size);
  for (size_t i = 0; i < feeds.size(); ++i) fed[i]->kv.commit(feeds[i].tokens);
  std::vector<LogitsRow> sent;
  for (size_t i = 0; i < feeds.size(); ++i) sent.push_back({i, 0, {from + i * vocab, vocab}});
  sink(sent);
  return true;
}

size_t BackEnd::first_part(std::span<const Feed> feeds, std::span<Sequence* const> fed) const {
  int64_t keys = 0;
  size_t count = 0;
  for (; count < feeds.size(); ++count) {
    keys += fed[count]->kv.held().length + static_cast<int64_t>(feeds[count].tokens.size());
    if (count > 0 && keys > gathered_keys_max_) break;
  }
  return count;
}

void BackEnd::step_part(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
  const auto [batch, first_rows] = make_batch(feeds, fed);
  at::Tensor x = transformer_.embed(batch);
  for (int layer = 0; layer < model().layers; ++layer) x = transformer_.block(layer, x, batch);
  for (size_t i = 0; i < feeds.size(); ++i) fed[i]->kv.commit(feeds[i].tokens);
  send_logits(wanted_rows(feeds), fed, first_rows, x, sink);
}

void BackEnd::step(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
  const c10::NoGradGuard no_graph;
  const DeviceClock::Scope scope(clock_, &DeviceTimes::step);
  if (decode(feeds, fed, sink)) return;
  for (size_t begin = 0; begin < feeds.size();) {
    const size_t count = first_part(feeds.subspan(begin), fed.subspan(begin));
    step_part(feeds.subspan(begin, count), fed.subspan(begin, count), [&](std::span<const LogitsRow> rows) {
      std::vector<LogitsRow> of_step(rows.begin(), rows.end());
      for (LogitsRow& row : of_step) row.feed += begin;
      sink(of_step);
    });
    begin += count;
  }
}

}  // namespace tuft::engine::torch
