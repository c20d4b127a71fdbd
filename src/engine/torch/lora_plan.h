// How the rows of a pass or step belong to adapters, and their products: y + (alpha / rank) B A x. Adapters of one
// shape with about as many rows each go through one batched product; their rows are padded to the longest.
// Internal. Functions may throw what libtorch throws.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"
#include "engine/torch/lora_slots.h"

namespace tuft::engine::torch {

class LoraPlan {
 public:
  LoraPlan() = default;  // of no adapter
  // Of adapters in slots: `rows` [slots * n] are each slot's among those of x, `places` [rows of x] where a row is
  // among these, or their count for one without adapter. Shapes and addresses are those of the arguments.
  LoraPlan(const LoraSlots& slots, const at::Tensor& rows, const at::Tensor& places);
  // `owners`: of each row; null: the base model alone. The adapters outlive this.
  LoraPlan(std::span<Adapter* const> owners, const Place& place);

  bool empty() const { return groups_.empty(); }
  // y plus what the adapters of its rows add there. x is [rows, in], y [rows, out], both in the activations' type.
  // With the graph being recorded, gradients reach the adapters and x.
  at::Tensor add(const at::Tensor& x, const at::Tensor& y, Site site, int layer) const;
  // The same without y; undefined where no row has an adapter there. Where some have none, theirs are zeros.
  at::Tensor delta(const at::Tensor& x, Site site, int layer) const;

 private:
  struct Group {
    std::vector<Adapter*> adapters;    // of one shape
    const LoraSlots* slots = nullptr;  // or these
    int64_t longest = 0;               // rows of one, padded
    at::Tensor rows;                   // [adapters * longest] of x; padding repeats a row of the adapter's own
    at::Tensor valid;                  // those of the padded rows that count; undefined: all
    int64_t count = 0;                 // of them
  };
  struct Owned {
    Adapter* adapter = nullptr;
    std::vector<int64_t> rows;
  };
  static std::vector<std::vector<Owned>> sort(std::span<Adapter* const> owners);
  static bool alike(const Owned& left, const Owned& right);
  static at::Tensor product_of_slots(const Group& group, const at::Tensor& x, Site site, int layer);
  at::Tensor product(const Group& group, const at::Tensor& x, Site site, int layer) const;
  at::Tensor indices(const std::vector<int64_t>& values) const;

  Place place_;
  std::vector<Group> groups_;
  bool whole_ = false;    // one adapter has every row, in order
  at::Tensor places_;     // of each row in the groups' products one after the other
  bool padded_ = false;   // some rows have no adapter: their place is one more row, of zeros
  bool in_order_ = true;  // every row is at its place
};

}  // namespace tuft::engine::torch
