// Causal attention over sequences that lie one after the other, without padding. Internal. Functions may throw what
// libtorch throws.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/model_spec.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

// Where sequences begin and end among the rows of queries and of keys. A sequence's queries are its last rows.
class Spans {
 public:
  void append(int64_t queries, int64_t keys);
  void upload(const Place& place);  // after the last append()

  struct Span {
    int64_t query = 0;  // first row
    int64_t queries = 0;
    int64_t key = 0;
    int64_t keys = 0;
  };
  const std::vector<Span>& all() const { return spans_; }
  bool with_past() const { return with_past_; }  // some have more keys than queries

 private:
  friend class Attention;
  std::vector<Span> spans_;
  bool with_past_ = false;
  int64_t longest_query_ = 0;
  int64_t longest_key_ = 0;
  at::Tensor query_ends_;  // [sequences + 1], as the fused kernels ask for them
  at::Tensor key_ends_;
};

class Attention {
 public:
  // On a GPU tries the library's fused kernel for packed sequences, compares its values and gradients with the plain
  // ones, and uses it only where they agree.
  Attention(const ModelSpec& spec, const Place& place);

  // q is [queries, heads, head_dim], k and v [keys, kv_heads, head_dim]; gives [queries, heads * head_dim].
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) const;

  // One query a sequence, and as many keys for each, of which `known` [sequences, 1, 1, keys] count. Shapes and
  // addresses are those of the arguments.
  at::Tensor masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& known) const;

  // Why the fused kernel is not used where it could be; empty: it is, or could not.
  const std::string& problem() const { return problem_; }

 private:
  at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans) const;
  static at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans);
  bool try_fused(const Spans& spans) const;
  std::string probe();

  Place place_;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  bool fused_ = false;            // queries and keys of equal length
  bool fused_with_past_ = false;  // others, too
  std::string problem_;
};

}  // namespace tuft::engine::torch
