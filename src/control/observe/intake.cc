#include "control/observe/intake.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "metrics/observe.h"
#include "telemetry/otlp/wire.h"

namespace tuft::control {
namespace {

using telemetry::internal::otlp::WireReader;
using telemetry::internal::otlp::WireWriter;

constexpr double kBytesPerSecond = 1 << 20;
constexpr double kBytesBurst = 8 << 20;
constexpr double kRecordsPerSecond = 5'000;
constexpr double kRecordsBurst = 20'000;
constexpr int64_t kRecordBytesMin = 128;
constexpr double kRequestBytes = 1 << 10;
// What is refused was read, and perhaps decompressed. Who sends it again each second must still get on.
constexpr int64_t kRefusedPart = 8;

// The fields of a Metric that hold its points, in a field 1.
constexpr std::array<uint32_t, 5> kMetricData = {5, 7, 9, 10, 11};

Error over_limit(std::string message, std::string reason) {
  return Error{ErrorCode::kResourceExhausted, std::move(message), std::move(reason)};
}

void count_request(IntakeSignal signal, std::string_view status) {
  metrics::observe().intake_requests.add(1, {{"signal", telemetry::internal::signal_name(signal)}, {"status", status}});
}

telemetry_store::Rejections rejections_of(IntakeSignal signal, std::string_view request) {
  switch (signal) {
    case IntakeSignal::kTraces:
      return telemetry_store::rejected_spans(request);
    case IntakeSignal::kLogs:
      return telemetry_store::rejected_logs(request);
    case IntakeSignal::kMetrics:
      break;
  }
  return telemetry_store::rejected_points(request);
}

// The responses of all signals have the same field numbers: partial_success, and in it the number and the text. By OTLP
// a text without a number is a warning, and the number has only records of this request.
std::string encoded_answer(const telemetry_store::Rejections& now, const telemetry_store::Rejections& before) {
  if (now.records == 0 && before.records == 0) return {};
  std::string text;
  if (now.records != 0) text = "not kept: " + now.reason;
  if (before.records != 0) text += (text.empty() ? "" : "; ") + ("not kept of earlier requests: " + before.reason);
  WireWriter writer;
  const size_t partial_success = writer.open(1);
  if (now.records != 0) writer.varint(1, static_cast<uint64_t>(now.records));
  writer.text(2, text);
  writer.close(partial_success);
  return std::string(writer.view());
}

// Calls `take(bytes)` for each message in `field`. Returns false if the bytes are no message, or `take` returns false.
template <typename Take>
bool for_each_message(std::string_view message, uint32_t field, Take&& take) {
  WireReader reader(message);
  size_t left = message.size();
  while (left > 0) {
    if (!reader.next()) return false;
    if (reader.field() == 0) return false;
    if (reader.field() == field && reader.bytes().data() != nullptr && !take(reader.bytes())) return false;
    left = reader.left();
  }
  return true;
}

bool count_points(std::string_view metric, int64_t& count) {
  return std::all_of(kMetricData.begin(), kMetricData.end(), [&](uint32_t field) {
    return for_each_message(metric, field, [&](std::string_view data) {
      return for_each_message(data, 1, [&](std::string_view) { return ++count > 0; });
    });
  });
}

}  // namespace

// Traces, logs and metrics use the same field numbers down to their records.
std::optional<int64_t> count_records(IntakeSignal signal, std::string_view request) {
  int64_t count = 0;
  const auto take_record = [&](std::string_view record) {
    if (signal == IntakeSignal::kMetrics) return count_points(record, count);
    ++count;
    return for_each_message(record, 0, [](std::string_view) { return true; });
  };
  const bool is_request = for_each_message(request, 1, [&](std::string_view resource) {
    return for_each_message(resource, 2,
                            [&](std::string_view scope) { return for_each_message(scope, 2, take_record); });
  });
  return is_request ? std::optional(count) : std::nullopt;
}

// What the user may send now.
Intake::OfUser& Intake::filled(const UserId& user) {
  const double share = static_cast<double>(disk_bytes_max_) / 8;
  const double share_rate = share / std::max(to_seconds(age_max_), 1.0);
  const Nanos now = clock_.monotonic();
  auto [found, is_new] = users_.try_emplace(user);
  OfUser& own = found->second;
  if (is_new) own = {kBytesBurst, kRecordsBurst, share, now};
  const double seconds = to_seconds(now - own.filled);
  own.filled = now;
  own.bytes = std::min(kBytesBurst, own.bytes + kBytesPerSecond * seconds);
  own.records = std::min(kRecordsBurst, own.records + kRecordsPerSecond * seconds);
  own.share = std::min(share, own.share + share_rate * seconds);
  return own;
}

int64_t Intake::body_bytes_max() const {
  return store_ == nullptr ? kIntakeBytesMax : std::min(kIntakeBytesMax, store_->request_bytes_max());
}

Status Intake::may_send(const UserId& user, IntakeSignal signal) {
  Status may;
  {
    MutexLock lock(mutex_);
    may = check(filled(user), {.bytes = kRequestBytes, .share = 1});
  }
  if (!may.ok()) count_request(signal, may.error().reason);
  return may;
}

void Intake::charge_refused(const UserId& user, int64_t bytes) {
  MutexLock lock(mutex_);
  OfUser& own = filled(user);
  own.bytes = std::max(own.bytes - static_cast<double>(bytes), -kBytesBurst);
}

Status Intake::check(const OfUser& own, const Cost& cost) {
  if (own.share < cost.share) {
    return over_limit(
        "you have sent your share of the telemetry store, an eighth of telemetry.store.disk_bytes_max at once and in "
        "telemetry.store.age_max_seconds; send less, or sample your traces",
        "intake_share");
  }
  if (own.bytes < cost.bytes || own.records < cost.records) {
    return over_limit("you send more than the intake takes: 1 MiB and 5000 records a second; try again later",
                      std::string(kIntakeRate));
  }
  return {};
}

Status Intake::charge(const UserId& user, const Cost& cost) {
  MutexLock lock(mutex_);
  OfUser& own = filled(user);
  TUFT_TRY(check(own, cost));
  own.bytes -= cost.bytes;
  own.records -= cost.records;
  own.share -= cost.share;
  return {};
}

void Intake::give_back(const UserId& user, const Cost& cost) {
  MutexLock lock(mutex_);
  OfUser& own = filled(user);
  own.bytes += cost.bytes;
  own.records += cost.records;
  own.share += cost.share;
}

Result<std::string> Intake::take(const UserId& user, IntakeSignal signal, std::string request) {
  const Result<telemetry_store::Rejections> kept = keep(user, signal, std::move(request));
  if (!kept.ok()) {
    count_request(signal, kept.error().reason);
    return kept.error();
  }
  count_request(signal, kept->records == 0 ? "ok" : "partial");
  const bool of_metrics = signal == IntakeSignal::kMetrics;
  return encoded_answer(*kept, of_metrics ? store_->take_refused_points(user.str()) : telemetry_store::Rejections{});
}

Result<telemetry_store::Rejections> Intake::keep(const UserId& user, IntakeSignal signal, std::string request) {
  if (store_ == nullptr) {
    return unavailable("this server keeps no telemetry (telemetry.store.enabled is false)", "no_telemetry_store");
  }
  const auto bytes = static_cast<int64_t>(request.size());
  if (bytes > body_bytes_max()) {
    return Error{ErrorCode::kPayloadTooLarge,
                 "the request is larger than " + std::to_string(body_bytes_max()) + " bytes; send smaller batches",
                 "body_too_large"};
  }
  const auto size = static_cast<double>(bytes);
  Cost cost{.bytes = size + kRequestBytes, .share = size};
  if (Status status = charge(user, cost); !status.ok()) {
    charge_refused(user, bytes / kRefusedPart);
    return std::move(status).error();
  }
  const auto records = count_records(signal, request);
  if (!records) return invalid_argument("the body is no such export request of OTLP", "invalid_otlp");
  const auto give_up = [&](Error why) {
    give_back(user, cost);
    charge_refused(user, bytes / kRefusedPart);
    return why;
  };
  if (static_cast<double>(*records) > kRecordsBurst) {
    return give_up({ErrorCode::kPayloadTooLarge,
                    "the request has " + std::to_string(*records) + " records; send at most " +
                        std::to_string(static_cast<int>(kRecordsBurst)) + " in one",
                    "too_many_records"});
  }
  const auto filling = static_cast<double>(std::max<int64_t>(*records * kRecordBytesMin - bytes, 0));
  const Cost rest{.bytes = filling, .records = static_cast<double>(*records), .share = filling};
  if (Status status = charge(user, rest); !status.ok()) return give_up(std::move(status).error());
  cost = {.bytes = cost.bytes + rest.bytes, .records = rest.records, .share = cost.share + rest.share};
  telemetry_store::Rejections rejections = rejections_of(signal, request);
  if (queue(user, signal, std::move(request))) return rejections;
  return give_up(over_limit(
      "what was sent before still waits for the telemetry store, whose queue has no room for this request; try again "
      "in a moment, or send less at once",
      std::string(kIntakeQueueFull)));
}

bool Intake::queue(const UserId& user, IntakeSignal signal, std::string request) {
  const telemetry_store::Source source{.owner = user.str()};
  if (signal == IntakeSignal::kMetrics) return store_->add_metrics(std::move(request), source);
  const bool of_traces = signal == IntakeSignal::kTraces;
  return store_->add(of_traces ? telemetry_store::RecordType::kSpans : telemetry_store::RecordType::kLogs,
                     std::move(request), source);
}

}  // namespace tuft::control
