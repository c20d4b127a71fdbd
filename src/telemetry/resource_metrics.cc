#include "telemetry/resource_metrics.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/nvml.h"
#include "telemetry/recording.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry {
namespace internal {
namespace {

namespace fs = std::filesystem;

// One collection asks eight gauges within microseconds: the first of them samples for all.
constexpr Nanos kSampleAge = 200 * kMillisecond;

// Files of /proc and /sys, which have no size. "" where there is none.
std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<uint64_t> parse_u64(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\n");
  if (start == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data() + start, text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<uint64_t> field(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key)) return parse_u64(line.substr(key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

// What the kernel would give back under pressure does not count as used.
uint64_t without_cache(uint64_t used, std::string_view memory_stat, std::string_view cache_key) {
  return used - std::min(used, field(memory_stat, cache_key).value_or(0));
}

void keep_tighter(std::optional<MemoryUse>& best, std::optional<uint64_t> limit, std::optional<uint64_t> used,
                  uint64_t machine_total) {
  if (!limit || !used || *limit >= machine_total) return;
  if (!best || *limit < best->total) best = MemoryUse{*used, *limit};
}

// "0::/path" (v2) or "9:memory:/path" (v1).
std::string cgroup_path(const fs::path& root, std::string_view prefix) {
  const std::string text = read_text(root / "proc/self/cgroup");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const size_t found = line.find(prefix);
    if (found != std::string_view::npos) return std::string(line.substr(found + prefix.size()));
    at = end + 1;
  }
  return "/";
}

struct CgroupFiles {
  const char* mount;
  const char* prefix;
  const char* limit;
  const char* used;
  const char* cache_key;
};

std::optional<MemoryUse> read_cgroup(const fs::path& root, const CgroupFiles& files, uint64_t machine_total) {
  std::optional<MemoryUse> best;
  const fs::path mount = root / files.mount;
  fs::path path = fs::path(cgroup_path(root, files.prefix)).relative_path();
  for (;;) {
    const fs::path directory = mount / path;
    const auto limit = parse_u64(read_text(directory / files.limit));
    auto used = parse_u64(read_text(directory / files.used));
    if (used) used = without_cache(*used, read_text(directory / "memory.stat"), files.cache_key);
    keep_tighter(best, limit, used, machine_total);
    if (path.empty()) return best;
    path = path.parent_path();
  }
}

struct Sample {
  Nanos time = 0;
  std::optional<double> cpu_percent;
  std::optional<MemoryUse> memory;
  uint64_t resident = 0;
  std::vector<GpuUse> gpus;
};

class Sampler {
 public:
  Sampler() : nvml_(Nvml::open()), cpu_(parse_cpu_times(read_text("/proc/stat"))) {}

  bool has_gpus() const { return nvml_ != nullptr; }

  Sample get() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const Nanos now = system_clock().monotonic();
    if (sample_.time == 0 || now - sample_.time > kSampleAge) refresh(now);
    return sample_;
  }

 private:
  void refresh(Nanos now) TUFT_REQUIRES(mutex_) {
    sample_.time = now;
    const auto cpu = parse_cpu_times(read_text("/proc/stat"));
    if (cpu && cpu_) {
      if (const auto percent = cpu_utilization(*cpu_, *cpu)) {
        sample_.cpu_percent = percent;
        cpu_ = cpu;
      }
    }
    sample_.memory = read_memory_use();
    sample_.resident = resident_bytes();
    if (nvml_) sample_.gpus = nvml_->read();
  }

  const std::unique_ptr<Nvml> nvml_;
  // Held while /proc is read: only collections, which are rare, ever wait for it.
  Mutex mutex_;
  std::optional<CpuTimes> cpu_ TUFT_GUARDED_BY(mutex_);
  Sample sample_ TUFT_GUARDED_BY(mutex_);
};

void set_machine_callbacks(Sampler& sampler) {
  const Metrics& metrics = get_metrics();
  metrics.cpu_utilization_percent.set_callback([&sampler](const ObservableGauge::Observe& observe) {
    if (const auto percent = sampler.get().cpu_percent) observe(*percent, {});
  });
  metrics.memory_used_bytes.set_callback([&sampler](const ObservableGauge::Observe& observe) {
    if (const auto memory = sampler.get().memory) observe(static_cast<double>(memory->used), {});
  });
  metrics.memory_total_bytes.set_callback([&sampler](const ObservableGauge::Observe& observe) {
    if (const auto memory = sampler.get().memory) observe(static_cast<double>(memory->total), {});
  });
  metrics.memory_utilization_percent.set_callback([&sampler](const ObservableGauge::Observe& observe) {
    const auto memory = sampler.get().memory;
    if (memory && memory->total > 0)
      observe(100.0 * static_cast<double>(memory->used) / static_cast<double>(memory->total), {});
  });
  metrics.process_memory_used_bytes.set_callback([&sampler](const ObservableGauge::Observe& observe) {
    observe(static_cast<double>(sampler.get().resident), {});
  });
}

void set_gpu_callback(const ObservableGauge& gauge, Sampler& sampler, double GpuUse::*value) {
  gauge.set_callback([&sampler, value](const ObservableGauge::Observe& observe) {
    const Sample sample = sampler.get();
    for (size_t i = 0; i < sample.gpus.size(); ++i) observe(sample.gpus[i].*value, {{"gpu_id", std::to_string(i)}});
  });
}

void set_gpu_callbacks(Sampler& sampler) {
  const Metrics& metrics = get_metrics();
  set_gpu_callback(metrics.gpu_utilization_percent, sampler, &GpuUse::utilization_percent);
  set_gpu_callback(metrics.gpu_memory_used_bytes, sampler, &GpuUse::memory_used);
  set_gpu_callback(metrics.gpu_memory_total_bytes, sampler, &GpuUse::memory_total);
}

}  // namespace

std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat) {
  if (!proc_stat.starts_with("cpu ")) return std::nullopt;
  const std::string_view line = proc_stat.substr(4, proc_stat.find('\n') - 4);
  // user nice system idle iowait irq softirq steal; guest times are in user already.
  CpuTimes times;
  size_t at = 0;
  for (int column = 0; column < 8; ++column) {
    at = line.find_first_not_of(' ', at);
    if (at == std::string_view::npos) break;
    const auto ticks = parse_u64(line.substr(at));
    if (!ticks) return std::nullopt;
    times.total += *ticks;
    if (column != 3 && column != 4) times.busy += *ticks;
    at = line.find(' ', at);
    if (at == std::string_view::npos) break;
  }
  return times;
}

std::optional<double> cpu_utilization(const CpuTimes& before, const CpuTimes& after) {
  if (after.total <= before.total || after.busy < before.busy) return std::nullopt;
  return std::min(
      100.0, 100.0 * static_cast<double>(after.busy - before.busy) / static_cast<double>(after.total - before.total));
}

std::optional<MemoryUse> read_memory_use(const std::filesystem::path& root) {
  const std::string meminfo = read_text(root / "proc/meminfo");
  const auto total = field(meminfo, "MemTotal:");
  const auto available = field(meminfo, "MemAvailable:");
  if (!total || !available) return std::nullopt;
  const MemoryUse machine{(*total - std::min(*available, *total)) * 1024, *total * 1024};
  static constexpr CgroupFiles kVersion2{"sys/fs/cgroup", "0::", "memory.max", "memory.current", "inactive_file "};
  static constexpr CgroupFiles kVersion1{"sys/fs/cgroup/memory", ":memory:", "memory.limit_in_bytes",
                                         "memory.usage_in_bytes", "total_inactive_file "};
  if (const auto limited = read_cgroup(root, kVersion2, machine.total)) return limited;
  if (const auto limited = read_cgroup(root, kVersion1, machine.total)) return limited;
  return machine;
}

uint64_t resident_bytes() {
  const std::string statm = read_text("/proc/self/statm");
  const size_t space = statm.find(' ');
  if (space == std::string::npos) return 0;
  return parse_u64(std::string_view(statm).substr(space)).value_or(0) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void stop_resource_metrics() {
  const Metrics& metrics = get_metrics();
  for (const ObservableGauge* gauge :
       {&metrics.cpu_utilization_percent, &metrics.memory_used_bytes, &metrics.memory_total_bytes,
        &metrics.memory_utilization_percent, &metrics.process_memory_used_bytes, &metrics.gpu_utilization_percent,
        &metrics.gpu_memory_used_bytes, &metrics.gpu_memory_total_bytes})
    gauge->set_callback({});
}

}  // namespace internal

void start_resource_metrics(const std::string& disk) {
  (void)disk;
  if (!internal::metrics_recording()) return;
  // Leaked: callbacks refer to it.
  static internal::Sampler& sampler = *new internal::Sampler;
  internal::set_machine_callbacks(sampler);
  if (sampler.has_gpus()) {
    internal::set_gpu_callbacks(sampler);
  } else {
    log_info("telemetry.no_gpu_metrics", "NVML is not available: tuft.resource.gpu.* stays away");
  }
}

}  // namespace tuft::telemetry
