"""A collector for a benchmark: tuft_otlp_sink, or a port where nobody listens."""
import json
import subprocess

import measure
import server


class Sink:
    """modes: live, slow, hang, refuse, reject (see otlp_sink.cc)."""

    def __init__(self, options, mode="live"):
        program = options.programs.parent / "bench" / "tuft_otlp_sink"
        if not program.exists():
            raise measure.Skip(f"{program.name} is not built")
        self.process = subprocess.Popen([program, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def close(self):
        """What came in, by method."""
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
