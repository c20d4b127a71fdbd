#include "engine/batch/check_pack.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace tuft::engine {
namespace {

Status check_segments(const Pack& pack) {
  int row = 0;
  for (const Segment& segment : pack.segments) {
    if (segment.begin != row || segment.end <= segment.begin) {
      return invalid_argument("the segments of a pack must cover its tokens in order, without gaps", "pack_segments");
    }
    if (!std::isfinite(segment.temperature) || segment.temperature <= 0) {
      return invalid_argument("a segment's temperature must be over 0 and finite", "pack_segments");
    }
    row = segment.end;
  }
  if (row == static_cast<int>(pack.tokens.size()) && row > 0) return {};
  return invalid_argument("the segments of a pack must cover its tokens, of which there is at least one",
                          "pack_segments");
}

}  // namespace

Status check_tokens(const ModelSpec& model, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= model.vocab_size) {
      return invalid_argument("a token is outside the model's vocabulary of " + std::to_string(model.vocab_size) +
                                  ": use the base model's tokenizer",
                              "token_range");
    }
  }
  return {};
}

Status check_pack(const ModelSpec& model, const Pack& pack) {
  TUFT_TRY(check_segments(pack));
  TUFT_TRY(check_tokens(model, pack.tokens));
  int last = 0;
  for (const Target& target : pack.targets) {
    if (target.row < last || target.row >= static_cast<int>(pack.tokens.size())) {
      return invalid_argument("the targets of a pack must be ordered by row and within its rows", "pack_targets");
    }
    last = target.row;
    TUFT_TRY(check_tokens(model, {&target.token, 1}));
  }
  return {};
}

}  // namespace tuft::engine
