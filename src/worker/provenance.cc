#include "worker/provenance.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/loss/stable_reinforce.h"

namespace tuft::worker {
namespace {

using Spans = google::protobuf::RepeatedPtrField<tinker_public::ProvenanceSpan>;

class SpanList {
 public:
  SpanList(size_t datum, const char* name, const Spans& spans) : datum_(datum), name_(name), spans_(spans) {}

  // `what` names the `count` tokens that the spans must cover.
  Status check(int64_t count, const char* what) const {
    int64_t covered = 0;
    for (int i = 0; i < spans_.size(); ++i) {
      TUFT_TRY(check_span(i));
      const int64_t length = part_of(spans_[i])->length();
      if (length > count - covered) return wrong_sum("more than", count, what);
      covered += length;
    }
    return covered == count ? Status() : wrong_sum("only " + std::to_string(covered) + " of", count, what);
  }

  Error error(const std::string& what) const {
    return invalid_argument("datum " + std::to_string(datum_) + ", " + name_ + ": " + what, "bad_provenance");
  }

 private:
  // Null for a span of no kind.
  static const tinker_public::SequenceSpan* part_of(const tinker_public::ProvenanceSpan& span) {
    if (span.has_prompt_tokens()) return &span.prompt_tokens();
    return span.has_sampled_tokens() ? &span.sampled_tokens() : nullptr;
  }

  Status check_span(int index) const {
    const tinker_public::SequenceSpan* const part = part_of(spans_[index]);
    const std::string which = "span " + std::to_string(index);
    if (part == nullptr) return error(which + " is neither prompt_tokens nor sampled_tokens");
    if (part->sequence_id().empty()) return error(which + " names no sequence");
    if (part->offset() < 0 || part->length() < 0) return error(which + " has a negative offset or length");
    return {};
  }

  Error wrong_sum(const std::string& relation, int64_t count, const char* what) const {
    return error("the spans cover " + relation + " the " + std::to_string(count) + " tokens of " + what +
                 "; together they must cover each of them once, in order");
  }

  size_t datum_;
  const char* name_;
  const Spans& spans_;
};

}  // namespace

Status check_provenance(const tinker_public::Datum& source, size_t index, const engine::Datum& datum) {
  const SpanList input(index, "model_input_spans", source.model_input_spans());
  const SpanList loss(index, "loss_fn_input_spans", source.loss_fn_input_spans());
  const bool has_input = !source.model_input_spans().empty();
  const bool has_loss = !source.loss_fn_input_spans().empty();
  if (!has_input && !has_loss) return {};
  if (!has_input) return input.error("is missing; give both lists of spans or none");
  if (!has_loss) return loss.error("is missing; give both lists of spans or none");
  TUFT_TRY(input.check(static_cast<int64_t>(datum.tokens.size()), "model_input"));
  const auto targets = datum.loss_inputs.find("target_tokens");
  if (targets == datum.loss_inputs.end() || targets->second.shape.size() != 1) {
    return loss.error("needs target_tokens of one dimension");
  }
  return loss.check(targets->second.shape.front(), "target_tokens");
}

Status add_sampled_mask(const tinker_public::Datum& source, size_t index, engine::Datum& datum) {
  const SpanList loss(index, "loss_fn_input_spans", source.loss_fn_input_spans());
  if (source.loss_fn_input_spans().empty()) return loss.error("is missing; stable_reinforce needs it");
  const std::string name(engine::kSampledMask);
  if (datum.loss_inputs.count(name) > 0) return loss.error("says what was sampled; leave the input " + name + " out");
  std::vector<float> mask;
  mask.reserve(static_cast<size_t>(datum.loss_inputs.at("target_tokens").shape.front()));
  for (const auto& span : source.loss_fn_input_spans()) {
    const bool is_sampled = span.has_sampled_tokens();
    const int64_t length = is_sampled ? span.sampled_tokens().length() : span.prompt_tokens().length();
    mask.insert(mask.end(), static_cast<size_t>(length), is_sampled ? 1.0F : 0.0F);
  }
  const auto count = static_cast<int64_t>(mask.size());
  datum.loss_inputs.emplace(name, engine::LossTensor{{count}, std::move(mask)});
  return {};
}

}  // namespace tuft::worker
