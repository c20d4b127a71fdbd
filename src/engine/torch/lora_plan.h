// How the rows of a pass or step belong to adapters, and their products: y + (alpha / rank) B A x. Adapters of one
// shape with about as many rows each go through one batched product; their rows are padded to the longest.
// Internal. Functions may throw what libtorch throws.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"

namespace tuft::engine::torch {

class LoraPlan {
 public:
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
    std::vector<Adapter*> adapters;  // of one shape
    int64_t longest = 0;             // rows of one, padded
    at::Tensor rows;                 // [adapters * longest] of x; padding repeats a row of the adapter's own
    at::Tensor valid;                // those of the padded rows that count; undefined: all
    int64_t count = 0;               // of them
  };
  struct Owned {
    Adapter* adapter = nullptr;
    std::vector<int64_t> rows;
  };
  static std::vector<std::vector<Owned>> sort(std::span<Adapter* const> owners);
  static bool alike(const Owned& left, const Owned& right);
  at::Tensor product(const Group& group, const at::Tensor& x, Site site, int layer) const;
  at::Tensor indices(const std::vector<int64_t>& values) const;

  Place place_;
  int64_t rows_ = 0;
  std::vector<Group> groups_;
  bool whole_ = false;    // one adapter has every row, in order
  at::Tensor places_;     // of each row in the groups' products one after the other
  bool padded_ = false;   // some rows have no adapter: their place is one more row, of zeros
  bool in_order_ = true;  // every row is at its place
};

}  // namespace tuft::engine::torch
