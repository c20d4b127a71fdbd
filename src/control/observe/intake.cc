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

constexpr double kBytesPerSecond = 1 << 20;
constexpr double kBytesBurst = 8 << 20;
constexpr double kRecordsPerSecond = 5'000;
constexpr double kRecordsBurst = 20'000;
constexpr int64_t kRecordBytesMin = 128;

// The fields of a Metric that hold its points, in a field 1.
constexpr std::array<uint32_t, 5> kMetricData = {5, 7, 9, 10, 11};

Error over_limit(std::string message, std::string reason) {
  return Error{ErrorCode::kResourceExhausted, std::move(message), std::move(reason)};
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

Status Intake::may_send(const UserId& user) {
  return charge(user, 1, 0);
}

void Intake::charge_refused(const UserId& user, int64_t bytes) {
  MutexLock lock(mutex_);
  OfUser& own = filled(user);
  own.bytes = std::max(own.bytes - static_cast<double>(bytes), -kBytesBurst);
}

Status Intake::charge(const UserId& user, int64_t bytes, int64_t records) {
  const auto cost = static_cast<double>(bytes);
  const auto count = static_cast<double>(records);
  MutexLock lock(mutex_);
  OfUser& own = filled(user);
  if (own.share < cost) {
    return over_limit(
        "you have sent your share of the telemetry store, an eighth of telemetry.store.disk_bytes_max at once and in "
        "telemetry.store.age_max_seconds; send less, or sample your traces",
        "intake_share");
  }
  if (own.bytes < cost || own.records < count) {
    return over_limit("you send more than the intake takes: 1 MiB and 5000 records a second; try again later",
                      "intake_rate");
  }
  own.bytes -= cost;
  own.records -= count;
  own.share -= cost;
  return {};
}

Status Intake::take(const UserId& user, IntakeSignal signal, std::string request) {
  Status taken = keep(user, signal, std::move(request));
  metrics::observe().intake_requests.add(
      1, {{"signal", telemetry::internal::signal_name(signal)}, {"status", taken.ok() ? "ok" : taken.error().reason}});
  return taken;
}

Status Intake::keep(const UserId& user, IntakeSignal signal, std::string request) {
  if (store_ == nullptr) {
    return unavailable("this server keeps no telemetry (telemetry.store.enabled is false)", "no_telemetry_store");
  }
  const auto bytes = static_cast<int64_t>(request.size());
  if (bytes > kIntakeBytesMax) {
    return Error{ErrorCode::kPayloadTooLarge,
                 "the request is larger than " + std::to_string(kIntakeBytesMax) + " bytes; send smaller batches",
                 "body_too_large"};
  }
  TUFT_TRY(charge(user, bytes, 0));
  const auto records = count_records(signal, request);
  if (records) TUFT_TRY(charge(user, std::max<int64_t>(*records * kRecordBytesMin - bytes, 0), *records));
  if (!records) return invalid_argument("the body is no such export request of OTLP", "invalid_otlp");
  const telemetry_store::Source source{.owner = user.str()};
  switch (signal) {
    case IntakeSignal::kTraces:
      store_->add(telemetry_store::RecordType::kSpans, std::move(request), source);
      break;
    case IntakeSignal::kLogs:
      store_->add(telemetry_store::RecordType::kLogs, std::move(request), source);
      break;
    case IntakeSignal::kMetrics:
      store_->add_metrics(std::move(request), source);
      break;
  }
  return {};
}

}  // namespace tuft::control
