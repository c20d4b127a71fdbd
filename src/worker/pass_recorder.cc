#include "worker/pass_recorder.h"

#include <new>

#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

Nanos share_of(Nanos whole, const engine::PassShare& share, const engine::TrainPass& pass) {
  return pass.shares.size() == 1 ? whole : whole * share.tokens / pass.tokens;
}

}  // namespace

void PassRecorder::add(engine::TrainRequestNumber number, PassMember& member) noexcept try {
  members_[number] = &member;
} catch (const std::bad_alloc&) {
}

// A pass for whose record there is no memory runs without one.
void PassRecorder::pass_begins(const engine::TrainPass& pass) try {
  begin_ = clock_.monotonic();
  before_ = engine_.totals();
  present_.clear();
  for (const engine::PassShare& share : pass.shares) {
    if (const auto found = members_.find(share.request); found != members_.end()) {
      present_.push_back({found->second, share});
    }
  }
  if (present_.size() < pass.shares.size()) return present_.clear();
  if (present_.size() == 1) {
    const PassMember& member = *present_.front().member;
    scope_.emplace(member.span_context());
    engine_.set_pass_attributes(member.pass_keys());
  } else {
    begin_merged(pass);
  }
} catch (const std::bad_alloc&) {
  scope_.reset();
  present_.clear();
}

void PassRecorder::begin_merged(const engine::TrainPass& pass) {
  span_ = engine_tracer().start_span("engine.train_pass", {.parent = telemetry::SpanContext{}, .start = begin_});
  span_.set_attributes({{"tuft.backward", pass.backward},
                        {"tuft.pass_number", pass.number},
                        {"tuft.tokens", pass.tokens},
                        {"tuft.adapters", pass.adapters},
                        {"tuft.requests", pass.shares.size()}});
  for (const Present& present : present_) span_.add_link(present.member->span_context());
  scope_.emplace(span_.context());
  engine_.set_pass_attributes({{"tuft.backward", pass.backward}, {"tuft.pass_number", pass.number}});
}

void PassRecorder::pass_ended(const engine::TrainPass& pass, const Status& status) try {
  const Nanos end = clock_.monotonic();
  engine_.end_loss(end);
  engine_.set_pass_attributes({});
  const PassTotals done = engine_.totals() - before_;
  metrics_.passes.add(1);
  metrics_.pass_duration.record(to_seconds(done.forward + done.backward));
  metrics_.pass_sequences.record(static_cast<double>(done.sequences));
  metrics_.pass_tokens.record(static_cast<double>(done.tokens));
  metrics_.pass_adapters.record(pass.adapters);
  metrics_.pass_requests.record(static_cast<double>(pass.shares.size()));
  metrics_.pass_runs.record(pass.adapters);
  metrics_.pass_fill.record(static_cast<double>(pass.tokens) / batch_tokens_);
  scope_.reset();
  // Memory is the only resource that a pass can exhaust.
  if (!status.ok() && status.error().code == ErrorCode::kResourceExhausted) metrics_.passes_out_of_memory.add(1);
  for (const Present& present : present_) tell(present, pass, end);
  if (present_.size() > 1) {
    if (!status.ok()) span_.record_error(status.error());
    span_.end(end);
  }
  present_.clear();
} catch (const std::bad_alloc&) {
  scope_.reset();
  present_.clear();
}

void PassRecorder::tell(const Present& present, const engine::TrainPass& pass, Nanos end) {
  const PassTotals done = engine_.totals() - before_;
  if (present_.size() > 1) {
    const auto keys = present.member->pass_keys();
    auto span = engine_tracer().start_span("engine.pass", {.attributes = telemetry::Attributes(keys),
                                                           .parent = present.member->span_context(),
                                                           .link = span_.context(),
                                                           .start = begin_});
    span.set_attributes({{"tuft.pass_number", pass.number},
                         {"tuft.tokens", present.share.tokens},
                         {"tuft.data_count", present.share.datums},
                         {"tuft.adapters", pass.adapters}});
    span.end(end);
  }
  const auto part = [&](Nanos whole) { return share_of(whole, present.share, pass); };
  const Nanos pack = end - begin_ - done.forward - done.loss - done.backward;
  present.member->passed(
      {begin_, part(end - begin_), part(pack), part(done.forward), part(done.loss), part(done.backward)});
}

}  // namespace tuft::worker
