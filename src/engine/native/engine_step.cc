#include <algorithm>
#include <new>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/batch/check_pack.h"
#include "engine/native/engine_impl.h"

namespace tuft::engine::native {
namespace {

size_t floats(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

Error no_sequence(SequenceId id) {
  return not_found("sequence " + std::to_string(id) + " is not open", "sequence_not_open");
}

}  // namespace

SequenceId NativeEngine::add_sequence(Sequence sequence) {
  while (next_sequence_ == 0 || sequences_.contains(next_sequence_)) ++next_sequence_;
  const SequenceId id = next_sequence_++;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

Result<SequenceId> NativeEngine::open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) {
  AdapterPtr found;
  if (adapter) {
    TUFT_ASSIGN(found, find_adapter(*adapter));
  }
  const uint64_t version = found == nullptr ? 0 : found->version();
  return add_sequence({std::move(found), KvCache::Sequence(cache_, BlockPool::Owner{version, scope})});
}

Result<SequenceId> NativeEngine::fork_sequence(SequenceId source) try {
  const auto found = sequences_.find(source);
  if (found == sequences_.end()) return no_sequence(source);
  TUFT_ASSIGN(KvCache::Sequence cache, found->second.cache.fork());
  return add_sequence({found->second.adapter, std::move(cache)});
} catch (const std::bad_alloc&) {
  return Error{ErrorCode::kResourceExhausted, "not enough memory for another sequence", "memory"};
}

int NativeEngine::adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : found->second.cache.adopt(tokens);
}

Result<std::vector<NativeEngine::Fed>> NativeEngine::check_feeds(std::span<const Feed> feeds) {
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

Status NativeEngine::make_room(std::span<const Feed> feeds, std::span<const Fed> fed) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (fed[i].sequence->cache.extend(static_cast<int>(feeds[i].tokens.size()))) continue;
    const KvUsage usage = cache_.usage();
    return Error{ErrorCode::kResourceExhausted,
                 "the KV cache is full: its limit is " + std::to_string(usage.limit) +
                     " bytes, and open sequences hold " + std::to_string(usage.used),
                 "kv_cache_full"};
  }
  return {};
}

Batch NativeEngine::make_batch(std::span<const Feed> feeds, std::vector<Fed>& fed) {
  // Feeds of one adapter next to each other: its products are computed once for all of them.
  std::vector<size_t> order(feeds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return std::less<>()(fed[left].sequence->adapter.get(), fed[right].sequence->adapter.get());
  });
  Batch batch;
  for (const size_t index : order) {
    const Feed& feed = feeds[index];
    KvCache::Sequence& cache = fed[index].sequence->cache;
    fed[index].first_row = batch.rows;
    batch.append(fed[index].sequence->adapter.get(), feed.tokens, cache.length(), cache.blocks());
  }
  return batch;
}

void NativeEngine::send_logits(std::span<const Feed> feeds, std::span<const Fed> fed, const float* top,
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
  const int hidden = model_.spec().hidden_size;
  const int vocab = model_.spec().vocab_size;
  const auto piece = static_cast<size_t>(model_.logits_rows_max());
  for (size_t begin = 0; begin < wanted.size(); begin += piece) {
    const ArenaScope scope(model_.scratch());
    const ArenaScope kept(step_);
    const int rows = static_cast<int>(std::min(piece, wanted.size() - begin));
    Model::HeadRows head;
    head.rows = rows;
    head.normed = model_.scratch().take(floats(rows, hidden));
    head.logits = model_.scratch().take(floats(rows, vocab));
    std::vector<Run> runs;
    for (int i = 0; i < rows; ++i) {
      const Wanted& want = wanted[begin + static_cast<size_t>(i)];
      const Fed& from = fed[want.feed];
      std::copy_n(top + static_cast<ptrdiff_t>(from.first_row + want.row) * hidden, hidden,
                  head.normed + static_cast<ptrdiff_t>(i) * hidden);
      Adapter* adapter = from.sequence->adapter.get();
      if (runs.empty() || runs.back().adapter != adapter) runs.push_back({adapter, i, i});
      runs.back().end = i + 1;
    }
    head.runs = runs;
    model_.transformer().normalize(head.normed, model_.weights().final_norm, rows, head.normed, nullptr);
    model_.head_forward(head, step_);
    for (int i = 0; i < rows; ++i) {
      const Wanted& want = wanted[begin + static_cast<size_t>(i)];
      sink(want.feed, want.row, {head.logits + static_cast<ptrdiff_t>(i) * vocab, static_cast<size_t>(vocab)});
    }
  }
}

void NativeEngine::run_step(std::span<const Feed> feeds, std::vector<Fed>& fed, const LogitsSink& sink) {
  model_.scratch().reset();
  step_.reset();
  Transformer& transformer = model_.transformer();
  const Batch batch = make_batch(feeds, fed);
  float* x = step_.take(floats(batch.rows, model_.spec().hidden_size));
  BlockActivations activations = transformer.allocate(step_, batch.rows, false);
  activations.input = x;
  transformer.embed(batch, x);
  for (int layer = 0; layer < model_.spec().layers; ++layer) {
    const ArenaScope scope(step_);
    transformer.forward(batch, layer, layer, activations, x, step_);
  }
  for (size_t i = 0; i < feeds.size(); ++i) fed[i].sequence->cache.commit(feeds[i].tokens);
  send_logits(feeds, fed, x, sink);
}

Status NativeEngine::step(std::span<const Feed> feeds, const LogitsSink& sink) try {
  TUFT_ASSIGN(auto fed, check_feeds(feeds));
  TUFT_TRY(make_room(feeds, fed));
  if (!feeds.empty()) run_step(feeds, fed, sink);
  return {};
} catch (const std::bad_alloc&) {
  return Error{ErrorCode::kResourceExhausted, "not enough memory for a step: run fewer sequences at a time", "memory"};
}

}  // namespace tuft::engine::native
