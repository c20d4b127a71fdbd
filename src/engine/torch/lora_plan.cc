#include "engine/torch/lora_plan.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

namespace tuft::engine::torch {

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

at::Tensor LoraPlan::indices(const std::vector<int64_t>& values) const {
  const at::Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return host.to(placement_.device);
}

LoraPlan::LoraPlan(std::span<Adapter* const> owners, const Placement& placement) : placement_(placement) {
  const auto groups = sort(owners);
  whole_ = groups.size() == 1 && groups[0].size() == 1 && groups[0][0].rows.size() == owners.size();
  std::vector<int64_t> place_of(owners.size(), -1);
  int64_t next = 0;
  for (const auto& members : groups) {
    Group& group = groups_.emplace_back();
    for (const Owned& one : members) {
      group.adapters.push_back(one.adapter);
      group.longest = std::max(group.longest, static_cast<int64_t>(one.rows.size()));
    }
    if (whole_) return;
    std::vector<int64_t> rows;
    std::vector<int64_t> valid;
    for (const Owned& one : members) {
      for (const int64_t row : one.rows) {
        valid.push_back(static_cast<int64_t>(rows.size()));
        rows.push_back(row);
        place_of[static_cast<size_t>(row)] = next++;
      }
      // Padding repeats a row of the same adapter, so that no NaN of another tenant reaches its gradient.
      while (rows.size() % static_cast<size_t>(group.longest) != 0) rows.push_back(one.rows.front());
    }
    group.count = static_cast<int64_t>(valid.size());
    if (valid.size() < rows.size()) group.valid = indices(valid);
    group.rows = indices(rows);
  }
  for (size_t row = 0; row < place_of.size(); ++row) {
    padded_ = padded_ || place_of[row] < 0;
    if (place_of[row] < 0) place_of[row] = next;
    in_order_ = in_order_ && place_of[row] == static_cast<int64_t>(row);
  }
  in_order_ = in_order_ && !padded_;
  if (!groups_.empty() && !in_order_) places_ = indices(place_of);
}

LoraPlan::LoraPlan(const LoraSlots& slots, const at::Tensor& rows, const at::Tensor& places)
    : placement_(slots.placement()), places_(places), padded_(true), in_order_(false) {
  Group& group = groups_.emplace_back();
  group.slots = &slots;
  group.longest = rows.size(0) / slots.slots();
  group.rows = rows;
  group.count = rows.size(0);
}

at::Tensor LoraPlan::product_of_slots(const Group& group, const at::Tensor& x, TargetModule module, int layer) {
  const at::Tensor a = group.slots->a(module, layer);
  if (!a.defined()) return {};
  const at::Tensor input = x.index_select(0, group.rows).view({a.size(0), group.longest, x.size(1)});
  return at::bmm(at::bmm(input, a.transpose(1, 2)), group.slots->b(module, layer).transpose(1, 2)).flatten(0, 1);
}

at::Tensor LoraPlan::product(const Group& group, const at::Tensor& x, TargetModule module, int layer,
                             LoraLeaves* leaves) const {
  if (group.slots != nullptr) return product_of_slots(group, x, module, layer);
  if (group.adapters.front()->find(module, layer) == nullptr) return {};
  const at::Tensor input = whole_ ? x : x.index_select(0, group.rows);
  const auto [a, b] =
      leaves != nullptr ? leaves->make(group.adapters, module, layer) : factors_of(group.adapters, module, layer);
  if (group.adapters.size() == 1) return at::linear(at::linear(input, a), b);
  const auto size = static_cast<int64_t>(group.adapters.size());
  const at::Tensor hidden = at::bmm(input.view({size, group.longest, x.size(1)}), a.transpose(1, 2));
  const at::Tensor out = at::bmm(hidden, b.transpose(1, 2)).flatten(0, 1);
  return group.valid.defined() ? out.index_select(0, group.valid) : out;
}

at::Tensor LoraPlan::delta(const at::Tensor& x, TargetModule module, int layer, LoraLeaves* leaves) const {
  std::vector<at::Tensor> products;
  bool any = false;
  for (const Group& group : groups_) {
    products.push_back(product(group, x, module, layer, leaves));
    any = any || products.back().defined();
  }
  if (!any) return {};
  if (whole_) return products.front();
  const auto first = std::find_if(products.begin(), products.end(), [](const auto& p) { return p.defined(); });
  const int64_t out = first->size(1);
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!products[i].defined()) products[i] = at::zeros({groups_[i].count, out}, placement_.active());
  }
  if (padded_) products.push_back(at::zeros({1, out}, placement_.active()));
  const at::Tensor all = products.size() == 1 ? products.front() : at::cat(products);
  return in_order_ ? all : all.index_select(0, places_);
}

at::Tensor LoraPlan::add(const at::Tensor& x, const at::Tensor& y, TargetModule module, int layer,
                         LoraLeaves* leaves) const {
  const at::Tensor added = delta(x, module, layer, leaves);
  return added.defined() ? y + added : y;
}

}  // namespace tuft::engine::torch
