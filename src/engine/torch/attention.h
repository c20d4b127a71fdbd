// Attention: causal attention over concatenated sequences, without padding. Internal. Functions may throw libtorch's
// exceptions.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/model_spec.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

// Spans: the ranges of sequences among the rows of queries and of keys. The queries of a sequence are its last rows.
class Spans {
 public:
  void append(int64_t queries, int64_t keys);
  void upload(const Placement& placement);  // after the last append()

  struct Span {
    int64_t query = 0;  // first row
    int64_t queries = 0;
    int64_t key = 0;
    int64_t keys = 0;
  };
  const std::vector<Span>& all() const { return spans_; }
  bool with_past() const { return with_past_; }  // true: a sequence has more keys than queries

 private:
  friend class Attention;
  std::vector<Span> spans_;
  bool with_past_ = false;
  int64_t longest_query_ = 0;
  int64_t longest_key_ = 0;
  at::Tensor query_ends_;  // [sequences + 1], in the form of the fused kernels
  at::Tensor key_ends_;
};

class Attention {
 public:
  // On a GPU it tries libtorch's fused kernel for packed sequences, compares its values and gradients with the plain
  // ones, and uses it only if they agree.
  Attention(const ModelSpec& spec, const Placement& placement);

  // q is [queries, heads, head_dim], k and v are [keys, kv_heads, head_dim]. Returns [queries, heads * head_dim].
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) const;

  // Requires one query per sequence and the same number of keys for each; `known` [sequences, 1, 1, keys] says which of
  // them exist. Depends on the shapes and addresses of the arguments only.
  at::Tensor masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& known) const;

  // Returns why an available fused kernel is not used; empty: it is used, or not available.
  const std::string& problem() const { return problem_; }

 private:
  at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) const;
  static at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans);
  bool try_fused(const Spans& spans) const;
  std::string probe();

  Placement placement_;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  bool fused_ = false;            // queries and keys of equal length
  bool fused_with_past_ = false;  // other lengths, too
  std::string problem_;
};

}  // namespace tuft::engine::torch
