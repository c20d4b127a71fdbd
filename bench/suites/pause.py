"""S3: for how long do generations stop when a run publishes its weights to samplers that follow it?

Two streams run all the time: another user's on the base model, and the run's own user's on the sampling session that follows
the run. Meanwhile the run makes inflight saves, one after the other, and nothing else. Measured is the longest time between two
tokens of a stream around a save, and, for comparison, in a time of the same length without one: the pause is the difference of
their medians. The worker itself says how long each copy held its engine thread, during which nobody gets a token.
"""
import http.client
import json
import re
import statistics
import threading
import time
import urllib.parse

import server
from suites import engine

OTHER_KEY = "tml-bench-other"
SIZES = ["medium", "large"]  # of tuft init-model
SAVES = 40
REST = 0.1  # seconds between two saves, in which the second window, without a save, is measured
PROMPT = list(range(10, 42))
TOKENS = 1500  # of one answer; then the next one begins


class Stream(threading.Thread):
    """Generates without an end, and notes when each piece of an answer arrives."""

    def __init__(self, url, key, model):
        super().__init__(daemon=True)
        self.host = urllib.parse.urlsplit(url).netloc
        self.key, self.model = key, model
        self.times, self.ended, self.error = [], threading.Event(), None

    def run(self):
        try:
            while not self.ended.is_set():
                self.answer()
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            self.error = error

    def answer(self):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        body = dict(model=self.model, prompt=PROMPT, max_tokens=TOKENS, temperature=1.0, stream=True)
        connection.request("POST", "/oai/api/v1/completions", json.dumps(body),
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{self.model}: {reply.status} {reply.read()[:300]}")
        self.times.append(None)  # between two answers there is no token
        while line := reply.readline():
            if self.ended.is_set():
                break
            if line.startswith(b"data: {"):
                self.times.append(time.monotonic())
        connection.close()

    def gaps(self):
        """Returns (begin, end) between tokens of one answer."""
        times = list(self.times)
        return [(a, b) for a, b in zip(times, times[1:]) if a is not None and b is not None]

    def wait_for(self, count, seconds=60):
        deadline = time.monotonic() + seconds
        while len(self.times) < count:
            if self.error or time.monotonic() > deadline:
                raise RuntimeError(f"a stream of {self.model} does not run: {self.error}")
            time.sleep(0.01)


def finish(running, submitted):
    while True:
        answer = running.post("/api/v1/retrieve_future", {"request_id": submitted["request_id"]})
        if answer.get("type") != "try_again":
            return answer


class Run:
    def __init__(self, running, rank):
        self.running, self.saves = running, 0
        self.model = running.create_model(running.create_session(), 0, rank)

    def megabytes(self):
        found = list(self.running.home.glob("checkpoints/*/sampler_weights/*/adapter_model.safetensors"))
        return found[0].stat().st_size / 2**20 if found else 0.0

    def save(self):
        self.saves += 1
        answer = finish(self.running, self.running.post("/api/v1/save_weights_for_sampler", {
            "model_id": self.model, "seq_id": self.saves, "sampling_session_seq_id": self.saves, "kind": "inflight",
            "type": "save_weights_for_sampler"}))
        return answer["sampling_session_id"]


def longest(gaps, begin, end):
    """Returns the longest gap in ms that overlaps an interval; 0 without one."""
    return max((1e3 * (b - a) for a, b in gaps if a < end and b > begin), default=0.0)


def samples_of(stream, windows):
    gaps = stream.gaps()
    usual = statistics.median(1e3 * (b - a) for a, b in gaps)
    return [dict(seconds=end - begin, gap_ms=usual, without_ms=longest(gaps, begin - REST / 2 - (end - begin), begin - REST / 2),
                 with_ms=longest(gaps, begin, end))
            for begin, end in windows]


def copies(running):
    """Returns the seconds that all copies until now held the engine thread."""
    return float(re.search(r"^tuft_lora_publish_duration_seconds_sum{.*} (\S+)", running.get_text("/metrics"), re.M).group(1))


def measure_pause(options, rank, size):
    """Returns the samples of each stream, the ms that each copy held the engine, and the MiB of the adapter."""
    with server.Server(options, "pause", users={OTHER_KEY: "other"}, model_size=size, metrics=True) as running:
        run = Run(running, rank)
        follower = run.save()
        streams = {"another user": Stream(running.url, OTHER_KEY, "bench"),
                   "the run's own user": Stream(running.url, server.KEY, follower)}
        for stream in streams.values():
            stream.start()
        for stream in streams.values():
            stream.wait_for(30)
        windows, held = [], [copies(running)]
        for _ in range(SAVES):
            time.sleep(2 * REST)
            begin = time.monotonic()
            run.save()
            windows.append((begin, time.monotonic()))
            held.append(copies(running))
        for stream in streams.values():
            stream.wait_for(len(stream.times) + 2)
            stream.ended.set()
        megabytes = run.megabytes()
        streams = {name: samples_of(stream, windows) for name, stream in streams.items()}
        return streams, [1e3 * (after - before) for before, after in zip(held, held[1:])], megabytes


def spread(values):
    return f"{statistics.median(values):.1f} (up to {max(values):.1f})"


def table(size, streams, copy_ms, megabytes):
    def row(name, taken):
        without, around = ([one[key] for one in taken] for key in ("without_ms", "with_ms"))
        return [name, f"{taken[0]['gap_ms']:.1f}", spread(without), spread(around),
                f"{statistics.median(around) - statistics.median(without):.1f}"]
    return dict(title=f"Model {size}, an adapter of {megabytes:.1f} MiB: ms between two tokens of a stream. A copy holds the "
                      f"engine for {spread(copy_ms)} ms",
                columns=["stream of", "usually", "longest in a time without a save", "longest around a save", "pause"],
                rows=[row(name, taken) for name, taken in streams.items()])


def run(options):
    found = {size: measure_pause(options, engine.RANK, size) for size in SIZES}
    return dict(
        data={size: dict(streams=streams, copy_ms=copy_ms, adapter_mib=megabytes)
              for size, (streams, copy_ms, megabytes) in found.items()},
        tables=[table(size, *one) for size, one in found.items()],
        notes=[f"LoRA rank {engine.RANK} on every layer. {SAVES} inflight saves, each {2 * REST:.1f} s after the one before; "
               "numbers are medians over the saves. The file of a save is written during the next steps, by another thread.",
               "The server, its worker and the client of the streams share the cores. What is seen without a save is the "
               "machine's own noise, and belongs to the numbers with a save as well."])
