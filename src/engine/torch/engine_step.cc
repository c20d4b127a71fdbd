#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "engine/torch/engine_impl.h"
#include "engine/torch/guarded.h"

namespace tuft::engine::torch {

Result<SequenceId> TorchEngine::open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) {
  Sequence sequence;
  if (adapter) {
    TUFT_ASSIGN(sequence.adapter, adapters_.find(*adapter));
    sequence.held.owner.version = sequence.adapter->version();
  }
  sequence.held.owner.scope = scope;
  return sequences_.add(std::move(sequence));
}

Result<SequenceId> TorchEngine::fork_sequence(SequenceId source) {
  return guarded("another sequence", [&]() -> Result<SequenceId> {
    TUFT_ASSIGN(const Sequence* const from, sequences_.find(source));
    auto fork = cache_.pool().fork(from->held);
    if (!fork) {
      return Error{ErrorCode::kResourceExhausted, "the KV cache has no block left for another sequence",
                   "kv_cache_full"};
    }
    const SequenceId copy = sequences_.add({from->adapter, std::move(fork->sequence)});
    try {
      cache_.allocate();
      if (fork->copy) cache_.copy_block(fork->copy->first, fork->copy->second);
    } catch (...) {
      close_sequence(copy);
      throw;
    }
    return copy;
  });
}

void TorchEngine::close_sequence(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (!found.ok()) return;
  cache_.pool().close((*found)->held);
  sequences_.remove(sequence);
}

int TorchEngine::adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) {
  const auto found = sequences_.find(sequence);
  return found.ok() ? cache_.pool().adopt((*found)->held, tokens) : 0;
}

Status TorchEngine::make_room(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto count = static_cast<int>(feeds[i].tokens.size());
    if (!cache_.pool().extend(fed[i]->held, count)) return kv_cache_full(cache_.usage());
  }
  return {};
}

TorchEngine::StepBatch TorchEngine::make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  std::vector<Transformer::Rows> rows;
  std::vector<int64_t> write_slots;
  std::vector<int64_t> read_slots;
  std::vector<int> first_rows(feeds.size());
  int row = 0;
  for (const size_t i : by_adapter(fed)) {
    const BlockPool::Sequence& held = fed[i]->held;
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
  batch.write_slots = to_device(write_slots, transformer_.place());
  if (batch.spans.with_past()) batch.read_slots = to_device(read_slots, transformer_.place());
  return {std::move(batch), std::move(first_rows)};
}

void TorchEngine::send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed,
                              std::span<const int> first_rows, const at::Tensor& top, const LogitsSink& sink) {
  const Place& place = transformer_.place();
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
    const at::Tensor normed = transformer_.final_norm(top.index_select(0, to_device(rows, place)));
    at::Tensor logits = transformer_.logits(normed);
    const at::Tensor delta = LoraPlan(owners, place).delta(normed, Site::kLmHead, 0);
    if (delta.defined()) logits += delta;
    const at::Tensor host = logits.to(at::kCPU).contiguous();
    const float* from = host.data_ptr<float>();
    for (const WantedRow& want : some) {
      sink(want.feed, want.row, {from, vocab});
      from += vocab;
    }
  }
}

bool TorchEngine::decode(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
  if (decode_ == nullptr) return false;
  std::vector<Decode::Row> rows;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].tokens.size() != 1 || feeds[i].logits != 1) return false;
    rows.push_back({fed[i]->adapter.get(), feeds[i].tokens.front(), &fed[i]->held});
  }
  const auto logits = decode_->step(rows);
  if (!logits) return false;
  ++recorded_steps_;
  const at::Tensor host = logits->narrow(0, 0, static_cast<int64_t>(rows.size())).to(at::kCPU).contiguous();
  const float* from = host.data_ptr<float>();
  const auto vocab = static_cast<size_t>(model().vocab_size);
  for (size_t i = 0; i < feeds.size(); ++i) cache_.pool().commit(fed[i]->held, feeds[i].tokens);
  for (size_t i = 0; i < feeds.size(); ++i) sink(i, 0, {from + i * vocab, vocab});
  return true;
}

Status TorchEngine::step(std::span<const Feed> feeds, const LogitsSink& sink) {
  return guarded("a step", [&]() -> Status {
    const c10::NoGradGuard no_graph;
    TUFT_ASSIGN(const auto fed, sequences_.of(model(), feeds));
    TUFT_TRY(make_room(feeds, fed));
    if (feeds.empty()) return {};
    const DeviceClock::Scope scope(clock_, &DeviceTimes::step);
    cache_.allocate();
    if (decode(feeds, fed, sink)) return {};
    const auto [batch, first_rows] = make_batch(feeds, fed);
    at::Tensor x = transformer_.embed(batch);
    for (int layer = 0; layer < model().layers; ++layer) x = transformer_.block(layer, x, batch);
    for (size_t i = 0; i < feeds.size(); ++i) cache_.pool().commit(fed[i]->held, feeds[i].tokens);
    send_logits(wanted_rows(feeds), fed, first_rows, x, sink);
    return {};
  });
}

}  // namespace tuft::engine::torch
