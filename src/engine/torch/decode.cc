#include "engine/torch/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "engine/torch/guarded.h"
#include "telemetry/log.h"

namespace tuft::engine::torch {
namespace {

// The number of shapes kept. Their intermediate results share one memory, and their inputs are small; each has logits
// of its own.
constexpr size_t kStepsMax = 64;
// After a capture that found no memory.
constexpr int kStepsWithoutCapture = 1000;
// Up to this number of keys padding costs almost nothing; above it at most half of the keys may be padding.
constexpr int64_t kKeysFree = 16'384;

int64_t up(size_t count) {
  return static_cast<int64_t>(std::bit_ceil(count));
}

// Returns true if the logits are equal within the precision of bf16. NaN equals NaN.
bool agree(const at::Tensor& got, const at::Tensor& want) {
  return got.allclose(want, 0.02, 0.02, true);
}

// An adapter, null for the base model alone, and its rows.
using Owner = std::pair<Adapter*, std::vector<size_t>>;

std::vector<Owner> owners_of(std::span<const Decode::Row> rows) {
  std::vector<Owner> owners;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto is_owner = [&](const Owner& owner) { return owner.first == rows[i].adapter; };
    auto owner = std::find_if(owners.begin(), owners.end(), is_owner);
    if (owner == owners.end()) owner = owners.insert(owner, {rows[i].adapter, {}});
    owner->second.push_back(i);
  }
  return owners;
}

int64_t slots_of(const std::vector<Owner>& owners, int64_t slot_rows) {
  int64_t slots = 0;
  for (const Owner& owner : owners) slots += (static_cast<int64_t>(owner.second.size()) + slot_rows - 1) / slot_rows;
  return up(static_cast<size_t>(slots));
}

// What a slot costs in rows: a step reads its adapter, which takes about as long as two rows.
constexpr int64_t kSlotCost = 2;

// Returns the possible numbers of rows of a slot: first the one with which a step costs the least, and of equal ones
// that with fewer rows in all.
std::vector<int64_t> slot_rows_by_cost(const std::vector<Owner>& owners, size_t rows) {
  std::vector<std::array<int64_t, 3>> choices;
  for (int64_t slot_rows = up(rows); slot_rows > 0; slot_rows /= 2) {
    const int64_t slots = slots_of(owners, slot_rows);
    choices.push_back({slots * (slot_rows + kSlotCost), slots * slot_rows, slot_rows});
  }
  std::sort(choices.begin(), choices.end());
  std::vector<int64_t> sorted;
  for (const auto& choice : choices) sorted.push_back(choice.back());
  return sorted;
}

}  // namespace

Decode::Decode(Transformer& transformer, KvCache& cache, int64_t keys_max, MakeGraphCapture make_graph_capture)
    : transformer_(transformer),
      cache_(cache),
      keys_max_(keys_max),
      make_graph_capture_(std::move(make_graph_capture)) {
  transformer.extend_rope(transformer.spec().max_position);
  bytes_max_ = side_bytes_max(transformer.placement().device);
}

LoraSlots* Decode::slots_for(const Adapter& example, int64_t count) {
  const auto fits = [&](const auto& slots) {
    return slots->slots() == count && check_same_layers(slots->spec(), example.spec()).ok();
  };
  const auto found = std::find_if(slots_.begin(), slots_.end(), fits);
  if (found != slots_.end()) return found->get();
  const int64_t bytes = LoraSlots::bytes(example, count);
  if (bytes > bytes_max_) return nullptr;
  if (slot_bytes_ + bytes > bytes_max_) {
    steps_.clear();
    slots_.clear();
    slot_bytes_ = 0;
  }
  slots_.push_back(std::make_unique<LoraSlots>(example, count, transformer_.placement()));
  slot_bytes_ += bytes;
  return slots_.back().get();
}

std::optional<Decode::Arrangement> Decode::arrange(std::span<const Row> rows) {
  const std::vector<Owner> owners = owners_of(rows);
  const auto example =
      std::find_if(owners.begin(), owners.end(), [](const Owner& one) { return one.first != nullptr; });
  const auto alike = [&](const Owner& owner) {
    return owner.first == nullptr || check_same_layers(example->first->spec(), owner.first->spec()).ok();
  };
  if (example != owners.end() && !std::all_of(owners.begin(), owners.end(), alike)) return std::nullopt;

  Shape shape;
  const std::vector<int64_t> choices = slot_rows_by_cost(owners, rows.size());
  const auto chosen = std::find_if(choices.begin(), choices.end(), [&](int64_t slot_rows) {
    const int64_t slots = slots_of(owners, slot_rows);
    shape = {.rows = slots * slot_rows, .slot_rows = slot_rows};
    if (!fit_keys(rows, shape)) return false;
    if (example == owners.end()) return true;
    shape.adapters = slots_for(*example->first, slots);
    return shape.adapters != nullptr;
  });
  if (chosen == choices.end()) return std::nullopt;
  Arrangement result{shape, {}};
  for (const auto& [adapter, of_adapter] : owners) {
    for (size_t i = 0; i < of_adapter.size(); ++i) {
      if (i % static_cast<size_t>(shape.slot_rows) == 0) result.slots.push_back({adapter, {}});
      result.slots.back().rows.push_back(of_adapter[i]);
    }
  }
  return result;
}

// Sets the number of blocks of the KV cache. Returns false if most of the keys would be padding.
bool Decode::fit_keys(std::span<const Row> rows, Shape& shape) const {
  size_t longest = 0;
  size_t blocks = 0;
  for (const Row& row : rows) {
    if (row.held->length >= transformer_.spec().max_position) return false;
    const auto count = static_cast<size_t>(row.held->length / kKvBlock + 1);
    longest = std::max(longest, count);
    blocks += count;
  }
  shape.blocks = up(longest);
  const int64_t filled = shape.rows * shape.blocks;
  if (shape.rows > transformer_.logits_rows_max() || filled * kKvBlock > keys_max_) return false;
  return filled * kKvBlock <= kKeysFree || filled <= 2 * static_cast<int64_t>(blocks);
}

int64_t Decode::logits_bytes(const Shape& shape) const {
  return shape.rows * transformer_.spec().vocab_size * int64_t{sizeof(float)};
}

// Forgets the longest unused steps.
void Decode::make_room_for(const Shape& shape) {
  int64_t bytes = logits_bytes(shape);
  for (const Step& step : steps_) bytes += logits_bytes(step.shape);
  while (!steps_.empty() && (steps_.size() >= kStepsMax || bytes > bytes_max_)) {
    bytes -= logits_bytes(steps_.back().shape);
    steps_.pop_back();
  }
}

Decode::Step& Decode::step_of(const Shape& shape) {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.shape == shape; });
  if (found != steps_.end()) {
    steps_.splice(steps_.begin(), steps_, found);
    return steps_.front();
  }
  make_room_for(shape);
  Step step;
  step.shape = shape;
  const int64_t rows = shape.rows;
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong);
  step.host = host_empty({rows * (5 + shape.blocks)}, at::kLong, transformer_.placement());
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
  step.order = take(rows);
  step.table = take(rows * shape.blocks).view({rows, shape.blocks});
  return steps_.emplace_front(std::move(step));
}

// Writes the inputs in the order in which step_of() lays them out.
void Decode::fill(Step& step, std::span<const Row> rows, const std::vector<Slot>& slots) {
  const Shape& shape = step.shape;
  const auto count = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.blocks);
  int64_t* tokens = step.host.data_ptr<int64_t>();
  int64_t* positions = tokens + count;
  int64_t* writes = positions + count;
  int64_t* lengths = writes + count;
  int64_t* order = lengths + count;
  int64_t* table = order + count;
  const int64_t spare = cache_.spare_block();
  // Padding rows hold token 0 at position 0. They read the zeros of the spare block and write beside them.
  std::fill_n(tokens, 2 * count, 0);
  std::fill_n(writes, count, spare * kKvBlock + 1);
  std::fill_n(lengths, count, 1);
  std::fill_n(order, count, 0);
  std::fill_n(table, count * columns, spare);

  std::vector<Adapter*> adapters;
  for (const Slot& slot : slots) adapters.push_back(slot.adapter);
  const std::vector<int64_t> places =
      shape.adapters == nullptr ? std::vector<int64_t>(1, 0) : shape.adapters->load(adapters);
  for (size_t i = 0; i < slots.size(); ++i) {
    auto place = static_cast<size_t>(places[i] * shape.slot_rows);
    for (const size_t row : slots[i].rows) {
      const BlockPool::Sequence& held = *rows[row].held;
      tokens[place] = rows[row].token;
      positions[place] = held.length;
      writes[place] = KvCache::slot(held, held.length);
      lengths[place] = held.length + 1;
      order[row] = static_cast<int64_t>(place);
      const auto blocks = static_cast<size_t>(held.length / kKvBlock + 1);
      std::copy_n(held.blocks.begin(), blocks, table + place * columns);
      ++place;
    }
  }
  step.inputs.copy_(step.host, true);  // the caller waits for the step before it fills the next
}

at::Tensor Decode::compute(const Step& step) const {
  const Shape& shape = step.shape;
  const at::TensorOptions integers = step.inputs.options();
  LoraPlan lora = shape.adapters == nullptr ? LoraPlan() : LoraPlan(*shape.adapters, shape.slot_rows);
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
  const at::Tensor delta = batch.lora.delta(normed, LoraSite::kHead, 0);
  if (delta.defined()) logits += delta;
  return shape.adapters == nullptr ? logits : logits.index_select(0, step.order);
}

at::Tensor Decode::capture(Step& step) {
  at::Tensor want = compute(step);
  const auto is_captured = [](const Step& one) { return one.graph != nullptr; };
  const auto sibling = std::find_if(steps_.begin(), steps_.end(), is_captured);
  const auto capture_and_compare = [&] {
    step.graph =
        make_graph_capture_(transformer_.placement(), sibling == steps_.end() ? nullptr : sibling->graph.get());
    step.graph->capture([this, &step] { step.logits = compute(step); });
    step.graph->replay();
    if (agree(step.logits, want)) return;
    problem_ = "its results differ from those of single operations";
    want = compute(step);  // writes the keys and values again
  };
  try {
    if (!has_memory_for(capture_and_compare)) {
      step.graph.reset();
      defer_captures();
    }
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

void Decode::defer_captures() {
  std::erase_if(steps_, [](const Step& step) { return step.graph == nullptr; });
  until_capture_ = kStepsWithoutCapture;
  telemetry::log_warning("engine.capture_deferred",
                         "a decode step could not be captured, because the device has no memory for it; steps of new "
                         "shapes are launched operation by operation for a while",
                         {{"tuft.device", transformer_.placement().device.str()}});
}

std::optional<at::Tensor> Decode::captured_step(std::span<const Row> rows) {
  const auto arrangement = arrange(rows);
  if (!arrangement) return std::nullopt;
  const auto is_known = [&](const Step& step) { return step.shape == arrangement->shape; };
  if (until_capture_ > 0 && std::none_of(steps_.begin(), steps_.end(), is_known)) return std::nullopt;
  Step& step = step_of(arrangement->shape);
  fill(step, rows, arrangement->slots);
  if (step.graph == nullptr) return capture(step);
  step.graph->replay();
  return step.logits;
}

std::optional<at::Tensor> Decode::step(std::span<const Row> rows) {
  if (!problem_.empty()) return std::nullopt;
  if (until_capture_ > 0) --until_capture_;
  std::optional<at::Tensor> logits;
  if (!has_memory_for([&] { logits = captured_step(rows); })) defer_captures();
  return logits;
}

}  // namespace tuft::engine::torch
