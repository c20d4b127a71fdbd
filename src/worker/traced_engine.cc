#include "worker/traced_engine.h"

#include <new>
#include <set>
#include <utility>

#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

int distinct_adapters(const engine::Pack& pack) {
  std::set<engine::AdapterId> adapters;
  for (const engine::Segment& segment : pack.segments) adapters.insert(segment.adapter);
  return static_cast<int>(adapters.size());
}

}  // namespace

Status TracedTraining::forward(const engine::Pack& pack, bool keep, std::span<float> logprobs) {
  const Nanos begin = clock_.monotonic();
  auto span =
      engine_tracer().start_span("engine.forward", {.attributes = telemetry::Attributes(attributes_), .start = begin});
  if (span.recording()) {
    span.set_attributes({{"tuft.tokens", pack.tokens.size()},
                         {"tuft.segments", pack.segments.size()},
                         {"tuft.targets", pack.targets.size()},
                         {"tuft.adapters", distinct_adapters(pack)}});
  }
  Status status = inner_.forward(pack, keep, logprobs);
  const Nanos end = clock_.monotonic();
  totals_.forward += end - begin;
  totals_.tokens += static_cast<int64_t>(pack.tokens.size());
  totals_.sequences += static_cast<int64_t>(pack.segments.size());
  if (status.ok()) {
    loss_begin_ = end;
    work_.add_forward(pack, keep, totals_);
  } else {
    span.record_error(status.error());
  }
  span.end(end);
  return status;
}

Status TracedTraining::backward(std::span<const float> dloss_dlogprobs) {
  const Nanos begin = clock_.monotonic();
  auto span =
      engine_tracer().start_span("engine.backward", {.attributes = telemetry::Attributes(attributes_), .start = begin});
  span.set_attribute("tuft.targets", dloss_dlogprobs.size());
  end_loss(begin);
  Status status = inner_.backward(dloss_dlogprobs);
  const Nanos end = clock_.monotonic();
  totals_.backward += end - begin;
  if (status.ok()) {
    work_.add_backward(dloss_dlogprobs, totals_);
  } else {
    span.record_error(status.error());
  }
  span.end(end);
  return status;
}

void TracedTraining::end_loss(Nanos at) {
  if (const auto begin = std::exchange(loss_begin_, std::nullopt)) totals_.loss += at - *begin;
}

// The caller does not learn the number of a sequence that could not be counted.
template <typename Count>
void TracedDecoding::or_close(engine::SequenceId sequence, const Count& count) try {
  count();
} catch (const std::bad_alloc&) {
  inner_.close(sequence);
  throw;
}

Result<engine::SequenceId> TracedDecoding::open(const std::optional<engine::AdapterId>& adapter, uint64_t scope) {
  auto sequence = inner_.open(adapter, scope);
  if (sequence.ok()) or_close(*sequence, [&] { work_.opened(*sequence, adapter); });
  return sequence;
}

Result<engine::SequenceId> TracedDecoding::fork(engine::SequenceId source) {
  auto copy = inner_.fork(source);
  if (copy.ok()) or_close(*copy, [&] { work_.forked(source, *copy); });
  return copy;
}

void TracedDecoding::close(engine::SequenceId sequence) {
  work_.closed(sequence);
  inner_.close(sequence);
}

int TracedDecoding::adopt_prefix(engine::SequenceId sequence, std::span<const int32_t> tokens) {
  const int adopted = inner_.adopt_prefix(sequence, tokens);
  work_.grew(sequence, adopted);
  return adopted;
}

Status TracedDecoding::step(std::span<const engine::Feed> feeds, const engine::LogitsSink& sink) {
  const Nanos begin = clock_.monotonic();
  Status status = inner_.step(feeds, sink);
  totals_.time += clock_.monotonic() - begin;
  if (status.ok()) work_.add_step(feeds, totals_);
  return status;
}

}  // namespace tuft::worker
