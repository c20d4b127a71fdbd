// All metric series: fed with snapshots, asked for series over time, and kept in files by minutes. Internal to
// telemetry_store.
//
// Thread-safe; load(), add() and maintain() are for the store's thread. The server's own metrics and those of each
// user's programs are apart: a user's program cannot change what others see of the server. All series of a user's
// program have the labels tenant and service. A query for a name that the server has, too, is about the server's series
// unless it names a service.
//
// Each user's series may take an eighth of the memory, and those of all users half of it, in equal shares. Who has more
// loses the oldest of their own points.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "telemetry_store/metric_file.h"
#include "telemetry_store/metric_series.h"
#include "telemetry_store/rejections.h"
#include "telemetry_store/store.h"

namespace tuft::telemetry_store::internal {

class MetricRings {
 public:
  // `directory` empty: memory only.
  MetricRings(std::filesystem::path directory, uint64_t disk_bytes_max, size_t memory_bytes_max, Nanos age_max);

  void load(Nanos now) TUFT_EXCLUDES(mutex_);
  // Returns how many points were left out: malformed, or of more series than fit.
  size_t add(std::string_view snapshot, const Source& source, Nanos now) TUFT_EXCLUDES(mutex_);
  // Returns the well-formed points of an owner that add() has left out since the last call. Does not wait for add() or
  // a query.
  Rejections take_refused(const std::string& owner) TUFT_EXCLUDES(refused_mutex_);
  // Closes minutes and forgets what is old. Errors: the disk.
  Status maintain(Nanos now) TUFT_EXCLUDES(mutex_);

  std::vector<MetricInfo> metrics(const Viewer& viewer) const TUFT_EXCLUDES(mutex_);
  Result<MetricAnswer> query(const Viewer& viewer, const MetricQuery& query, Nanos now) const TUFT_EXCLUDES(mutex_);
  std::vector<MetricExemplar> exemplars(const Viewer& viewer, const MetricQuery& query, Nanos now) const
      TUFT_EXCLUDES(mutex_);
  uint64_t series() const TUFT_EXCLUDES(mutex_);
  uint64_t memory_bytes() const TUFT_EXCLUDES(mutex_);
  uint64_t disk_bytes() const { return file_.disk_bytes() + user_file_.disk_bytes(); }

 private:
  using Labels = std::map<std::string, std::string>;
  struct Series {
    Labels labels;
    SeriesRing ring;
    uint32_t number = 0;
  };
  // A metric of one owner; "" is the server.
  struct Family {
    std::string owner, name, unit, description;
    MetricKind kind = MetricKind::kGauge;
    std::vector<double> bounds;
    std::map<Labels, Series> series;
  };
  // Why a well-formed point is left out.
  enum class NoPlace : uint8_t { kOtherShape, kSeriesOfUser, kMemory };
  using Refused = std::array<int64_t, 3>;  // points, by NoPlace
  struct OfOwner {
    size_t series = 0, memory_bytes = 0;
    Nanos fine_kept = 0, coarse_kept = 0;
  };
  using Shown = std::vector<std::pair<const Family*, const Series*>>;

  static MetricInfo info_of(const Family& family);
  static std::string encode(const Family& family, const Labels& labels);
  // Null: there is no place for it, and `why` is set.
  Series* series_of(const MetricView& metric, const PointView& point, const Source& source, NoPlace& why)
      TUFT_REQUIRES(mutex_);
  Series* find_or_add(Family&& head, Labels labels, NoPlace& why) TUFT_REQUIRES(mutex_);
  Series* decode_series(std::string_view bytes) TUFT_REQUIRES(mutex_);
  static size_t memory_of(const Family& family, const Series& series);
  void load_file(MetricFile& file, Nanos now) TUFT_EXCLUDES(mutex_);
  void close_minutes(Nanos now) TUFT_EXCLUDES(mutex_);
  void close_minute(Nanos end) TUFT_EXCLUDES(mutex_);
  // Each minute; when somebody is far over their share, each second.
  void forget_if_due(Nanos now) TUFT_EXCLUDES(mutex_);
  void forget(Nanos now) TUFT_EXCLUDES(mutex_);
  void note_refused(const std::string& owner, const Refused& refused) TUFT_EXCLUDES(refused_mutex_);
  OfOwner& of_owner(const std::string& owner) TUFT_REQUIRES(mutex_);
  // The memory that the series of an owner may take.
  size_t share_of(const std::string& owner) const TUFT_REQUIRES(mutex_);
  // Somebody has so much more than their share that it cannot wait.
  bool is_far_over() const TUFT_EXCLUDES(mutex_);
  // The series of a metric that the viewer may see and whose labels are those of `where`, of the server or of users.
  Shown shown(const Viewer& viewer, const std::string& name, const Labels& where) const TUFT_REQUIRES(mutex_);

  const size_t memory_bytes_max_;
  const Nanos age_max_;
  MetricFile file_;
  MetricFile user_file_;                            // apart, so that users push out nothing of the server
  Nanos minute_end_ = 0;                            // of the store's thread: of the minute that is open
  Nanos forget_at_ = 0;                             // of the store's thread
  std::unordered_map<std::string, Nanos> sources_;  // of the store's thread: the time of their last snapshots

  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Family> families_ TUFT_GUARDED_BY(mutex_);  // by owner and name
  std::map<std::string, OfOwner> owners_ TUFT_GUARDED_BY(mutex_);
  uint32_t next_number_ TUFT_GUARDED_BY(mutex_) = 1;
  size_t count_ TUFT_GUARDED_BY(mutex_) = 0;
  size_t memory_bytes_ TUFT_GUARDED_BY(mutex_) = 0;

  Mutex refused_mutex_;
  std::unordered_map<std::string, Refused> refused_ TUFT_GUARDED_BY(refused_mutex_);  // by owner; not told yet
};

}  // namespace tuft::telemetry_store::internal
