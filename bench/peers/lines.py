"""The common parts of the engine's Python peers: the protocol of tuft_engine_runner (one line of JSON in, one out), its
tokens, and its stopwatch."""
import json
import pathlib
import resource
import sys
import time

MASK = (1 << 64) - 1


class Tokens:
    """Produces the same tokens as engine_runner.cc."""

    def __init__(self, vocab):
        self.vocab, self.state = vocab, 1

    def take(self, count):
        tokens = []
        for _ in range(count):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
            tokens.append((self.state >> 33) % self.vocab)
        return tokens


def loss_weights(length):
    """Returns weights as in fine-tuning: the first half, which stands for a prompt, has no weight."""
    return [0.0] * (length // 2) + [1.0] * (length - length // 2)


def peak_bytes():
    """Returns the peak since forget_peak(); Linux only, 0 elsewhere."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def forget_peak():
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    def __init__(self):
        self.wall, self.cpu = time.monotonic(), cpu_seconds()

    def stop(self):
        return {"seconds": time.monotonic() - self.wall, "cpu_seconds": cpu_seconds() - self.cpu,
                "peak_bytes": peak_bytes()}


def forget_moments(optimizer):
    """Resets a torch.optim.AdamW to the state before its first step, but keeps its memory."""
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()


def token_times(begin, times):
    """Returns a client's latencies from the times of each sequence's tokens: that of the first one, and the gaps."""
    return {"ttft_ms": [1e3 * (of[0] - begin) for of in times],
            "itl_ms": [1e3 * (after - before) for of in times for before, after in zip(of, of[1:])]}


def serve_fifo(asked, train):
    """Simulates a server that runs one request at a time to its end. A long request comes first; light tenants send one
    short request each, and the next one when it is answered. train(tenant, lengths) runs one request."""
    light, length = asked["light"], asked["length"]
    begin = time.monotonic()
    if asked["heavy_tokens"]:
        train(light, [128] * (asked["heavy_tokens"] // 128))
    sent, milliseconds = [begin] * light, []
    for _ in range(asked["rounds"]):
        for tenant in range(light):
            train(tenant, [length])
            now = time.monotonic()
            milliseconds.append(1e3 * (now - sent[tenant]))
            sent[tenant] = now
    return {"seconds": time.monotonic() - begin, "milliseconds": milliseconds}


def serve(answers):
    """`answers` maps an op to a function from the request to the reply."""
    replies = sys.stdout
    sys.stdout = sys.stderr  # output of a library must not break the protocol
    for line in sys.stdin:
        asked = json.loads(line)
        forget_peak()
        try:
            reply = answers[asked["op"]](asked)
        except Exception as error:  # noqa: BLE001: the suite decides how to treat a failure
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
