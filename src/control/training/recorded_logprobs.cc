#include "control/training/recorded_logprobs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace tuft::control {
namespace {

using Spans = google::protobuf::RepeatedPtrField<tinker_public::ProvenanceSpan>;
using tinker_public::SequenceSpan;

constexpr size_t kShownMax = 80;  // of an id in a message

template <typename T>
T number_at(const std::string& bytes, int64_t index) {
  T number;
  std::memcpy(&number, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return number;
}

// Ids in spans come from clients, so only plain ones are repeated in a message.
std::string shown(const std::string& sequence) {
  const bool is_plain = sequence.size() <= kShownMax && std::all_of(sequence.begin(), sequence.end(), [](char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                                 c == '-' || c == '_' || c == ':' || c == '.';
                        });
  return is_plain ? "'" + sequence + "'" : "with an unreadable id";
}

// The target tokens of a datum.
class Targets {
 public:
  // Returns nothing for targets of a form that the worker refuses.
  static std::optional<Targets> of(const tinker_public::Datum& datum) {
    const auto found = datum.loss_fn_inputs().find("target_tokens");
    if (found == datum.loss_fn_inputs().end() || !found->second.has_dense()) return std::nullopt;
    const tinker_public::Tensor& tensor = found->second;
    if (tensor.dtype() == tinker_public::DTYPE_INT64) return Targets(tensor.dense(), sizeof(int64_t));
    if (tensor.dtype() == tinker_public::DTYPE_INT32) return Targets(tensor.dense(), sizeof(int32_t));
    return std::nullopt;
  }
  int64_t count() const { return static_cast<int64_t>(bytes_.size() / size_); }
  int64_t at(int64_t index) const {
    return size_ == sizeof(int64_t) ? number_at<int64_t>(bytes_, index) : number_at<int32_t>(bytes_, index);
  }

 private:
  Targets(const std::string& bytes, size_t size) : bytes_(bytes), size_(size) {}
  const std::string& bytes_;
  const size_t size_;
};

class Join {
 public:
  Join(SampleRecords& records, const UserId& user, const SessionId& session)
      : records_(records), user_(user), session_(session) {}

  Status datum(int index, tinker_public::Datum& datum) {
    datum_ = index;
    list_ = "loss_fn_input_spans";
    if (datum.loss_fn_input_spans().empty()) {
      return refuse(
          "stable_reinforce needs the spans of every datum (include_provenance in recipes), which say where "
          "its tokens come from");
    }
    const auto targets = Targets::of(datum);
    if (!targets) return refuse("stable_reinforce needs target_tokens that are dense, of dtype int64 or int32");
    TUFT_TRY(read_targets(datum.loss_fn_input_spans(), *targets));
    list_ = "model_input_spans";
    for (const auto& span : datum.model_input_spans()) TUFT_TRY(check(span));
    tinker_public::Tensor tensor;
    tensor.set_dtype(tinker_public::DTYPE_FLOAT32);
    tensor.set_dense(std::move(logprobs_));
    (*datum.mutable_loss_fn_inputs())["logprobs"] = std::move(tensor);
    return {};
  }

 private:
  // Fills logprobs_.
  Status read_targets(const Spans& spans, const Targets& targets) {
    logprobs_.clear();
    for (const auto& span : spans) {
      TUFT_TRY(check(span));
      const bool is_sampled = span.has_sampled_tokens();
      const SequenceSpan& part = is_sampled ? span.sampled_tokens() : span.prompt_tokens();
      const auto begin = static_cast<int64_t>(logprobs_.size() / sizeof(float));
      if (part.length() > targets.count() - begin) return wrong_sum(targets.count());
      const size_t bytes = static_cast<size_t>(part.length()) * sizeof(float);
      if (!is_sampled) {
        logprobs_.append(bytes, '\0');
        continue;
      }
      for (int64_t i = 0; i < part.length(); ++i) {
        if (targets.at(begin + i) != number_at<int32_t>(record_->tokens, part.offset() + i)) {
          return refuse("target_tokens has at position " + std::to_string(begin + i) +
                        " another token than the sequence " + shown(sequence_) + " has there");
        }
      }
      logprobs_.append(record_->logprobs, static_cast<size_t>(part.offset()) * sizeof(float), bytes);
    }
    if (logprobs_.size() != static_cast<size_t>(targets.count()) * sizeof(float)) return wrong_sum(targets.count());
    return {};
  }

  // Finds the record of a span, and checks that the span lies within the sequence.
  Status check(const tinker_public::ProvenanceSpan& span) {
    const bool is_sampled = span.has_sampled_tokens();
    if (!is_sampled && !span.has_prompt_tokens()) return refuse("a span is neither prompt_tokens nor sampled_tokens");
    const SequenceSpan& part = is_sampled ? span.sampled_tokens() : span.prompt_tokens();
    TUFT_TRY(find(part.sequence_id()));
    const int64_t size =
        is_sampled ? static_cast<int64_t>(record_->tokens.size() / sizeof(int32_t)) : record_->prompt_tokens;
    if (part.offset() >= 0 && part.length() >= 0 && part.offset() <= size && part.length() <= size - part.offset()) {
      return {};
    }
    return refuse("a span does not lie within the " + std::to_string(size) +
                  (is_sampled ? " sampled tokens" : " prompt tokens") + " of the sequence " + shown(sequence_));
  }

  Status find(const std::string& sequence) {
    if (record_ != nullptr && sequence == sequence_) return {};
    sequence_ = sequence;
    record_ = records_.use(user_, session_, sequence);
    if (record_ != nullptr) return {};
    return not_found(place() + "the sequence " + shown(sequence) +
                         " is not recorded: it has to be sampled in the session of this model, with "
                         "record_stability_info=True, and a record lasts for a day after its last use, until the "
                         "session ends, the server restarts, or newer records fill "
                         "limits.sample_record_bytes_per_user_max; sample it again",
                     "sample_record_not_found");
  }

  Error wrong_sum(int64_t count) const {
    return refuse("the spans do not cover the " + std::to_string(count) +
                  " tokens of target_tokens; together they must cover each of them once, in order");
  }
  Error refuse(const std::string& what) const { return invalid_argument(place() + what, "bad_provenance"); }
  std::string place() const { return "datum " + std::to_string(datum_) + ", " + list_ + ": "; }

  SampleRecords& records_;
  const UserId& user_;
  const SessionId& session_;
  int datum_ = 0;
  const char* list_ = "";
  std::string sequence_;  // that record_ is of
  SampleRecords::RecordPtr record_;
  std::string logprobs_;
};

}  // namespace

Status put_recorded_logprobs(SampleRecords& records, const UserId& user, const SessionId& session,
                             tinker_public::ForwardBackwardRequest& request) {
  Join join(records, user, session);
  for (int i = 0; i < request.data_size(); ++i) TUFT_TRY(join.datum(i, *request.mutable_data(i)));
  return {};
}

}  // namespace tuft::control
