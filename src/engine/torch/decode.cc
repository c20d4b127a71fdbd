#include "engine/torch/decode.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "telemetry/log.h"

namespace tuft::engine::torch {
namespace {

// The number of shapes kept. Their intermediate results share one memory; inputs and logits are small in comparison.
constexpr size_t kStepsMax = 64;
// Limit of all copies of adapters in slots: a sixteenth of the free memory of a GPU, but at least this.
constexpr int64_t kSlotBytes = int64_t{256} << 20;
// Up to this number of keys padding costs almost nothing; above it at most half of the keys may be padding.
constexpr int64_t kKeysFree = 16'384;

int64_t up(size_t count) {
  return static_cast<int64_t>(std::bit_ceil(count));
}

// Returns true if the logits are equal within the precision of bf16. NaN equals NaN.
bool agree(const at::Tensor& got, const at::Tensor& want) {
  return got.allclose(want, 0.02, 0.02, true);
}

struct Owner {
  Adapter* adapter = nullptr;
  std::vector<int64_t> rows;
};

std::vector<Owner> owners_of(std::span<const Decode::Row> rows) {
  std::vector<Owner> owners;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].adapter == nullptr) continue;
    const auto of_row = [&](const Owner& owner) { return owner.adapter == rows[i].adapter; };
    auto owner = std::find_if(owners.begin(), owners.end(), of_row);
    if (owner == owners.end()) owner = owners.insert(owner, Owner{rows[i].adapter, {}});
    owner->rows.push_back(static_cast<int64_t>(i));
  }
  return owners;
}

}  // namespace

Decode::Decode(Transformer& transformer, KvCache& cache, MakeGraphCapture make_graph_capture)
    : transformer_(transformer), cache_(cache), make_graph_capture_(std::move(make_graph_capture)) {
  transformer.extend_rope(transformer.spec().max_position);
  slot_bytes_max_ = std::max(kSlotBytes, free_memory(transformer.placement().device).value_or(0) / 16);
}

LoraSlots* Decode::slots_for(const Adapter& example, int64_t count) {
  const auto fits = [&](const auto& slots) {
    return slots->slots() == count && check_same_layers(slots->spec(), example.spec()).ok();
  };
  const auto found = std::find_if(slots_.begin(), slots_.end(), fits);
  if (found != slots_.end()) return found->get();
  const int64_t bytes = LoraSlots::bytes(example, count);
  if (bytes > slot_bytes_max_) return nullptr;
  if (slot_bytes_ + bytes > slot_bytes_max_) {
    steps_.clear();
    slots_.clear();
    slot_bytes_ = 0;
  }
  slots_.push_back(std::make_unique<LoraSlots>(example, count, transformer_.placement()));
  slot_bytes_ += bytes;
  return slots_.back().get();
}

std::optional<Decode::Shape> Decode::shape_of(std::span<const Row> rows) {
  size_t longest = 0;
  size_t blocks = 0;
  for (const Row& row : rows) {
    if (row.held->length >= transformer_.spec().max_position) return std::nullopt;
    const auto count = static_cast<size_t>(row.held->length / kKvBlock + 1);
    longest = std::max(longest, count);
    blocks += count;
  }
  Shape shape{.rows = up(rows.size()), .blocks = up(longest)};
  const int64_t filled = shape.rows * shape.blocks;
  if (shape.rows > transformer_.logits_rows_max()) return std::nullopt;
  if (filled * kKvBlock > kKeysFree && filled > 2 * static_cast<int64_t>(blocks)) return std::nullopt;

  const std::vector<Owner> owners = owners_of(rows);
  if (owners.empty()) return shape;
  const Adapter& example = *owners.front().adapter;
  size_t most = 0;
  for (const Owner& owner : owners) {
    if (!check_same_layers(example.spec(), owner.adapter->spec()).ok()) return std::nullopt;
    most = std::max(most, owner.rows.size());
  }
  shape.slots = up(owners.size());
  shape.slot_rows = up(most);
  if (shape.slots * shape.slot_rows > 4 * shape.rows) return std::nullopt;
  shape.adapters = slots_for(example, shape.slots);
  if (shape.adapters == nullptr) return std::nullopt;
  return shape;
}

Decode::Step& Decode::step_of(const Shape& shape) {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.shape == shape; });
  if (found != steps_.end()) {
    steps_.splice(steps_.begin(), steps_, found);
    return steps_.front();
  }
  if (steps_.size() == kStepsMax) steps_.pop_back();
  Step& step = steps_.emplace_front();
  step.shape = shape;
  const int64_t rows = shape.rows;
  const int64_t in_slots = shape.slots * shape.slot_rows;
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong);
  step.host = at::empty({rows * (5 + shape.blocks) + in_slots}, integers);
  step.inputs = at::empty(step.host.sizes(), integers.device(transformer_.placement().device));
  int64_t used = 0;
  const auto take = [&](int64_t count) {
    used += count;
    return step.inputs.narrow(0, used - count, count);
  };
  step.tokens = take(rows);
  step.positions = take(rows);
  step.write_slots = take(rows);
  step.lengths = take(rows);
  step.places = take(rows);
  step.table = take(rows * shape.blocks).view({rows, shape.blocks});
  step.slot_rows = take(in_slots);
  return step;
}

// Writes the inputs in the order in which step_of() lays them out.
void Decode::fill(Step& step, std::span<const Row> rows) {
  const Shape& shape = step.shape;
  const auto count = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.blocks);
  int64_t* tokens = step.host.data_ptr<int64_t>();
  int64_t* positions = tokens + count;
  int64_t* writes = positions + count;
  int64_t* lengths = writes + count;
  int64_t* places = lengths + count;
  int64_t* table = places + count;
  int64_t* slot_rows = table + count * columns;
  const int64_t spare = cache_.spare_block();
  // Padding rows hold token 0 at position 0. They read the zeros of the spare block and write beside them.
  std::fill_n(tokens, 2 * count, 0);
  std::fill_n(writes, count, spare * kKvBlock + 1);
  std::fill_n(lengths, count, 1);
  std::fill_n(places, count, shape.slots * shape.slot_rows);
  std::fill_n(table, count * columns, spare);
  std::fill_n(slot_rows, shape.slots * shape.slot_rows, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const BlockPool::Sequence& held = *rows[i].held;
    tokens[i] = rows[i].token;
    positions[i] = held.length;
    writes[i] = KvCache::slot(held, held.length);
    lengths[i] = held.length + 1;
    const auto blocks = static_cast<size_t>(held.length / kKvBlock + 1);
    std::copy_n(held.blocks.begin(), blocks, table + i * columns);
  }
  const std::vector<Owner> owners = owners_of(rows);
  std::vector<Adapter*> adapters;
  for (const Owner& owner : owners) adapters.push_back(owner.adapter);
  const std::vector<int64_t> slots = adapters.empty() ? std::vector<int64_t>() : shape.adapters->load(adapters);
  for (size_t i = 0; i < owners.size(); ++i) {
    const int64_t first = slots[i] * shape.slot_rows;
    // The remaining rows of the slot repeat a row of the same adapter.
    std::fill_n(slot_rows + first, shape.slot_rows, owners[i].rows.front());
    for (size_t j = 0; j < owners[i].rows.size(); ++j) {
      slot_rows[first + static_cast<int64_t>(j)] = owners[i].rows[j];
      places[owners[i].rows[j]] = first + static_cast<int64_t>(j);
    }
  }
  step.inputs.copy_(step.host);
}

at::Tensor Decode::compute(const Step& step) const {
  const Shape& shape = step.shape;
  const at::TensorOptions integers = step.inputs.options();
  LoraPlan lora = shape.slots == 0 ? LoraPlan() : LoraPlan(*shape.adapters, step.slot_rows, step.places);
  Batch batch = transformer_.make_batch(step.tokens, step.positions, std::move(lora));
  batch.cache = &cache_;
  batch.write_slots = step.write_slots;
  const at::Tensor slots = step.table.unsqueeze(2) * kKvBlock + at::arange(kKvBlock, integers);
  const at::Tensor beyond = at::arange(shape.blocks * kKvBlock, integers) >= step.lengths.unsqueeze(1);
  // Unused positions are not read, because they may hold NaN, which a mask does not remove.
  batch.read_slots = slots.flatten(1).masked_fill(beyond, cache_.spare_block() * kKvBlock).flatten();
  batch.known = beyond.logical_not().view({shape.rows, 1, 1, -1});
  at::Tensor x = transformer_.embed(batch);
  for (int layer = 0; layer < transformer_.spec().layers; ++layer) x = transformer_.block(layer, x, batch);
  const at::Tensor normed = transformer_.final_norm(x);
  at::Tensor logits = transformer_.logits(normed);
  const at::Tensor delta = batch.lora.delta(normed, TargetModule::kLmHead, 0);
  if (delta.defined()) logits += delta;
  return logits;
}

at::Tensor Decode::capture(Step& step) {
  const at::Tensor want = compute(step);
  const auto is_captured = [](const Step& one) { return one.graph != nullptr; };
  const auto sibling = std::find_if(steps_.begin(), steps_.end(), is_captured);
  try {
    step.graph =
        make_graph_capture_(transformer_.placement(), sibling == steps_.end() ? nullptr : sibling->graph.get());
    step.graph->capture([this, &step] { step.logits = compute(step); });
    step.graph->replay();
    if (!agree(step.logits, want)) problem_ = "its results differ from those of single operations";
  } catch (const std::exception& error) {
    problem_ = error.what();
    problem_ = problem_.substr(0, problem_.find('\n'));
  }
  if (!problem_.empty()) {
    telemetry::log_warning(
        "engine.decode_not_recorded",
        "decode steps are launched operation by operation from now on, because a capture failed: " + problem_,
        {{"tuft.device", transformer_.placement().device.str()}});
    steps_.clear();
    slots_.clear();
  }
  return want;
}

std::optional<at::Tensor> Decode::step(std::span<const Row> rows) {
  if (!problem_.empty()) return std::nullopt;
  const auto shape = shape_of(rows);
  if (!shape) return std::nullopt;
  Step& step = step_of(*shape);
  fill(step, rows);
  if (step.graph == nullptr) return capture(step);
  step.graph->replay();
  return step.logits;
}

}  // namespace tuft::engine::torch
