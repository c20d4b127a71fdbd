#include "telemetry_store/metric_rings.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "telemetry/metric/prometheus_names.h"
#include "telemetry_store/bytes.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/selection.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr Nanos kFineKept = 3600 * kSecond;
constexpr Nanos kFineKeptMin = 300 * kSecond;
constexpr Nanos kFineKeptOfUserMin = 10 * kSecond;
// A point beside its buckets.
constexpr size_t kPointBytes = 64;
// A minute is closed later than it ends, because a snapshot tells of the time since the one before.
constexpr Nanos kLateness = 30 * kSecond;
constexpr Nanos kMinutesLate = 3;
constexpr size_t kSeriesMax = 50'000;
constexpr size_t kSeriesOfUserMax = 1000;
constexpr size_t kMetricNameMax = 256;
constexpr size_t kDescriptionMax = 1024;
constexpr size_t kLabelValuesMax = 256;
constexpr size_t kSourcesMax = 4096;
const char* const kTenantLabel = "tenant";
const char* const kServiceLabel = "service";

}  // namespace

MetricRings::MetricRings(std::filesystem::path directory, uint64_t disk_bytes_max, size_t memory_bytes_max,
                         Nanos age_max)
    : memory_bytes_max_(memory_bytes_max),
      age_max_(age_max),
      file_(directory, "metrics-", disk_bytes_max / 2),
      user_file_(std::move(directory), "user-metrics-", disk_bytes_max / 2) {}

MetricRings::OfOwner& MetricRings::of_owner(const std::string& owner) {
  const auto [found, added] = owners_.try_emplace(owner);
  if (added) found->second = {.fine_kept = kFineKept, .coarse_kept = age_max_};
  return found->second;
}

size_t MetricRings::share_of(const std::string& owner) const {
  const auto own = owners_.find("");
  const size_t of_server = own == owners_.end() ? 0 : own->second.memory_bytes;
  const size_t users = owners_.size() - (own == owners_.end() ? 0 : 1);
  if (owner.empty()) return memory_bytes_max_ - std::min(memory_bytes_max_ / 2, memory_bytes_ - of_server);
  return memory_bytes_max_ / std::max<size_t>(8, 2 * users);
}

bool MetricRings::is_far_over() const {
  MutexLock lock(mutex_);
  return std::any_of(owners_.begin(), owners_.end(), [this](const auto& owner) TUFT_REQUIRES(mutex_) {
    return owner.second.memory_bytes > 2 * share_of(owner.first);
  });
}

// What the series of a family share counts for each of them: a family may have only one.
size_t MetricRings::memory_of(const Family& family, const Series& series) {
  size_t bytes = series.ring.memory_bytes() + family.owner.size() + family.name.size() + family.unit.size() +
                 family.description.size() + family.bounds.size() * sizeof(double);
  // They are the key of the series, too.
  for (const auto& [key, value] : series.labels) bytes += 2 * (kPointBytes + key.size() + value.size());
  return bytes;
}

MetricInfo MetricRings::info_of(const Family& family) {
  constexpr telemetry::InstrumentKind kKinds[] = {
      telemetry::InstrumentKind::kCounter, telemetry::InstrumentKind::kUpDownCounter, telemetry::InstrumentKind::kGauge,
      telemetry::InstrumentKind::kHistogram};
  telemetry::InstrumentInfo info;
  info.name = family.name;
  info.unit = family.unit;
  info.kind = kKinds[static_cast<size_t>(family.kind)];
  MetricInfo out;
  out.name = family.name;
  out.prometheus_name = telemetry::internal::prometheus_name(info).series();
  out.unit = family.unit;
  out.description = family.description;
  out.kind = family.kind;
  return out;
}

std::string MetricRings::encode(const Family& family, const Labels& labels) {
  ByteWriter writer;
  writer.text(family.owner).text(family.name).text(family.unit).text(family.description);
  writer.put(static_cast<uint8_t>(family.kind)).count(family.bounds.size());
  for (const double bound : family.bounds) writer.put(bound);
  for (const auto& [key, value] : labels) writer.text(key).text(value);
  return writer.take();
}

MetricRings::Series* MetricRings::decode_series(std::string_view bytes) {
  ByteReader reader(bytes);
  Family family;
  for (std::string* text : {&family.owner, &family.name, &family.unit, &family.description}) *text = reader.text();
  family.kind = static_cast<MetricKind>(std::min<uint8_t>(reader.get<uint8_t>(), 3));
  for (uint64_t left = std::min<uint64_t>(reader.count(), 1024); left > 0; --left)
    family.bounds.push_back(reader.get<double>());
  Labels labels;
  while (!reader.at_end()) {
    const std::string key(reader.text());
    labels[key] = reader.text();
  }
  if (!reader.ok() || family.name.empty()) return nullptr;
  NoPlace ignored = {};
  return find_or_add(std::move(family), std::move(labels), ignored);
}

MetricRings::Series* MetricRings::find_or_add(Family&& head, Labels labels, NoPlace& why) {
  const auto [found, added] = families_.try_emplace({head.owner, head.name});
  Family& family = found->second;
  if (added) {
    family = std::move(head);
  } else if (family.kind != head.kind || family.bounds != head.bounds) {
    why = NoPlace::kOtherShape;
    return nullptr;
  }
  const auto known = family.series.find(labels);
  if (known != family.series.end()) return &known->second;
  OfOwner& owner = of_owner(family.owner);
  const size_t share = share_of(family.owner);
  const bool has_most = !family.owner.empty() && owner.series >= kSeriesOfUserMax;
  if (has_most || count_ >= kSeriesMax || owner.memory_bytes > share + share / 4) {
    why = has_most ? NoPlace::kSeriesOfUser : NoPlace::kMemory;
    if (family.series.empty()) families_.erase(found);
    return nullptr;
  }
  ++owner.series;
  ++count_;
  const size_t buckets = family.kind == MetricKind::kHistogram ? family.bounds.size() + 1 : 0;
  Series series{labels, SeriesRing(family.kind, buckets), next_number_++};
  const size_t memory = memory_of(family, series);
  owner.memory_bytes += memory;
  memory_bytes_ += memory;
  return &family.series.emplace(std::move(labels), std::move(series)).first->second;
}

MetricRings::Series* MetricRings::series_of(const MetricView& metric, const PointView& point, const Source& source,
                                            NoPlace& why) {
  Family head;
  head.owner = source.owner;
  head.name = clean_text(metric.name, kMetricNameMax);
  head.unit = clean_text(metric.unit, kMetricNameMax);
  head.description = clean_text(metric.description, kDescriptionMax);
  head.kind = metric.kind;
  head.bounds = point.bounds;
  Labels labels = point.labels;
  if (!source.worker.empty()) labels["worker"] = source.worker;
  if (!source.owner.empty()) {
    labels[kTenantLabel] = source.owner;
    labels[kServiceLabel] = clean_text(metric.service, kMetricNameMax);
  }
  return find_or_add(std::move(head), std::move(labels), why);
}

size_t MetricRings::add(std::string_view snapshot, const Source& source, Nanos now) {
  // The programs of a user are told apart by their service, which their series carry.
  const std::string name = source.owner + '\n' + source.worker;
  if (sources_.size() > kSourcesMax) sources_.clear();
  Nanos& last = sources_[name];
  const Nanos previous = source.owner.empty() ? last : 0;
  size_t left_out = 0;
  Refused refused = {};
  {
    MutexLock lock(mutex_);
    left_out = read_metrics(snapshot, [&](const MetricView& metric, const PointView& point) TUFT_REQUIRES(mutex_) {
      NoPlace why = {};
      Series* series = series_of(metric, point, source, why);
      if (series == nullptr) {
        ++refused[static_cast<size_t>(why)];
      } else {
        series->ring.add(point, metric.is_delta, now, previous);
        // About, until they are counted again.
        const size_t bytes = kPointBytes + 2 * point.counts.size();
        of_owner(source.owner).memory_bytes += bytes;
        memory_bytes_ += bytes;
      }
    });
  }
  last = now;
  close_minutes(now);
  forget_if_due(now);
  if (!source.owner.empty()) note_refused(source.owner, refused);
  return left_out + static_cast<size_t>(std::accumulate(refused.begin(), refused.end(), int64_t{0}));
}

Rejections MetricRings::take_refused(const std::string& owner) {
  static const std::string& of_user =
      *new std::string("of more than the " + std::to_string(kSeriesOfUserMax) + " series of a user");
  const std::array<std::string_view, 3> reasons = {"of a metric whose kind or bounds differ from before", of_user,
                                                   "of new series, for which the store has no memory left"};
  Rejections out;
  MutexLock lock(refused_mutex_);
  const auto found = refused_.find(owner);
  if (found == refused_.end()) return out;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (found->second[i] != 0) out.add(found->second[i], reasons[i]);
  }
  refused_.erase(found);
  return out;
}

void MetricRings::note_refused(const std::string& owner, const Refused& refused) {
  if (refused == Refused{}) return;
  MutexLock lock(refused_mutex_);
  if (refused_.size() >= kSourcesMax) refused_.clear();
  Refused& untold = refused_[owner];
  std::transform(refused.begin(), refused.end(), untold.begin(), untold.begin(), std::plus<>());
}

void MetricRings::load(Nanos now) {
  load_file(file_, now);
  load_file(user_file_, now);
}

void MetricRings::load_file(MetricFile& file, Nanos now) {
  std::unordered_map<uint32_t, Series*> numbers;
  MutexLock lock(mutex_);
  file.load({
      .series = [&](uint32_t number, std::string_view description)
                    TUFT_REQUIRES(mutex_) { numbers[number] = decode_series(description); },
      .row =
          [&](Nanos minute, uint32_t number, std::string_view row) {
            const auto found = numbers.find(number);
            if (found == numbers.end() || found->second == nullptr || minute > now || minute < now - age_max_) return;
            found->second->ring.load_minute(minute, row);
          },
      .end_of_file = [&] { numbers.clear(); },
  });
}

Status MetricRings::maintain(Nanos now) {
  close_minutes(now);
  forget_if_due(now);
  const Status written = file_.flush();
  const Status of_users = user_file_.flush();
  return written.ok() ? of_users : written;
}

void MetricRings::close_minutes(Nanos now) {
  if (minute_end_ == 0) minute_end_ = now - now % kMinute + kMinute;
  // After a pause of the machine only the last minutes have anything.
  // If the clock was set back, the minute that it shows is open again.
  if (now < minute_end_ - kMinutesLate * kMinute) minute_end_ = now - now % kMinute + kMinute;
  if (now - minute_end_ > kMinutesLate * kMinute) minute_end_ = now - now % kMinute - kMinute;
  for (; now >= minute_end_ + kLateness; minute_end_ += kMinute) close_minute(minute_end_);
}

void MetricRings::close_minute(Nanos end) {
  MutexLock lock(mutex_);
  for (auto& [name, family] : families_) {
    for (auto& [labels, series] : family.series) {
      const auto row = series.ring.close_minute(end);
      if (row)
        (family.owner.empty() ? file_ : user_file_).add(end, series.number, *row, [&f = family, &l = labels] {
          return encode(f, l);
        });
    }
  }
}

void MetricRings::forget_if_due(Nanos now) {
  // The clock may have been set back.
  const bool is_due = now >= forget_at_ || forget_at_ - now > kMinute;
  if (!is_due && (forget_at_ - now > kMinute - kSecond || !is_far_over())) return;
  forget_at_ = now + kMinute;
  forget(now);
}

void MetricRings::forget(Nanos now) {
  MutexLock lock(mutex_);
  for (auto& [name, owner] : owners_) {
    const size_t share = share_of(name);
    if (owner.memory_bytes > share) {
      const Nanos fine_min = name.empty() ? kFineKeptMin : kFineKeptOfUserMin;
      if (owner.fine_kept > fine_min) {
        owner.fine_kept = std::max(fine_min, owner.fine_kept / 2);
      } else {
        owner.coarse_kept -= owner.coarse_kept / 5;
      }
    } else if (owner.memory_bytes < share / 2) {
      owner.coarse_kept = std::min(age_max_, owner.coarse_kept + kMinute);
      owner.fine_kept = std::min(kFineKept, owner.fine_kept + kMinute);
    }
    owner.memory_bytes = 0;
  }
  memory_bytes_ = 0;
  for (auto family = families_.begin(); family != families_.end();) {
    OfOwner& owner = of_owner(family->second.owner);
    const Nanos fine_before = now - owner.fine_kept;
    const Nanos coarse_before = now - std::max(owner.coarse_kept, owner.fine_kept);
    for (auto series = family->second.series.begin(); series != family->second.series.end();) {
      SeriesRing& ring = series->second.ring;
      ring.forget(fine_before - fine_before % kMinute, coarse_before);
      if (ring.last_seen() < coarse_before) {
        series = family->second.series.erase(series);
        --count_;
        --owner.series;
        continue;
      }
      owner.memory_bytes += memory_of(family->second, series->second);
      ++series;
    }
    family = family->second.series.empty() ? families_.erase(family) : std::next(family);
  }
  std::erase_if(owners_, [](const auto& owner) { return owner.second.series == 0; });
  for (const auto& [name, owner] : owners_) memory_bytes_ += owner.memory_bytes;
}

MetricRings::Shown MetricRings::shown(const Viewer& viewer, const std::string& name, const Labels& where) const {
  Shown found;
  for (const auto& [owner, of] : owners_) {
    if (!owner.empty() && !may_see(viewer, owner)) continue;
    const auto place = families_.find({owner, name});
    if (place == families_.end()) continue;
    const Family& family = place->second;
    if (!found.empty()) {
      const Family& first = *found.front().first;
      // The server's come first.
      if ((first.owner.empty() && !where.contains(kServiceLabel)) || family.kind != first.kind ||
          family.bounds != first.bounds)
        continue;
    }
    for (const auto& [labels, series] : family.series) {
      const auto tenant = labels.find(kTenantLabel);
      const bool may = viewer.all || (tenant != labels.end() && may_see(viewer, tenant->second));
      const bool meets = std::all_of(where.begin(), where.end(), [&l = labels](const auto& wanted) {
        const auto label = l.find(wanted.first);
        return label == l.end() ? wanted.second.empty() : label->second == wanted.second;
      });
      if (may && meets) found.emplace_back(&family, &series);
    }
  }
  return found;
}

std::vector<MetricInfo> MetricRings::metrics(const Viewer& viewer) const {
  MutexLock lock(mutex_);
  std::set<std::string> names;
  for (const auto& [key, family] : families_) {
    if (key.first.empty() || may_see(viewer, key.first)) names.insert(key.second);
  }
  std::vector<MetricInfo> list;
  for (const std::string& name : names) {
    const Shown series = shown(viewer, name, {});
    if (series.empty()) continue;
    MetricInfo info = info_of(*series.front().first);
    std::map<std::string, std::set<std::string>> values;
    for (const auto& [family, one] : series) {
      for (const auto& [key, value] : one->labels) {
        if (values[key].size() < kLabelValuesMax) values[key].insert(value);
      }
    }
    for (auto& [key, of_key] : values) info.labels[key] = {of_key.begin(), of_key.end()};
    list.push_back(std::move(info));
  }
  return list;
}

uint64_t MetricRings::series() const {
  MutexLock lock(mutex_);
  return count_;
}

uint64_t MetricRings::memory_bytes() const {
  MutexLock lock(mutex_);
  return memory_bytes_;
}

}  // namespace tuft::telemetry_store::internal
