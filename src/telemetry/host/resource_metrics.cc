#include "telemetry/host/resource_metrics.h"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/host/gpu_library.h"
#include "telemetry/host/machine.h"
#include "telemetry/instruments/resources.h"
#include "telemetry/log.h"
#include "telemetry/record/recording.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry {
namespace internal {
namespace {

using Observe = Observable::Observe;

// One collection reads thirty instruments within microseconds; the first of them takes the sample for all.
constexpr Nanos kSampleAge = 200 * kMillisecond;

struct Sample {
  Nanos time = 0;
  std::optional<double> cpu;  // 0 .. 1
  double cores = 0;           // of the machine, or the container's limit
  std::optional<MemoryUse> memory;
  std::optional<ByteTraffic> disk;
  std::optional<ByteTraffic> network;
  std::optional<DiskSpace> space;
  ProcessUse process;
  std::shared_ptr<const GpuLibrary> library;  // null: no GPU
  std::vector<GpuUse> gpus;                   // in the order of library->gpus()
};

class Sampler {
 public:
  // Reads the processors once, so that the first sample has an earlier reading to compare with.
  Sampler() : cpu_(read_cpu_times(system_clock().monotonic())) {}

  pid_t owner() const { return owner_; }

  // Returns false if no library finds a GPU. Each start tries until one does.
  bool start(std::string disk) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!gpus_) gpus_ = open_gpus();
    disk_ = std::move(disk);
    sample_ = nullptr;
    return gpus_ != nullptr;
  }

  std::shared_ptr<const Sample> get() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const Nanos now = system_clock().monotonic();
    if (!sample_ || now - sample_->time > kSampleAge) sample_ = std::make_shared<const Sample>(take(now));
    return sample_;
  }

 private:
  Sample take(Nanos now) TUFT_REQUIRES(mutex_) {
    Sample sample;
    sample.time = now;
    const auto cpu = read_cpu_times(now);
    if (cpu && cpu_) sample.cpu = cpu_utilization(*cpu_, *cpu);
    if (cpu) cpu_ = cpu;
    sample.cores = cpu && cpu->cores > 0 ? cpu->cores : std::thread::hardware_concurrency();
    sample.memory = read_memory_use();
    sample.process = read_process_use();
    sample.library = gpus_;
    if (gpus_) sample.gpus = gpus_->read();
    if (disk_.empty()) return sample;
    sample.space = read_disk_space(disk_);
    sample.disk = read_disk_traffic();
    sample.network = read_network_traffic();
    return sample;
  }

  const pid_t owner_ = ::getpid();
  // Locked while /proc is read; only collections, which are rare, wait for it.
  Mutex mutex_;
  std::shared_ptr<const GpuLibrary> gpus_ TUFT_GUARDED_BY(mutex_);
  std::string disk_ TUFT_GUARDED_BY(mutex_);
  std::optional<CpuTimes> cpu_ TUFT_GUARDED_BY(mutex_);
  std::shared_ptr<const Sample> sample_ TUFT_GUARDED_BY(mutex_);
};

// Leaked because callbacks refer to it. A child of fork() makes its own, because another thread may have held the lock
// of the old one.
Sampler& sampler() {
  static std::atomic<Sampler*> current{nullptr};
  Sampler* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->owner() == ::getpid()) return *found;
  auto* made = new Sampler;
  if (current.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

// An instrument and the function that reads its value from a sample.
struct Reading {
  const Observable* instrument;
  void (*observe)(const Sample& sample, const Observe& observe);
};

double number(uint64_t value) {
  return static_cast<double>(value);
}

std::vector<Reading> machine_readings() {
  const ResourceMetrics& metrics = resource_metrics();
  return {
      {&metrics.cpu_utilization_percent,
       [](const Sample& sample, const Observe& observe) {
         if (sample.cpu) observe(100 * *sample.cpu, {});
       }},
      {&metrics.memory_used_bytes,
       [](const Sample& sample, const Observe& observe) {
         if (sample.memory) observe(number(sample.memory->used), {});
       }},
      {&metrics.memory_total_bytes,
       [](const Sample& sample, const Observe& observe) {
         if (sample.memory) observe(number(sample.memory->total), {});
       }},
      {&metrics.memory_utilization_percent,
       [](const Sample& sample, const Observe& observe) {
         if (sample.memory && sample.memory->total > 0)
           observe(100 * number(sample.memory->used) / number(sample.memory->total), {});
       }},
      {&metrics.build_info,
       [](const Sample&, const Observe& observe) {
         observe(
             1,
             {{"version", TUFT_VERSION}, {"compiler_version", __VERSION__}, {"torch_version", TUFT_BUILT_WITH_TORCH}});
       }},
  };
}

// Only one process per machine should report these: the process that names a disk.
std::vector<Reading> system_readings() {
  const ResourceMetrics& metrics = resource_metrics();
  return {
      {&metrics.system_cpu_utilization,
       [](const Sample& sample, const Observe& observe) {
         if (sample.cpu) observe(*sample.cpu, {});
       }},
      {&metrics.system_cpu_logical_count,
       [](const Sample& sample, const Observe& observe) { observe(sample.cores, {}); }},
      {&metrics.system_memory_limit,
       [](const Sample& sample, const Observe& observe) {
         if (sample.memory) observe(number(sample.memory->total), {});
       }},
      {&metrics.system_memory_usage,
       [](const Sample& sample, const Observe& observe) {
         if (!sample.memory) return;
         observe(number(sample.memory->used), {{"system.memory.state", "used"}});
         observe(number(sample.memory->total - sample.memory->used), {{"system.memory.state", "free"}});
       }},
      {&metrics.system_disk_io,
       [](const Sample& sample, const Observe& observe) {
         if (!sample.disk) return;
         observe(number(sample.disk->in), {{"disk.io.direction", "read"}});
         observe(number(sample.disk->out), {{"disk.io.direction", "write"}});
       }},
      {&metrics.system_network_io,
       [](const Sample& sample, const Observe& observe) {
         if (!sample.network) return;
         observe(number(sample.network->in), {{"network.io.direction", "receive"}});
         observe(number(sample.network->out), {{"network.io.direction", "transmit"}});
       }},
      {&metrics.system_filesystem_usage,
       [](const Sample& sample, const Observe& observe) {
         if (!sample.space) return;
         const std::string_view mount = sample.space->mount_point;
         observe(number(sample.space->used),
                 {{"system.filesystem.mountpoint", mount}, {"system.filesystem.state", "used"}});
         observe(number(sample.space->free),
                 {{"system.filesystem.mountpoint", mount}, {"system.filesystem.state", "free"}});
       }},
  };
}

std::vector<Reading> process_readings() {
  const ResourceMetrics& metrics = resource_metrics();
  return {
      {&metrics.process_memory_used_bytes,
       [](const Sample& sample, const Observe& observe) { observe(number(sample.process.resident), {}); }},
      {&metrics.process_memory_usage,
       [](const Sample& sample, const Observe& observe) { observe(number(sample.process.resident), {}); }},
      {&metrics.process_memory_virtual,
       [](const Sample& sample, const Observe& observe) { observe(number(sample.process.address_space), {}); }},
      {&metrics.process_cpu_time,
       [](const Sample& sample, const Observe& observe) {
         observe(sample.process.user_seconds, {{"cpu.mode", "user"}});
         observe(sample.process.system_seconds, {{"cpu.mode", "system"}});
       }},
      {&metrics.process_thread_count,
       [](const Sample& sample, const Observe& observe) { observe(number(sample.process.threads), {}); }},
      {&metrics.process_file_descriptors,
       [](const Sample& sample, const Observe& observe) { observe(number(sample.process.file_descriptors), {}); }},
      {&metrics.process_context_switches,
       [](const Sample& sample, const Observe& observe) {
         observe(number(sample.process.voluntary_switches), {{"process.context_switch.type", "voluntary"}});
         observe(number(sample.process.involuntary_switches), {{"process.context_switch.type", "involuntary"}});
       }},
      {&metrics.process_paging_faults,
       [](const Sample& sample, const Observe& observe) {
         observe(number(sample.process.minor_faults), {{"system.paging.fault.type", "minor"}});
         observe(number(sample.process.major_faults), {{"system.paging.fault.type", "major"}});
       }},
      {&metrics.process_uptime,
       [](const Sample& sample, const Observe& observe) { observe(sample.process.uptime_seconds, {}); }},
  };
}

template <std::optional<double> GpuUse::*value, int scale = 1>
void observe_gpu_ids(const Sample& sample, const Observe& observe) {
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const std::string id = std::to_string(i);
    if (sample.gpus[i].*value) observe(scale * *(sample.gpus[i].*value), {{"gpu_id", id}});
  }
}

template <std::optional<double> GpuUse::*value>
void observe_gpus(const Sample& sample, const Observe& observe) {
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuInfo& gpu = sample.library->gpus()[i];
    if (sample.gpus[i].*value) observe(*(sample.gpus[i].*value), {{"hw.id", gpu.id}, {"hw.name", gpu.name}});
  }
}

// Reports instruments that other hardware may use too.
template <std::optional<double> GpuUse::*value>
void observe_hardware(const Sample& sample, const Observe& observe) {
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuInfo& gpu = sample.library->gpus()[i];
    if (sample.gpus[i].*value)
      observe(*(sample.gpus[i].*value), {{"hw.id", gpu.id}, {"hw.name", gpu.name}, {"hw.type", "gpu"}});
  }
}

void describe_gpus(const Sample& sample, const Observe& observe) {
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuInfo& gpu = sample.library->gpus()[i];
    const std::string id = std::to_string(i);
    const std::string runtime = gpu.runtime_version.empty() ? gpu.runtime : gpu.runtime + " " + gpu.runtime_version;
    observe(1, {{"gpu_id", id},
                {"hw.id", gpu.id},
                {"hw.name", gpu.name},
                {"hw.vendor", gpu.vendor},
                {"hw.driver_version", gpu.driver_version},
                {"runtime", runtime}});
  }
}

std::vector<Reading> gpu_readings() {
  const ResourceMetrics& metrics = resource_metrics();
  return {
      {&metrics.gpu_info, &describe_gpus},
      {&metrics.gpu_utilization_percent, &observe_gpu_ids<&GpuUse::utilization, 100>},
      {&metrics.gpu_memory_used_bytes, &observe_gpu_ids<&GpuUse::memory_used>},
      {&metrics.gpu_memory_total_bytes, &observe_gpu_ids<&GpuUse::memory_total>},
      {&metrics.hw_gpu_utilization, &observe_gpus<&GpuUse::utilization>},
      {&metrics.hw_gpu_memory_usage, &observe_gpus<&GpuUse::memory_used>},
      {&metrics.hw_gpu_memory_limit, &observe_gpus<&GpuUse::memory_total>},
      {&metrics.hw_power, &observe_hardware<&GpuUse::power_watts>},
      {&metrics.hw_energy, &observe_hardware<&GpuUse::energy_joules>},
      {&metrics.hw_temperature, &observe_hardware<&GpuUse::temperature_celsius>},
  };
}

void set_callbacks(std::span<const Reading> readings) {
  for (const Reading& reading : readings)
    reading.instrument->set_callback(
        [observe_sample = reading.observe](const Observe& observe) { observe_sample(*sampler().get(), observe); });
}

}  // namespace

void stop_resource_metrics() {
  for (const auto& readings : {machine_readings(), system_readings(), process_readings(), gpu_readings()}) {
    for (const Reading& reading : readings) reading.instrument->set_callback({});
  }
}

}  // namespace internal

void start_resource_metrics(const std::string& disk) {
  using namespace internal;
  if (!metrics_recording()) return;
  const bool has_gpus = sampler().start(disk);
  set_callbacks(machine_readings());
  set_callbacks(process_readings());
  if (!disk.empty()) set_callbacks(system_readings());
  if (has_gpus) {
    set_callbacks(gpu_readings());
  } else {
    log_info("telemetry.no_gpu_metrics",
             "neither NVML nor AMD SMI nor ROCm SMI finds a GPU: tuft.resource.gpu.* and hw.* are not reported");
  }
}

}  // namespace tuft::telemetry
