// LoraPlan: the adapters of the rows of a pass or step, and their products: y + (alpha / rank) B A x. Adapters of one
// shape with similar numbers of rows share one batched product; their rows are padded to the longest. Internal.
// Functions may throw libtorch's exceptions.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"
#include "engine/torch/lora_layout.h"
#include "engine/torch/lora_slots.h"

namespace tuft::engine::torch {

class LoraPlan {
 public:
  LoraPlan() = default;  // no adapter
  // Makes the plan for adapters in slots: row i belongs to slot i / slot_rows. Depends on the shapes and addresses of
  // the arguments only.
  LoraPlan(const LoraSlots& slots, int64_t slot_rows);
  // `owners` holds the adapter of each row, null for the base model alone. The adapters must outlive this.
  LoraPlan(std::span<Adapter* const> owners, const Placement& placement);

  bool empty() const { return groups_.empty(); }
  // Returns the number of bytes that a training pass needs for the factors and their gradients.
  int64_t training_bytes() const;

  // A x of each group, for backward().
  using Hidden = std::vector<at::Tensor>;
  // Adds the products of the adapters of its rows to y. x is [rows, in], y is [rows, out], both contiguous and in the
  // type of activations.
  Hidden add(const at::Tensor& x, const at::Tensor& y, LoraSite site, int layer) const;
  // Returns the products only, zero for rows without adapter; undefined if no row has an adapter for the site.
  at::Tensor delta(const at::Tensor& x, LoraSite site, int layer, Hidden* hidden = nullptr) const;
  // Keeps the gradients of the factors, given that of y, for collect(), and adds the gradient of x to `dx`, unless it
  // is undefined. Each site of a block must be visited once; that of the head may be visited many times.
  void backward(const at::Tensor& x, const Hidden& hidden, const at::Tensor& dy, LoraSite site, int layer,
                const at::Tensor& dx) const;
  // Adds the gradients to those of the adapters.
  void collect();

 private:
  struct Section {
    at::Tensor factors;    // [adapters, size], or [size] of one adapter
    at::Tensor gradients;  // of them; undefined: none yet
  };
  struct Group {
    std::vector<Adapter*> adapters;  // of one shape; empty: they are in slots
    const LoraLayout* layout = nullptr;
    int64_t count = 0;    // number of adapters
    int64_t longest = 0;  // rows of one adapter, padded
    at::Tensor rows;      // [count * longest] of x; padding repeats a row of the same adapter
    at::Tensor real;      // [count, longest, 1], zero for padding; undefined: no padding
    // Made when they are first needed.
    mutable Section blocks;
    mutable Section head;
  };
  struct Owned {
    Adapter* adapter = nullptr;
    std::vector<int64_t> rows;
  };
  struct Factors {
    at::Tensor a, b;
  };
  static std::vector<std::vector<Owned>> sort(std::span<Adapter* const> owners);
  static bool alike(const Owned& left, const Owned& right);
  static Factors factors(const Group& group, LoraSite site, int layer);
  static Factors gradients(const Group& group, LoraSite site, int layer);
  void add_group(const std::vector<Owned>& members, std::vector<int64_t>& places, int64_t& next);
  // Returns the rows of a group, [count, longest, columns], or [longest, columns] of one adapter.
  at::Tensor grouped(const Group& group, const at::Tensor& x) const;
  // Inverse of grouped(), from the rows of every group: [rows, columns].
  at::Tensor scattered(std::vector<at::Tensor> of_groups, int64_t columns) const;

  Placement placement_;
  std::vector<Group> groups_;
  at::Tensor places_;      // of each row in the concatenated rows of the groups
  bool in_order_ = false;  // there is one group, and its rows are the rows in their order, without padding
  bool partial_ = false;   // rows without adapter have an additional row of zeros as their place
};

}  // namespace tuft::engine::torch
