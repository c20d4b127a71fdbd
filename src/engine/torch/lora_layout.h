// LoraLayout: where the factors of an adapter's products lie in one flat tensor. The modules that read the same input
// are one site, as they are one weight of the base model: q, k and v; gate and up. The A of a site holds those of its
// modules one below the other, and its B holds theirs on the diagonal, so that one product adds to all of them. Each
// block of the model has the same layout. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/lora.h"

namespace tuft::engine::torch {

enum class LoraSite : uint8_t { kQkv, kO, kGateUp, kDown, kHead };

class LoraLayout {
 public:
  LoraLayout() = default;
  LoraLayout(const ModelSpec& model, const LoraSpec& spec);

  // The factors of the blocks and of the head are used at different times, and lie in two sections.
  enum class Section : uint8_t { kBlocks, kHead };
  static Section section_of(LoraSite site) { return site == LoraSite::kHead ? Section::kHead : Section::kBlocks; }
  int64_t size(Section section) const { return section == Section::kHead ? head_size_ : layers_ * block_size_; }
  int64_t size() const { return size(Section::kBlocks) + size(Section::kHead); }
  // Returns the section of `all` [n, size()], or of a tensor of size(), as a view.
  at::Tensor section(const at::Tensor& all, Section section) const;

  bool has(LoraSite site) const { return !place(site).parts.empty(); }
  // Return A, [n, rank, in], and B, [n, out, rank], as views of `section` [n, size(section)]; without the first
  // dimension if `section` has none. The rank of a site is the sum of those of its modules.
  at::Tensor a(const at::Tensor& section, LoraSite site, int layer) const;
  at::Tensor b(const at::Tensor& section, LoraSite site, int layer) const;

  // Writes the factors of an adapter to `all` [size()], which must be zero elsewhere. `values` are its parameters in
  // the order of lora_layers(). A is scaled.
  void write(const at::Tensor& values, float scale, const at::Tensor& all) const;
  // Adds the gradients of the factors of a section, [size(section)], to those of the parameters.
  void add_gradients(Section section, const at::Tensor& factors, float scale, const at::Tensor& gradients) const;

 private:
  struct Part {
    int64_t values = 0;  // offset of the module's A in the parameters of a block; B follows
    int64_t row = 0;     // first row of its B
    int64_t out = 0;
  };
  struct Place {
    int64_t in = 0;
    int64_t out = 0;
    int64_t offset = 0;  // of A in the factors of a block; B follows
    std::vector<Part> parts;
  };
  // Views of the factors or the gradients of one module, in every layer.
  struct Views {
    at::Tensor factor_a, factor_b, value_a, value_b;
  };

  const Place& place(LoraSite site) const { return places_[static_cast<size_t>(site)]; }
  static at::Tensor matrices(const at::Tensor& section, int64_t rows, int64_t columns, int64_t offset);
  int64_t rank(const Place& place) const { return rank_ * static_cast<int64_t>(place.parts.size()); }
  template <typename Visit>
  void for_each_part(Section section, const at::Tensor& factors, const at::Tensor& values, const Visit& visit) const;

  int64_t rank_ = 0;
  int64_t layers_ = 0;
  int64_t block_values_ = 0;  // parameters of a block
  int64_t block_size_ = 0;    // factors of a block
  int64_t head_size_ = 0;
  std::vector<Place> places_ = std::vector<Place>(5);
};

}  // namespace tuft::engine::torch
