#include "engine/torch/lora_layout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

namespace tuft::engine::torch {
namespace {

LoraSite site_of(TargetModule module) {
  switch (module) {
    case TargetModule::kQ:
    case TargetModule::kK:
    case TargetModule::kV:
      return LoraSite::kQkv;
    case TargetModule::kO:
      return LoraSite::kO;
    case TargetModule::kGate:
    case TargetModule::kUp:
      return LoraSite::kGateUp;
    case TargetModule::kDown:
      return LoraSite::kDown;
    case TargetModule::kLmHead:
      break;
  }
  return LoraSite::kHead;
}

at::Tensor view(const at::Tensor& flat, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  return flat.as_strided(sizes, strides, flat.storage_offset() + offset);
}

}  // namespace

LoraLayout::LoraLayout(const ModelSpec& model, const LoraSpec& spec) : rank_(spec.rank), layers_(model.layers) {
  for (const LoraLayer& layer : lora_layers(model, spec)) {
    if (layer.layer > 0) continue;
    const LoraSite site = site_of(layer.module);
    Place& place = places_[static_cast<size_t>(site)];
    int64_t& values = block_values_;
    place.parts.push_back({.values = site == LoraSite::kHead ? 0 : values, .row = place.out, .out = layer.out});
    place.in = layer.in;
    place.out += layer.out;
    if (site != LoraSite::kHead) values += rank_ * (layer.in + layer.out);
  }
  for (Place& place : places_) {
    int64_t& size = &place == &places_.back() ? head_size_ : block_size_;
    place.offset = size;
    size += rank(place) * (place.in + place.out);
  }
}

at::Tensor LoraLayout::section(const at::Tensor& all, Section section) const {
  return all.narrow(-1, section == Section::kHead ? size(Section::kBlocks) : 0, size(section));
}

at::Tensor LoraLayout::matrices(const at::Tensor& section, int64_t rows, int64_t columns, int64_t offset) {
  if (section.dim() == 1) return view(section, {rows, columns}, {columns, 1}, offset);
  return view(section, {section.size(0), rows, columns}, {section.stride(0), columns, 1}, offset);
}

at::Tensor LoraLayout::a(const at::Tensor& section, LoraSite site, int layer) const {
  const Place& at = place(site);
  return matrices(section, rank(at), at.in, layer * block_size_ + at.offset);
}

at::Tensor LoraLayout::b(const at::Tensor& section, LoraSite site, int layer) const {
  const Place& at = place(site);
  return matrices(section, at.out, rank(at), layer * block_size_ + at.offset + rank(at) * at.in);
}

template <typename Visit>
void LoraLayout::for_each_part(Section section, const at::Tensor& factors, const at::Tensor& values,
                               const Visit& visit) const {
  const bool head = section == Section::kHead;
  const int64_t layers = head ? 1 : layers_;
  const int64_t first = head ? layers_ * block_values_ : 0;
  for (const Place& place : places_) {
    if ((&place == &places_.back()) != head) continue;
    const int64_t width = rank(place);
    const int64_t of_b = place.offset + width * place.in;
    int64_t column = 0;
    for (const Part& part : place.parts) {
      const int64_t part_b = part.values + rank_ * place.in;
      visit(Views{
          .factor_a =
              view(factors, {layers, rank_, place.in}, {block_size_, place.in, 1}, place.offset + column * place.in),
          .factor_b =
              view(factors, {layers, part.out, rank_}, {block_size_, width, 1}, of_b + part.row * width + column),
          .value_a = view(values, {layers, rank_, place.in}, {block_values_, place.in, 1}, first + part.values),
          .value_b = view(values, {layers, part.out, rank_}, {block_values_, rank_, 1}, first + part_b),
      });
      column += rank_;
    }
  }
}

void LoraLayout::write(const at::Tensor& values, float scale, const at::Tensor& all) const {
  const at::Tensor factor = at::scalar_tensor(scale);
  for (const Section part : {Section::kBlocks, Section::kHead}) {
    for_each_part(part, section(all, part), values, [&](Views views) {
      at::mul_out(views.factor_a, views.value_a, factor);
      views.factor_b.copy_(views.value_b);
    });
  }
}

// With a' = scale * a, the gradient of a is scale times that of a'.
void LoraLayout::add_gradients(Section section, const at::Tensor& factors, float scale,
                               const at::Tensor& gradients) const {
  for_each_part(section, factors, gradients, [&](const Views& views) {
    views.value_a.add_(views.factor_a, scale);
    views.value_b.add_(views.factor_b);
  });
}

}  // namespace tuft::engine::torch
