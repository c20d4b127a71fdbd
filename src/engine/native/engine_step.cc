#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/native/engine_impl.h"

namespace tuft::engine::native {
namespace {

size_t floats(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

}  // namespace

Result<SequenceId> NativeEngine::open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) {
  AdapterPtr found;
  if (adapter) {
    TUFT_ASSIGN(found, adapters_.find(*adapter));
  }
  const uint64_t version = found == nullptr ? 0 : found->version();
  return sequences_.add({std::move(found), KvCache::Sequence(cache_, BlockPool::Owner{version, scope})});
}

Result<SequenceId> NativeEngine::fork_sequence(SequenceId source) try {
  TUFT_ASSIGN(const Sequence* const from, sequences_.find(source));
  TUFT_ASSIGN(KvCache::Sequence cache, from->cache.fork());
  return sequences_.add({from->adapter, std::move(cache)});
} catch (const std::bad_alloc&) {
  return Error{ErrorCode::kResourceExhausted, "not enough memory for another sequence", "memory"};
}

int NativeEngine::adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) {
  const auto found = sequences_.find(sequence);
  return found.ok() ? (*found)->cache.adopt(tokens) : 0;
}

Status NativeEngine::make_room(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!fed[i]->cache.extend(static_cast<int>(feeds[i].tokens.size()))) return kv_cache_full(cache_.usage());
  }
  return {};
}

NativeEngine::StepBatch NativeEngine::make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  StepBatch made;
  made.first_rows.resize(feeds.size());
  for (const size_t index : by_adapter(fed)) {
    const KvCache::Sequence& cache = fed[index]->cache;
    made.first_rows[index] = made.batch.rows;
    made.batch.append(fed[index]->adapter.get(), feeds[index].tokens, cache.length(), cache.blocks());
  }
  return made;
}

void NativeEngine::send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed,
                               std::span<const int> first_rows, const float* top, const LogitsSink& sink) {
  const int hidden = model_.spec().hidden_size;
  const int vocab = model_.spec().vocab_size;
  const auto piece = static_cast<size_t>(model_.logits_rows_max());
  for (size_t begin = 0; begin < wanted.size(); begin += piece) {
    const ArenaScope scope(model_.scratch());
    const ArenaScope kept(step_);
    const auto some = wanted.subspan(begin, std::min(piece, wanted.size() - begin));
    Model::HeadRows head;
    head.rows = static_cast<int>(some.size());
    head.normed = model_.scratch().take(floats(head.rows, hidden));
    head.logits = model_.scratch().take(floats(head.rows, vocab));
    std::vector<Run> runs;
    for (int i = 0; i < head.rows; ++i) {
      const WantedRow& want = some[static_cast<size_t>(i)];
      std::copy_n(top + static_cast<ptrdiff_t>(first_rows[want.feed] + want.row) * hidden, hidden,
                  head.normed + static_cast<ptrdiff_t>(i) * hidden);
      Adapter* adapter = fed[want.feed]->adapter.get();
      if (runs.empty() || runs.back().adapter != adapter) runs.push_back({adapter, i, i});
      runs.back().end = i + 1;
    }
    head.runs = runs;
    model_.transformer().normalize(head.normed, model_.weights().final_norm, head.rows, head.normed, nullptr);
    model_.head_forward(head, step_);
    for (int i = 0; i < head.rows; ++i) {
      const WantedRow& want = some[static_cast<size_t>(i)];
      sink(want.feed, want.row, {head.logits + static_cast<ptrdiff_t>(i) * vocab, static_cast<size_t>(vocab)});
    }
  }
}

void NativeEngine::run_step(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
  model_.scratch().reset();
  step_.reset();
  Transformer& transformer = model_.transformer();
  const auto [batch, first_rows] = make_batch(feeds, fed);
  float* x = step_.take(floats(batch.rows, model_.spec().hidden_size));
  BlockActivations activations = transformer.allocate(step_, batch.rows, false);
  activations.input = x;
  transformer.embed(batch, x);
  for (int layer = 0; layer < model_.spec().layers; ++layer) {
    const ArenaScope scope(step_);
    transformer.forward(batch, layer, layer, activations, x, step_);
  }
  for (size_t i = 0; i < feeds.size(); ++i) fed[i]->cache.commit(feeds[i].tokens);
  send_logits(wanted_rows(feeds), fed, first_rows, x, sink);
}

Status NativeEngine::step(std::span<const Feed> feeds, const LogitsSink& sink) try {
  TUFT_ASSIGN(const auto fed, sequences_.of(model(), feeds));
  TUFT_TRY(make_room(feeds, fed));
  if (!feeds.empty()) run_step(feeds, fed, sink);
  return {};
} catch (const std::bad_alloc&) {
  return Error{ErrorCode::kResourceExhausted, "not enough memory for a step: run fewer sequences at a time", "memory"};
}

}  // namespace tuft::engine::native
