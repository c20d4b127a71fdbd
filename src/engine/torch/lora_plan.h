// LoraPlan: the adapters of the rows of a pass or step, and their products: y + (alpha / rank) B A x. Adapters of one
// shape with similar numbers of rows share one batched product; their rows are padded to the longest. Internal.
// Functions may throw libtorch's exceptions.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"
#include "engine/torch/lora_leaves.h"
#include "engine/torch/lora_slots.h"

namespace tuft::engine::torch {

class LoraPlan {
 public:
  LoraPlan() = default;  // no adapter
  // Makes the plan for adapters in slots. `rows` [slots * n] holds the rows of x of each slot; `places` [rows of x]
  // holds the index of each row of x in `rows`, or slots * n for a row without adapter. Depends on the shapes and
  // addresses of the arguments only.
  LoraPlan(const LoraSlots& slots, const at::Tensor& rows, const at::Tensor& places);
  // `owners` holds the adapter of each row, null for the base model alone. The adapters must outlive this.
  LoraPlan(std::span<Adapter* const> owners, const Placement& placement);

  bool empty() const { return groups_.empty(); }
  // Returns y plus the products of the adapters of its rows. x is [rows, in], y is [rows, out], both in the type of
  // activations. With `leaves` the adapters' matrices are those leaves of the gradient graph, without they are
  // constants.
  at::Tensor add(const at::Tensor& x, const at::Tensor& y, TargetModule module, int layer,
                 LoraLeaves* leaves = nullptr) const;
  // Returns the products only, zero for rows without adapter; undefined if no row has an adapter for the layer.
  at::Tensor delta(const at::Tensor& x, TargetModule module, int layer, LoraLeaves* leaves = nullptr) const;

 private:
  struct Group {
    std::vector<Adapter*> adapters;    // of one shape
    const LoraSlots* slots = nullptr;  // or these
    int64_t longest = 0;               // rows of one adapter, padded
    at::Tensor rows;                   // [adapters * longest] of x; padding repeats a row of the same adapter
    at::Tensor valid;                  // the padded rows that are not padding; undefined: all
    int64_t count = 0;                 // number of valid rows
  };
  struct Owned {
    Adapter* adapter = nullptr;
    std::vector<int64_t> rows;
  };
  static std::vector<std::vector<Owned>> sort(std::span<Adapter* const> owners);
  static bool alike(const Owned& left, const Owned& right);
  static at::Tensor product_of_slots(const Group& group, const at::Tensor& x, TargetModule module, int layer);
  at::Tensor product(const Group& group, const at::Tensor& x, TargetModule module, int layer, LoraLeaves* leaves) const;
  at::Tensor indices(const std::vector<int64_t>& values) const;

  Placement placement_;
  std::vector<Group> groups_;
  bool whole_ = false;    // one adapter has every row, in order
  at::Tensor places_;     // of each row in the concatenated products of the groups
  bool padded_ = false;   // rows without adapter use one additional row of zeros
  bool in_order_ = true;  // every row has its own index as its place
};

}  // namespace tuft::engine::torch
