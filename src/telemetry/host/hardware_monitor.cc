#include "telemetry/hardware_monitor.h"

#include <algorithm>
#include <array>
#include <exception>
#include <pthread.h>
#include <sys/utsname.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "telemetry/host/gpu_library.h"
#include "telemetry/host/machine.h"
#include "telemetry/host/proc_text.h"

namespace tuft::telemetry {
namespace {

using internal::CpuTimes;
using internal::GpuInfo;
using internal::GpuLibrary;
using internal::GpuUse;

constexpr size_t kSamplesMax = 36'000;

class Collector {
 public:
  Collector() : gpus_(internal::open_gpus()), cpu_(internal::read_cpu_times(system_clock().monotonic())) {}

  bool has_gpus() const { return gpus_ != nullptr; }

  HardwareSample take(Nanos now) {
    HardwareSample sample;
    const auto cpu = internal::read_cpu_times(now);
    if (cpu && cpu_) {
      // The kernel counts in ticks of 10 ms, so a shorter interval is compared with an older reading.
      if (const auto busy = internal::cpu_utilization(*cpu_, *cpu)) {
        sample.cpu_percent = 100 * *busy;
        cpu_ = cpu;
      }
    }
    const auto memory = internal::read_memory_use();
    if (memory && memory->total > 0)
      sample.memory_percent = 100 * static_cast<double>(memory->used) / static_cast<double>(memory->total);
    if (!gpus_) return sample;
    for (const GpuUse& use : gpus_->read()) {
      GpuSample& gpu = sample.gpus.emplace_back();
      if (use.utilization) gpu.utilization_percent = 100 * *use.utilization;
      gpu.memory_used_bytes = use.memory_used;
      gpu.temperature_celsius = use.temperature_celsius;
      gpu.power_watts = use.power_watts;
    }
    return sample;
  }

 private:
  const std::unique_ptr<GpuLibrary> gpus_;
  std::optional<CpuTimes> cpu_;
};

void add(Summary& summary, double value) {
  summary.min = summary.count == 0 ? value : std::min(summary.min, value);
  summary.max = summary.count == 0 ? value : std::max(summary.max, value);
  ++summary.count;
  summary.mean += (value - summary.mean) / static_cast<double>(summary.count);
}

std::vector<double> told(const HardwareSample& sample, std::optional<double> GpuSample::*value) {
  std::vector<double> out;
  for (const GpuSample& gpu : sample.gpus) {
    if (gpu.*value) out.push_back(*(gpu.*value));
  }
  return out;
}

double sum(const std::vector<double>& values) {
  double out = 0;
  for (const double value : values) out += value;
  return out;
}

void summarise(HardwareReport& report) {
  for (const HardwareSample& sample : report.samples) {
    if (sample.cpu_percent) add(report.cpu_percent, *sample.cpu_percent);
    if (sample.memory_percent) add(report.memory_percent, *sample.memory_percent);
    if (const auto busy = told(sample, &GpuSample::utilization_percent); !busy.empty())
      add(report.gpu_utilization_percent, sum(busy) / static_cast<double>(busy.size()));
    if (const auto used = told(sample, &GpuSample::memory_used_bytes); !used.empty())
      add(report.gpu_memory_used_bytes, sum(used));
    if (const auto heat = told(sample, &GpuSample::temperature_celsius); !heat.empty())
      add(report.gpu_temperature_celsius, *std::max_element(heat.begin(), heat.end()));
    if (const auto power = told(sample, &GpuSample::power_watts); !power.empty())
      add(report.gpu_power_watts, sum(power));
  }
}

}  // namespace

struct HardwareMonitor::State {
  explicit State(Nanos wanted) : interval_wanted(std::max(wanted, kMillisecond)) {}

  void run() {
    try {
      sample_until_stopped();
    } catch (const std::exception& thrown) {
      MutexLock lock(mutex);
      problem = std::string("sampling ended early: ") + thrown.what();
    }
  }

  void sample_until_stopped() TUFT_EXCLUDES(mutex) {
    Collector collector;
    {
      MutexLock lock(mutex);
      has_gpus = collector.has_gpus();
    }
    Nanos next = system_clock().monotonic();
    std::optional<Nanos> first;
    while (wait_for_turn(next)) {
      const Nanos now = system_clock().monotonic();
      HardwareSample sample = collector.take(now);
      if (!first) first = now;
      sample.time = now - *first;
      MutexLock lock(mutex);
      samples.push_back(std::move(sample));
      if (samples.size() >= kSamplesMax) thin_out();
    }
  }

  // Waits for the next sample. Returns false if the thread must stop. Samples that a loaded machine missed are skipped.
  bool wait_for_turn(Nanos& next) TUFT_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    next = std::max(next + interval, system_clock().monotonic());
    while (!stopping && system_clock().monotonic() < next) wake_up.wait_until(mutex, time_point(next));
    return !stopping;
  }

  void thin_out() TUFT_REQUIRES(mutex) {
    for (size_t i = 0; 2 * i < samples.size(); ++i) samples[i] = std::move(samples[2 * i]);
    samples.resize((samples.size() + 1) / 2);
    interval *= 2;
  }

  // Ends the thread and keeps the samples.
  void stop() TUFT_EXCLUDES(mutex, life_cycle) {
    MutexLock one_at_a_time(life_cycle);
    {
      MutexLock lock(mutex);
      stopping = true;
      wake_up.notify_all();
    }
    if (thread.joinable()) thread.join();
  }

  const Nanos interval_wanted;
  // Serializes starts and stops; the thread never locks it.
  Mutex life_cycle;
  std::thread thread TUFT_GUARDED_BY(life_cycle);

  Mutex mutex;
  CondVar wake_up;
  bool stopping TUFT_GUARDED_BY(mutex) = false;
  bool started TUFT_GUARDED_BY(mutex) = false;
  bool has_gpus TUFT_GUARDED_BY(mutex) = false;
  Nanos interval TUFT_GUARDED_BY(mutex) = 0;
  std::vector<HardwareSample> samples TUFT_GUARDED_BY(mutex);
  std::string problem TUFT_GUARDED_BY(mutex);
};

std::string_view monitor_status_name(MonitorStatus status) {
  switch (status) {
    case MonitorStatus::kSuccess:
      return "success";
    case MonitorStatus::kNoGpusAvailable:
      return "no_gpus_available";
    case MonitorStatus::kNoSamplesCollected:
      return "no_samples_collected";
    case MonitorStatus::kFailed:
      break;
  }
  return "failed";
}

HardwareMonitor::HardwareMonitor(Nanos interval) : state_(std::make_unique<State>(interval)) {}

HardwareMonitor::~HardwareMonitor() {
  state_->stop();
}

Status HardwareMonitor::start() {
  State& state = *state_;
  MutexLock one_at_a_time(state.life_cycle);
  if (state.thread.joinable()) return {};
  {
    MutexLock lock(state.mutex);
    state.stopping = false;
    state.started = false;
    state.interval = state.interval_wanted;
    state.samples.clear();
    state.problem.clear();
  }
  std::string problem;
  try {
    const SignalsBlocked blocked;
    state.thread = std::thread([&state] { state.run(); });
    ::pthread_setname_np(state.thread.native_handle(), "hw-monitor");
  } catch (const std::exception& thrown) {
    problem = std::string("the monitor's thread could not be started: ") + thrown.what();
  }
  MutexLock lock(state.mutex);
  state.started = problem.empty();
  if (state.started) return {};
  state.problem = problem;
  return internal_error(problem);
}

size_t HardwareMonitor::sample_count() const {
  MutexLock lock(state_->mutex);
  return state_->samples.size();
}

HardwareReport HardwareMonitor::stop_and_collect() {
  state_->stop();
  HardwareReport report;
  MutexLock lock(state_->mutex);
  if (!state_->started) {
    report.detail = state_->problem.empty() ? "the monitor was not started" : state_->problem;
    return report;
  }
  state_->started = false;
  report.interval = state_->interval;
  report.samples = std::move(state_->samples);
  state_->samples.clear();
  report.detail = state_->problem;
  if (!report.detail.empty()) {
    report.status = MonitorStatus::kFailed;
  } else if (report.samples.empty()) {
    report.status = MonitorStatus::kNoSamplesCollected;
  } else {
    report.status = state_->has_gpus ? MonitorStatus::kSuccess : MonitorStatus::kNoGpusAvailable;
  }
  summarise(report);
  return report;
}

namespace {

void describe_gpus(HardwareInfo& info) {
  const auto library = internal::open_gpus();
  if (!library) return;
  const std::vector<GpuUse> uses = library->read();
  for (size_t i = 0; i < uses.size(); ++i) {
    const GpuInfo& gpu = library->gpus()[i];
    info.gpus.push_back({.name = gpu.name,
                         .id = gpu.id,
                         .vendor = gpu.vendor,
                         .memory_total = static_cast<uint64_t>(uses[i].memory_total.value_or(0)),
                         .driver_version = gpu.driver_version});
    std::string& version = gpu.runtime == "CUDA" ? info.cuda_version : info.rocm_version;
    version = gpu.runtime_version;
  }
  info.gpu_name = info.gpus.front().name;
  info.gpu_count = static_cast<int>(info.gpus.size());
  info.gpu_memory_total = info.gpus.front().memory_total;
  info.gpu_driver_version = info.gpus.front().driver_version;
}

}  // namespace

HardwareInfo hardware_info() {
  HardwareInfo info;
  describe_gpus(info);
  info.cpu_name = internal::read_cpu_name();
  info.cpu_count = std::thread::hardware_concurrency();
  if (const auto cpu = internal::read_cpu_times(system_clock().monotonic()); cpu && cpu->cores > 0)
    info.cpu_count = cpu->cores;
  if (const auto memory = internal::read_memory_use()) info.memory_total = memory->total;
  utsname kernel{};
  if (::uname(&kernel) == 0) info.kernel_version = std::string(kernel.sysname) + " " + kernel.release;
  info.compiler_version = __VERSION__;
  info.torch_version = TUFT_BUILT_WITH_TORCH;
  info.tuft_version = TUFT_VERSION;
  return info;
}

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const Summary& summary) {
  if (summary.count == 0) return nullptr;
  return {{"mean", summary.mean}, {"min", summary.min}, {"max", summary.max}, {"count", summary.count}};
}

OrderedJson json_of(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson json_of(const HardwareSample& sample) {
  OrderedJson out{{"time_s", to_seconds(sample.time)},
                  {"cpu_percent", json_of(sample.cpu_percent)},
                  {"memory_percent", json_of(sample.memory_percent)}};
  for (const GpuSample& gpu : sample.gpus)
    out["gpus"].push_back({{"utilization_percent", json_of(gpu.utilization_percent)},
                           {"memory_used_bytes", json_of(gpu.memory_used_bytes)},
                           {"temperature_celsius", json_of(gpu.temperature_celsius)},
                           {"power_watts", json_of(gpu.power_watts)}});
  return out;
}

OrderedJson json_of(const GpuDescription& gpu) {
  return {{"name", gpu.name},
          {"id", gpu.id},
          {"vendor", gpu.vendor},
          {"memory_total", gpu.memory_total},
          {"driver_version", gpu.driver_version}};
}

OrderedJson json_of(const HardwareInfo& info) {
  OrderedJson gpus = OrderedJson::array();
  for (const GpuDescription& gpu : info.gpus) gpus.push_back(json_of(gpu));
  return {{"gpu_name", info.gpu_name},
          {"gpu_count", info.gpu_count},
          {"gpu_memory_total", info.gpu_memory_total},
          {"gpu_driver_version", info.gpu_driver_version},
          {"gpus", std::move(gpus)},
          {"cuda_version", info.cuda_version},
          {"rocm_version", info.rocm_version},
          {"cpu_name", info.cpu_name},
          {"cpu_count", info.cpu_count},
          {"memory_total", info.memory_total},
          {"kernel_version", info.kernel_version},
          {"compiler_version", info.compiler_version},
          {"torch_version", info.torch_version},
          {"tuft_version", info.tuft_version}};
}

}  // namespace

std::string hardware_json(const HardwareInfo& info, const HardwareReport& report, bool with_samples) {
  OrderedJson out{{"status", monitor_status_name(report.status)},
                  {"detail", report.detail},
                  {"interval_s", to_seconds(report.interval)},
                  {"sample_count", report.samples.size()},
                  {"gpu_utilization_percent", json_of(report.gpu_utilization_percent)},
                  {"gpu_memory_used_bytes", json_of(report.gpu_memory_used_bytes)},
                  {"gpu_temperature_celsius", json_of(report.gpu_temperature_celsius)},
                  {"gpu_power_watts", json_of(report.gpu_power_watts)},
                  {"cpu_percent", json_of(report.cpu_percent)},
                  {"memory_percent", json_of(report.memory_percent)},
                  {"hardware", json_of(info)}};
  if (with_samples) {
    out["samples"] = OrderedJson::array();
    for (const HardwareSample& sample : report.samples) out["samples"].push_back(json_of(sample));
  }
  return out.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace tuft::telemetry
