#include "engine/torch/lora_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace tuft::engine::torch {
namespace {

// Products of matrices, and of batches of them. For one matrix libtorch has better kernels, and fewer views to make.
at::Tensor times(const at::Tensor& left, const at::Tensor& right) {
  return left.dim() == 2 ? at::mm(left, right) : at::bmm(left, right);
}

void add_times(const at::Tensor& left, const at::Tensor& right, const at::Tensor& to) {
  if (left.dim() == 2) {
    to.addmm_(left, right);
  } else {
    to.baddbmm_(left, right);
  }
}

void write_times(const at::Tensor& left, const at::Tensor& right, const at::Tensor& to) {
  at::Tensor out = to;
  if (left.dim() == 2) {
    at::mm_out(out, left, right);
  } else {
    at::bmm_out(out, left, right);
  }
}

at::Tensor transposed(const at::Tensor& x) {
  return x.transpose(-2, -1);
}

}  // namespace

// Less than half of a batched product may be padding.
bool LoraPlan::alike(const Owned& left, const Owned& right) {
  return check_same_layers(left.adapter->spec(), right.adapter->spec()).ok() &&
         std::bit_width(left.rows.size()) == std::bit_width(right.rows.size());
}

std::vector<std::vector<LoraPlan::Owned>> LoraPlan::sort(std::span<Adapter* const> owners) {
  std::vector<Owned> owned;
  std::unordered_map<Adapter*, size_t> places;
  for (size_t row = 0; row < owners.size(); ++row) {
    if (owners[row] == nullptr) continue;
    const auto [placement, is_new] = places.emplace(owners[row], owned.size());
    if (is_new) owned.push_back({owners[row], {}});
    owned[placement->second].rows.push_back(static_cast<int64_t>(row));
  }
  std::vector<std::vector<Owned>> groups;
  for (Owned& one : owned) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return alike(g[0], one); });
    if (group == groups.end()) {
      groups.emplace_back().push_back(std::move(one));
    } else {
      group->push_back(std::move(one));
    }
  }
  return groups;
}

// Sets the places of the members' rows. `next` is the number of rows of the groups so far.
void LoraPlan::add_group(const std::vector<Owned>& members, std::vector<int64_t>& places, int64_t& next) {
  Group& group = groups_.emplace_back();
  group.layout = &members.front().adapter->layout();
  group.count = static_cast<int64_t>(members.size());
  for (const Owned& one : members) {
    group.adapters.push_back(one.adapter);
    group.longest = std::max(group.longest, static_cast<int64_t>(one.rows.size()));
  }
  std::vector<int64_t> rows;
  std::vector<int64_t> real;
  for (const Owned& one : members) {
    for (const int64_t row : one.rows) {
      places[static_cast<size_t>(row)] = next + static_cast<int64_t>(rows.size());
      rows.push_back(row);
      real.push_back(1);
    }
    // Padding repeats a row of the same adapter, so that no NaN of another tenant reaches its gradient.
    for (; rows.size() % static_cast<size_t>(group.longest) != 0; real.push_back(0)) rows.push_back(one.rows.front());
  }
  next += static_cast<int64_t>(rows.size());
  std::vector<int64_t> order(places.size());
  std::iota(order.begin(), order.end(), 0);
  in_order_ = rows == order;
  if (in_order_) return;
  group.rows = to_device(rows, placement_);
  if (std::find(real.begin(), real.end(), 0) == real.end()) return;
  group.real = to_device(real, placement_).to(placement_.activations);
  group.real = group.count == 1 ? group.real.unsqueeze(1) : group.real.view({group.count, group.longest, 1});
}

LoraPlan::LoraPlan(std::span<Adapter* const> owners, const Placement& placement) : placement_(placement) {
  std::vector<int64_t> places(owners.size(), -1);
  int64_t next = 0;
  for (const auto& members : sort(owners)) add_group(members, places, next);
  for (int64_t& place : places) {
    partial_ = partial_ || place < 0;
    if (place < 0) place = next;
  }
  if (!groups_.empty() && !in_order_) places_ = to_device(places, placement_);
}

LoraPlan::LoraPlan(const LoraSlots& slots, int64_t slot_rows) : in_order_(true) {
  Group& group = groups_.emplace_back();
  group.layout = &slots.layout();
  group.count = slots.slots();
  group.longest = slot_rows;
  const at::Tensor all = group.count == 1 ? slots.factors().select(0, 0) : slots.factors();
  group.blocks.factors = group.layout->section(all, LoraLayout::Section::kBlocks);
  group.head.factors = group.layout->section(all, LoraLayout::Section::kHead);
}

int64_t LoraPlan::training_bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) {
    const auto all = group.count * static_cast<int64_t>(group.adapters.front()->factors().nbytes());
    bytes += group.count > 1 ? 2 * all : all;
  }
  return bytes;
}

LoraPlan::Factors LoraPlan::factors(const Group& group, LoraSite site, int layer) {
  const LoraLayout::Section which = LoraLayout::section_of(site);
  at::Tensor& section = (which == LoraLayout::Section::kHead ? group.head : group.blocks).factors;
  if (!section.defined()) {
    std::vector<at::Tensor> parts;
    for (const Adapter* adapter : group.adapters) parts.push_back(group.layout->section(adapter->factors(), which));
    section = parts.size() == 1 ? parts.front() : at::stack(parts);
  }
  return {group.layout->a(section, site, layer), group.layout->b(section, site, layer)};
}

LoraPlan::Factors LoraPlan::gradients(const Group& group, LoraSite site, int layer) {
  const bool head = site == LoraSite::kHead;
  const at::Tensor& factors = head ? group.head.factors : group.blocks.factors;
  at::Tensor& section = head ? group.head.gradients : group.blocks.gradients;
  if (!section.defined()) section = head ? at::zeros_like(factors) : at::empty_like(factors);
  return {group.layout->a(section, site, layer), group.layout->b(section, site, layer)};
}

at::Tensor LoraPlan::grouped(const Group& group, const at::Tensor& x) const {
  const at::Tensor rows = in_order_ ? x : x.index_select(0, group.rows);
  return group.count == 1 ? rows : rows.view({group.count, group.longest, x.size(1)});
}

at::Tensor LoraPlan::scattered(std::vector<at::Tensor> of_groups, int64_t columns) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int64_t rows = groups_[i].count * groups_[i].longest;
    at::Tensor& part = of_groups[i];
    part = part.defined() ? part.view({rows, columns}) : at::zeros({rows, columns}, placement_.active());
  }
  if (in_order_) return of_groups.front();
  if (partial_) of_groups.push_back(at::zeros({1, columns}, placement_.active()));
  const at::Tensor all = of_groups.size() == 1 ? of_groups.front() : at::cat(of_groups);
  return all.index_select(0, places_);
}

at::Tensor LoraPlan::delta(const at::Tensor& x, LoraSite site, int layer, Hidden* hidden) const {
  std::vector<at::Tensor> products(groups_.size());
  int64_t out = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (hidden != nullptr) hidden->emplace_back();
    if (!group.layout->has(site)) continue;
    const Factors factor = factors(group, site, layer);
    at::Tensor h = times(grouped(group, x), transposed(factor.a));
    if (group.real.defined()) h.mul_(group.real);
    products[i] = times(h, transposed(factor.b));
    out = factor.b.size(-2);
    if (hidden != nullptr) hidden->back() = h;
  }
  return out > 0 ? scattered(std::move(products), out) : at::Tensor();
}

LoraPlan::Hidden LoraPlan::add(const at::Tensor& x, const at::Tensor& y, LoraSite site, int layer) const {
  Hidden hidden;
  if (in_order_ && groups_.front().layout->has(site)) {
    const Group& group = groups_.front();
    const Factors factor = factors(group, site, layer);
    hidden.push_back(times(grouped(group, x), transposed(factor.a)));
    add_times(hidden.back(), transposed(factor.b), grouped(group, y));
    return hidden;
  }
  const at::Tensor added = delta(x, site, layer, &hidden);
  if (added.defined()) y.add_(added);
  return hidden;
}

void LoraPlan::backward(const at::Tensor& x, const Hidden& hidden, const at::Tensor& dy, LoraSite site, int layer,
                        const at::Tensor& dx) const {
  std::vector<at::Tensor> products(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (!group.layout->has(site)) continue;
    const Factors factor = factors(group, site, layer);
    const Factors gradient = gradients(group, site, layer);
    const at::Tensor of_y = grouped(group, dy);
    at::Tensor of_h = times(of_y, factor.b);
    if (group.real.defined()) of_h.mul_(group.real);  // hidden is zero there, too, so that padding adds nothing
    const auto into = site == LoraSite::kHead ? add_times : write_times;
    into(transposed(of_y), hidden[i], gradient.b);
    into(transposed(of_h), grouped(group, x), gradient.a);
    if (!dx.defined()) continue;
    if (in_order_) {
      add_times(of_h, factor.a, grouped(group, dx));
    } else {
      products[i] = times(of_h, factor.a);
    }
  }
  const auto defined = [](const at::Tensor& product) { return product.defined(); };
  if (std::none_of(products.begin(), products.end(), defined)) return;
  dx.add_(scattered(std::move(products), dx.size(1)));
}

void LoraPlan::collect() {
  for (Group& group : groups_) {
    for (const LoraLayout::Section which : {LoraLayout::Section::kBlocks, LoraLayout::Section::kHead}) {
      at::Tensor& of_section = (which == LoraLayout::Section::kHead ? group.head : group.blocks).gradients;
      if (!of_section.defined()) continue;
      const auto of_adapters = group.count == 1 ? std::vector<at::Tensor>{of_section} : of_section.unbind(0);
      for (size_t i = 0; i < of_adapters.size(); ++i) group.adapters[i]->add_gradients(which, of_adapters[i]);
      of_section = at::Tensor();
    }
  }
}

}  // namespace tuft::engine::torch
