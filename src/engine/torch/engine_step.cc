#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "engine/batch/check_pack.h"
#include "engine/torch/engine_impl.h"
#include "engine/torch/guarded.h"

namespace tuft::engine::torch {
namespace {

Error no_sequence(SequenceId id) {
  return not_found("sequence " + std::to_string(id) + " is not open", "sequence_not_open");
}

}  // namespace

SequenceId TorchEngine::add_sequence(Sequence sequence) {
  while (next_sequence_ == 0 || sequences_.contains(next_sequence_)) ++next_sequence_;
  const SequenceId id = next_sequence_++;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

Result<SequenceId> TorchEngine::open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) {
  Sequence sequence;
  if (adapter) {
    TUFT_ASSIGN(sequence.adapter, find_adapter(*adapter));
    sequence.held.owner.version = sequence.adapter->version();
  }
  sequence.held.owner.scope = scope;
  return add_sequence(std::move(sequence));
}

Result<SequenceId> TorchEngine::fork_sequence(SequenceId source) {
  return guarded("another sequence", [&]() -> Result<SequenceId> {
    const auto found = sequences_.find(source);
    if (found == sequences_.end()) return no_sequence(source);
    auto fork = cache_.pool().fork(found->second.held);
    if (!fork) {
      return Error{ErrorCode::kResourceExhausted, "the KV cache has no block left for another sequence",
                   "kv_cache_full"};
    }
    const SequenceId copy = add_sequence({found->second.adapter, std::move(fork->sequence)});
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
  if (found == sequences_.end()) return;
  cache_.pool().close(found->second.held);
  sequences_.erase(found);
}

int TorchEngine::adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : cache_.pool().adopt(found->second.held, tokens);
}

Result<std::vector<TorchEngine::Fed>> TorchEngine::check_feeds(std::span<const Feed> feeds) {
  std::vector<Fed> fed;
  std::set<SequenceId> seen;
  for (const Feed& feed : feeds) {
    const auto found = sequences_.find(feed.sequence);
    if (found == sequences_.end()) return no_sequence(feed.sequence);
    if (!seen.insert(feed.sequence).second) {
      return invalid_argument("a sequence is fed twice in one step", "feed_twice");
    }
    const int count = static_cast<int>(feed.tokens.size());
    if (count == 0 || feed.logits < 0 || feed.logits > count) {
      return invalid_argument("a feed needs at least one token, and at most as many logits as tokens", "feed_size");
    }
    TUFT_TRY(check_tokens(model(), feed.tokens));
    fed.push_back({&found->second, 0});
  }
  return fed;
}

Status TorchEngine::make_room(std::span<const Feed> feeds, std::span<const Fed> fed) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (cache_.pool().extend(fed[i].sequence->held, static_cast<int>(feeds[i].tokens.size()))) continue;
    const KvUsage usage = cache_.usage();
    return Error{ErrorCode::kResourceExhausted,
                 "the KV cache is full: its limit is " + std::to_string(usage.limit) +
                     " bytes, and open sequences hold " + std::to_string(usage.used),
                 "kv_cache_full"};
  }
  return {};
}

Batch TorchEngine::make_batch(std::span<const Feed> feeds, std::vector<Fed>& fed) {
  std::vector<Transformer::Rows> rows;
  std::vector<int64_t> write_slots;
  std::vector<int64_t> read_slots;
  // Feeds of one adapter next to each other, so that its rows need not be put in order.
  std::vector<size_t> order(feeds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return std::less<>()(fed[left].sequence->adapter.get(), fed[right].sequence->adapter.get());
  });
  int row = 0;
  for (const size_t i : order) {
    const BlockPool::Sequence& held = fed[i].sequence->held;
    const int count = static_cast<int>(feeds[i].tokens.size());
    fed[i].first_row = row;
    row += count;
    rows.push_back({fed[i].sequence->adapter.get(), feeds[i].tokens, held.length});
    for (int position = 0; position < held.length + count; ++position) {
      read_slots.push_back(KvCache::slot(held, position));
      if (position >= held.length) write_slots.push_back(read_slots.back());
    }
  }
  Batch batch = transformer_.make_batch(rows);
  batch.cache = &cache_;
  batch.write_slots = to_device(write_slots, transformer_.place());
  if (batch.spans.with_past()) batch.read_slots = to_device(read_slots, transformer_.place());
  return batch;
}

void TorchEngine::send_logits(std::span<const Feed> feeds, std::span<const Fed> fed, const at::Tensor& top,
                              const LogitsSink& sink) {
  struct Wanted {
    size_t feed;
    int row;
  };
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const int count = static_cast<int>(feeds[i].tokens.size());
    for (int row = count - feeds[i].logits; row < count; ++row) wanted.push_back({i, row});
  }
  const Place& place = transformer_.place();
  const auto vocab = static_cast<size_t>(model().vocab_size);
  const auto piece = static_cast<size_t>(transformer_.logits_rows_max());
  for (size_t begin = 0; begin < wanted.size(); begin += piece) {
    const auto some = std::span(wanted).subspan(begin, std::min(piece, wanted.size() - begin));
    std::vector<int64_t> rows;
    std::vector<Adapter*> owners;
    for (const Wanted& want : some) {
      rows.push_back(fed[want.feed].first_row + want.row);
      owners.push_back(fed[want.feed].sequence->adapter.get());
    }
    const at::Tensor normed = transformer_.final_norm(top.index_select(0, to_device(rows, place)));
    at::Tensor logits = transformer_.logits(normed);
    const at::Tensor delta = LoraPlan(owners, place).delta(normed, Site::kLmHead, 0);
    if (delta.defined()) logits += delta;
    const at::Tensor host = logits.to(at::kCPU).contiguous();
    const float* from = host.data_ptr<float>();
    for (const Wanted& want : some) {
      sink(want.feed, want.row, {from, vocab});
      from += vocab;
    }
  }
}

Status TorchEngine::step(std::span<const Feed> feeds, const LogitsSink& sink) {
  return guarded("a step", [&]() -> Status {
    const c10::NoGradGuard no_graph;
    TUFT_ASSIGN(auto fed, check_feeds(feeds));
    TUFT_TRY(make_room(feeds, fed));
    if (feeds.empty()) return {};
    const DeviceClock::Scope scope(clock_, &DeviceTimes::step);
    cache_.allocate();
    const Batch batch = make_batch(feeds, fed);
    at::Tensor x = transformer_.embed(batch);
    for (int layer = 0; layer < model().layers; ++layer) x = transformer_.block(layer, x, batch);
    for (size_t i = 0; i < feeds.size(); ++i) cache_.pool().commit(fed[i].sequence->held, feeds[i].tokens);
    send_logits(feeds, fed, x, sink);
    return {};
  });
}

}  // namespace tuft::engine::torch
