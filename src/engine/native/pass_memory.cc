#include "engine/native/pass_memory.h"

#include <algorithm>

#include "engine/lora.h"
#include "engine/native/buffer.h"
#include "engine/native/ops/attention.h"

namespace tuft::engine::native {
namespace {

// Arena::take() rounds a piece up and leaves a gap behind it.
constexpr size_t kPieceMore = 16 + kSlack / sizeof(float);
// Pieces of a block, and those of them of which each adapter has its own; more than there are.
constexpr size_t kPiecesOfBlock = 32;

struct Widths {
  size_t hidden, q, kv, inner, heads, vocab, layers;

  explicit Widths(const ModelSpec& spec)
      : hidden(static_cast<size_t>(spec.hidden_size)),
        q(static_cast<size_t>(spec.heads) * static_cast<size_t>(spec.head_dim)),
        kv(static_cast<size_t>(spec.kv_heads) * static_cast<size_t>(spec.head_dim)),
        inner(static_cast<size_t>(spec.intermediate_size)),
        heads(static_cast<size_t>(spec.heads)),
        vocab(static_cast<size_t>(spec.vocab_size)),
        layers(static_cast<size_t>(spec.layers)) {}
};

// In the scratch memory of one row of a block. The input of a product is packed once for all adapters, and if there are
// several, once more for each of them; so are the rows of A x, and in the backward pass their gradients.
size_t block_scratch(const Widths& w, const PassShape& shape) {
  const size_t packs = shape.one_adapter ? 1 : 2;
  const size_t r = shape.rank;
  const size_t q_k_v = w.hidden + packs * w.hidden + 3 * r;
  const size_t o = packs * w.q + r;
  const size_t mlp = w.hidden + packs * w.hidden + w.inner + packs * w.inner + 3 * r;
  const size_t forward = std::max({q_k_v, o, mlp});
  if (!shape.backward) return forward;
  const size_t d_mlp = 2 * w.inner + packs * w.hidden + 2 * w.hidden + 1 + packs * 2 * w.inner + 6 * r;
  const size_t d_o = w.q + packs * w.hidden + 2 * r;
  const size_t d_heads = 2 * w.q + 2 * w.kv;  // attention, q, k, v
  const size_t d_attention = d_heads + w.q + w.kv;
  const size_t d_q_k_v = d_heads + 2 * w.hidden + 1 + packs * (w.q + 2 * w.kv) + 6 * r;
  return std::max({forward, d_mlp, d_o, d_attention, d_q_k_v});
}

// The same of the output layer.
size_t head_scratch(const Widths& w, const PassShape& shape) {
  const size_t packs = shape.one_adapter ? 1 : 2;
  const size_t logits = shape.keeps_logits ? 0 : w.vocab;
  const size_t forward = w.hidden + logits + packs * w.hidden + shape.rank;
  if (!shape.backward) return forward;
  return 3 * w.hidden + 1 + logits + packs * w.hidden + packs * w.vocab + 3 * shape.rank;
}

}  // namespace

PassFloats pass_floats(const ModelSpec& spec, const PassShape& shape) {
  const Widths w(spec);
  const bool keeps_blocks = shape.backward && !shape.recompute;
  const size_t blocks = keeps_blocks ? w.layers : 1;
  const size_t inputs = shape.backward ? w.layers + 2 : 1;  // of the blocks, the last output, and its gradient
  const size_t block = 2 * w.q + 2 * w.kv + (shape.backward ? w.heads : 0) + w.hidden + 2 * w.inner;
  const size_t lora = kBlockModules.size() * shape.rank * shape.rows;  // A x of one block
  const size_t more = kPieceMore * kPiecesOfBlock * (1 + shape.segments);
  PassFloats floats;
  floats.keep = shape.kv_blocks * (2 * static_cast<size_t>(kKvBlock) * w.kv + kPieceMore) +
                shape.rows * (inputs * w.hidden + blocks * block) + (keeps_blocks ? w.layers * lora : 0) +
                (shape.keeps_logits ? shape.logits_rows * w.vocab : 0) + (blocks + inputs) * more;
  floats.layer = std::max(keeps_blocks ? 0 : lora, shape.logits_rows * shape.rank) + more;
  floats.scratch =
      std::max(shape.rows * block_scratch(w, shape), shape.logits_rows * head_scratch(w, shape)) + 2 * more;
  const int longest = static_cast<int>(shape.longest);
  floats.threads = shape.threads * std::max(attention_scratch(spec.head_dim, longest),
                                            shape.backward ? attention_gradient_scratch(spec.head_dim, longest) : 0);
  return floats;
}

}  // namespace tuft::engine::native
