"""A collector for a benchmark: tuft_otlp_sink, or a port without a listener."""
import json
import subprocess

import measure
import server


class Sink:
    """Modes: live, slow, hang, refuse, reject (see otlp_sink.cc)."""

    def __init__(self, options, mode="live"):
        program = options.programs.parent / "bench" / "tuft_otlp_sink"
        if not program.exists():
            raise measure.Skip(f"{program.name} is not built")
        self.process = subprocess.Popen([program, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def close(self):
        """Returns what was received, by method."""
        text, _ = self.process.communicate(timeout=20)
        return json.loads(text)


class Nobody:
    def __init__(self):
        self.endpoint = f"http://127.0.0.1:{server.free_port()}"

    def close(self):
        return {}


def make(options, mode):
    return Nobody() if mode == "dead" else Sink(options, mode)


def bytes_of(received, signal):
    return sum(counts["bytes"] for method, counts in received.items() if f".{signal}." in method.lower())
