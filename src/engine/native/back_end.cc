#include "engine/native/back_end.h"

#include <algorithm>
#include <utility>

#include "engine/native/buffer.h"
#include "engine/native/ops/peak.h"

namespace tuft::engine::native {
BackEnd::BackEnd(std::unique_ptr<ThreadPool> pool, ModelSpec spec, Weights weights, const NativeOptions& options)
    : pool_(std::move(pool)),
      model_(std::move(spec), std::move(weights), *pool_),
      pass_(model_, options.activation_bytes_max, options.free_memory),
      cache_(model_.transformer().kv_offset(model_.spec().layers, 0), options.kv_bytes_max),
      peak_flops_(measure_peak_flops(*pool_)) {}

BackEnd::StepBatch BackEnd::make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed) {
  StepBatch made;
  made.first_rows.resize(feeds.size());
  for (const size_t index : by_adapter(fed)) {
    const KvSequence& kv = fed[index]->kv;
    made.first_rows[index] = made.batch.rows;
    made.batch.append(fed[index]->adapter.get(), feeds[index].tokens, kv.length(), kv.view().data());
  }
  return made;
}

void BackEnd::send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed,
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
    std::vector<LogitsRow> rows;
    rows.reserve(some.size());
    const float* from = head.logits;
    for (const WantedRow& want : some) {
      rows.push_back({want.feed, want.row, {from, static_cast<size_t>(vocab)}});
      from += vocab;
    }
    sink(rows);
  }
}

void BackEnd::step(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink) {
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
  for (size_t i = 0; i < feeds.size(); ++i) fed[i]->kv.commit(feeds[i].tokens);
  send_logits(wanted_rows(feeds), fed, first_rows, x, sink);
}

}  // namespace tuft::engine::native
