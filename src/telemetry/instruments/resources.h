// The metrics of the machine and the process: TuFT's names, then OpenTelemetry's for the same readings and more.
// Internal to telemetry.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry::internal {

inline constexpr std::string_view kResourceScope = "tuft.resources";

struct ResourceMetrics {
  ObservableGauge cpu_utilization_percent{
      {.name = "tuft.resource.cpu.utilization_percent",
       .unit = "%",
       .description = "Busy share of the machine's processors since the last collection",
       .recorded_by = RecordedBy::kBoth,
       .scope = kResourceScope}};
  ObservableGauge memory_used_bytes{{.name = "tuft.resource.memory.used_bytes",
                                     .unit = "bytes",
                                     .description = "Memory used on the machine, or in the container if it has a limit",
                                     .recorded_by = RecordedBy::kBoth,
                                     .scope = kResourceScope}};
  ObservableGauge memory_total_bytes{{.name = "tuft.resource.memory.total_bytes",
                                      .unit = "bytes",
                                      .description = "Memory of the machine, or the container's limit",
                                      .recorded_by = RecordedBy::kBoth,
                                      .scope = kResourceScope}};
  ObservableGauge memory_utilization_percent{{.name = "tuft.resource.memory.utilization_percent",
                                              .unit = "%",
                                              .description = "Used share of the memory",
                                              .recorded_by = RecordedBy::kBoth,
                                              .scope = kResourceScope}};
  ObservableGauge gpu_utilization_percent{{.name = "tuft.resource.gpu.utilization_percent",
                                           .unit = "%",
                                           .description = "Busy share of a GPU, by gpu_id",
                                           .labels = {"gpu_id"},
                                           .recorded_by = RecordedBy::kBoth,
                                           .scope = kResourceScope}};
  ObservableGauge gpu_memory_used_bytes{{.name = "tuft.resource.gpu.memory_used_bytes",
                                         .unit = "bytes",
                                         .description = "Memory used on a GPU, by gpu_id",
                                         .labels = {"gpu_id"},
                                         .recorded_by = RecordedBy::kBoth,
                                         .scope = kResourceScope}};
  ObservableGauge gpu_memory_total_bytes{{.name = "tuft.resource.gpu.memory_total_bytes",
                                          .unit = "bytes",
                                          .description = "Memory of a GPU, by gpu_id",
                                          .labels = {"gpu_id"},
                                          .recorded_by = RecordedBy::kBoth,
                                          .scope = kResourceScope}};
  ObservableGauge gpu_info{{.name = "tuft.resource.gpu.info",
                            .unit = "{gpu}",
                            .description = "Always 1; the labels say what a GPU is, and join gpu_id with hw.id",
                            .labels = {"gpu_id", "hw.id", "hw.name", "hw.vendor", "hw.driver_version", "runtime"},
                            .recorded_by = RecordedBy::kBoth,
                            .scope = kResourceScope}};
  ObservableGauge process_memory_used_bytes{{.name = "tuft.resource.process.memory_used_bytes",
                                             .unit = "bytes",
                                             .description = "Resident memory of this process",
                                             .recorded_by = RecordedBy::kBoth,
                                             .scope = kResourceScope}};
  ObservableGauge system_cpu_utilization{
      {.name = "system.cpu.utilization",
       .unit = "1",
       .description = "Busy share of the machine's processors since the last collection",
       .scope = kResourceScope}};
  ObservableGauge system_cpu_logical_count{{.name = "system.cpu.logical.count",
                                            .unit = "{cpu}",
                                            .description = "Processors of the machine, or the container's limit",
                                            .scope = kResourceScope}};
  ObservableGauge system_memory_limit{{.name = "system.memory.limit",
                                       .unit = "By",
                                       .description = "Memory of the machine, or the container's limit",
                                       .scope = kResourceScope}};
  ObservableGauge system_memory_usage{
      {.name = "system.memory.usage",
       .unit = "By",
       .description = "Memory of the machine, or of the container if it has a limit (used, free)",
       .labels = {"system.memory.state"},
       .scope = kResourceScope}};
  ObservableCounter system_disk_io{{.name = "system.disk.io",
                                    .unit = "By",
                                    .description = "Bytes that the machine's block devices read and wrote",
                                    .labels = {"disk.io.direction"},
                                    .scope = kResourceScope}};
  ObservableGauge system_filesystem_usage{{.name = "system.filesystem.usage",
                                           .unit = "By",
                                           .description = "Space of the file systems in use by the server (used, free)",
                                           .labels = {"system.filesystem.mountpoint", "system.filesystem.state"},
                                           .scope = kResourceScope}};
  ObservableCounter system_network_io{
      {.name = "system.network.io",
       .unit = "By",
       .description = "Bytes over the machine's network interfaces except the loopback (receive, transmit)",
       .labels = {"network.io.direction"},
       .scope = kResourceScope}};
  ObservableCounter process_cpu_time{{.name = "process.cpu.time",
                                      .unit = "s",
                                      .description = "CPU time of this process (user, system)",
                                      .labels = {"cpu.mode"},
                                      .recorded_by = RecordedBy::kBoth,
                                      .scope = kResourceScope}};
  ObservableGauge process_memory_usage{{.name = "process.memory.usage",
                                        .unit = "By",
                                        .description = "Resident memory of this process",
                                        .recorded_by = RecordedBy::kBoth,
                                        .scope = kResourceScope}};
  ObservableGauge process_memory_virtual{{.name = "process.memory.virtual",
                                          .unit = "By",
                                          .description = "Virtual memory of this process",
                                          .recorded_by = RecordedBy::kBoth,
                                          .scope = kResourceScope}};
  ObservableGauge process_thread_count{{.name = "process.thread.count",
                                        .unit = "{thread}",
                                        .description = "Threads of this process",
                                        .recorded_by = RecordedBy::kBoth,
                                        .scope = kResourceScope}};
  ObservableGauge process_file_descriptors{{.name = "process.unix.file_descriptor.count",
                                            .unit = "{file_descriptor}",
                                            .description = "Open file descriptors of this process",
                                            .recorded_by = RecordedBy::kBoth,
                                            .scope = kResourceScope}};
  ObservableCounter process_context_switches{
      {.name = "process.context_switches",
       .unit = "{context_switch}",
       .description = "Context switches of this process (voluntary, involuntary)",
       .labels = {"process.context_switch.type"},
       .recorded_by = RecordedBy::kBoth,
       .scope = kResourceScope}};
  ObservableCounter process_paging_faults{{.name = "process.paging.faults",
                                           .unit = "{fault}",
                                           .description = "Page faults of this process (major, minor)",
                                           .labels = {"system.paging.fault.type"},
                                           .recorded_by = RecordedBy::kBoth,
                                           .scope = kResourceScope}};
  ObservableGauge process_uptime{{.name = "process.uptime",
                                  .unit = "s",
                                  .description = "Time since this process started",
                                  .recorded_by = RecordedBy::kBoth,
                                  .scope = kResourceScope}};
  ObservableGauge hw_gpu_utilization{{.name = "hw.gpu.utilization",
                                      .unit = "1",
                                      .description = "Busy share of a GPU",
                                      .labels = {"hw.id", "hw.name"},
                                      .recorded_by = RecordedBy::kBoth,
                                      .scope = kResourceScope}};
  ObservableGauge hw_gpu_memory_usage{{.name = "hw.gpu.memory.usage",
                                       .unit = "By",
                                       .description = "Memory used on a GPU",
                                       .labels = {"hw.id", "hw.name"},
                                       .recorded_by = RecordedBy::kBoth,
                                       .scope = kResourceScope}};
  ObservableGauge hw_gpu_memory_limit{{.name = "hw.gpu.memory.limit",
                                       .unit = "By",
                                       .description = "Memory of a GPU",
                                       .labels = {"hw.id", "hw.name"},
                                       .recorded_by = RecordedBy::kBoth,
                                       .scope = kResourceScope}};
  ObservableGauge hw_power{{.name = "hw.power",
                            .unit = "W",
                            .description = "Power that a GPU draws",
                            .labels = {"hw.id", "hw.name", "hw.type"},
                            .recorded_by = RecordedBy::kBoth,
                            .scope = kResourceScope}};
  ObservableCounter hw_energy{{.name = "hw.energy",
                               .unit = "J",
                               .description = "Energy that a GPU has used since its driver was loaded",
                               .labels = {"hw.id", "hw.name", "hw.type"},
                               .recorded_by = RecordedBy::kBoth,
                               .scope = kResourceScope}};
  ObservableGauge hw_temperature{{.name = "hw.temperature",
                                  .unit = "Cel",
                                  .description = "Temperature of a GPU",
                                  .labels = {"hw.id", "hw.name", "hw.type"},
                                  .recorded_by = RecordedBy::kBoth,
                                  .scope = kResourceScope}};
  ObservableGauge build_info{
      {.name = "tuft.build.info",
       .unit = "{build}",
       .description = "Always 1; the labels are the version that runs, its compiler, and the libtorch that it "
                      "was built with",
       .labels = {"version", "compiler_version", "torch_version"},
       .recorded_by = RecordedBy::kBoth}};
};

// Returns the instruments of the process, which the first call makes. Thread-safe.
const ResourceMetrics& resource_metrics();

}  // namespace tuft::telemetry::internal
