// Samples processors, memory and GPUs until the end of its standard input, then prints the samples as JSON.
//   tuft_hardware_monitor [--interval-ms N] [--samples]
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "telemetry/hardware_monitor.h"

int main(int count, char** arguments) {
  long interval_ms = 100;
  bool with_samples = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--samples") {
      with_samples = true;
    } else if (argument == "--interval-ms" && i + 1 < count) {
      interval_ms = std::strtol(arguments[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: %s [--interval-ms N] [--samples]\n", arguments[0]);
      return 2;
    }
  }
  tuft::telemetry::HardwareMonitor monitor(interval_ms * tuft::kMillisecond);
  if (const tuft::Status started = monitor.start(); !started.ok()) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  while (std::getchar() != EOF) {
  }
  const auto report = monitor.stop_and_collect();
  std::puts(tuft::telemetry::hardware_json(tuft::telemetry::hardware_info(), report, with_samples).c_str());
  return report.status == tuft::telemetry::MonitorStatus::kFailed ? 1 : 0;
}
