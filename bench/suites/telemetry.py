"""What observing costs: recording on the calling thread, whole servers on against off, and servers whose collector is
away."""
from suites import telemetry_faults, telemetry_overhead, telemetry_recording


def run(options):
    parts = [part.run(options) for part in (telemetry_recording, telemetry_overhead, telemetry_faults)]
    return dict(data={key: value for part in parts for key, value in part["data"].items()},
                tables=[table for part in parts for table in part["tables"]],
                notes=[note for part in parts for note in part["notes"]])
