"""The cost of telemetry: recording on the calling thread, whole servers with and without it, and servers without a
working collector."""
import measure
from suites import telemetry_faults, telemetry_overhead, telemetry_recording


def run(options):
    modules, parts = (telemetry_recording, telemetry_overhead, telemetry_faults), []
    for number, module in enumerate(modules, 1):
        measure.progress.case(module.__name__.rpartition("_")[2], number, len(modules))
        parts.append(module.run(options))
    return dict(data={key: value for part in parts for key, value in part["data"].items()},
                tables=[table for part in parts for table in part["tables"]],
                notes=[note for part in parts for note in part["notes"]])
