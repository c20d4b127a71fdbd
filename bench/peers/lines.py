"""What the Python peers of the engine share: the protocol of tuft_engine_runner (a line of JSON in, a line out), its
tokens, and its stopwatch."""
import json
import pathlib
import resource
import sys
import time

MASK = (1 << 64) - 1


class Tokens:
    """The token stream of engine_runner.cc."""

    def __init__(self, vocab):
        self.vocab, self.state = vocab, 1

    def take(self, count):
        tokens = []
        for _ in range(count):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
            tokens.append((self.state >> 33) % self.vocab)
        return tokens


def loss_weights(length):
    """As in fine-tuning: nothing is learned of the first half, which stands for a prompt."""
    return [0.0] * (length // 2) + [1.0] * (length - length // 2)


def peak_bytes():
    """Since forget_peak(); Linux only, 0 elsewhere."""
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
    """Of a torch.optim.AdamW, as before its first step, in the memory that it has."""
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()


def token_times(begin, times):
    """What a client feels, of the moments at which each sequence got its tokens: the first one, and the gaps."""
    return {"ttft_ms": [1e3 * (of[0] - begin) for of in times],
            "itl_ms": [1e3 * (after - before) for of in times for before, after in zip(of, of[1:])]}


def serve_fifo(asked, train):
    """The order of a server that runs one request at a time to its end: light tenants with a short request each, at
    once another when the one before is answered, and before all of them a long one. train(tenant, lengths) runs one."""
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
    """answers: by op, from the request to the reply."""
    replies = sys.stdout
    sys.stdout = sys.stderr  # a library that prints shall not break the protocol
    for line in sys.stdin:
        asked = json.loads(line)
        forget_peak()
        try:
            reply = answers[asked["op"]](asked)
        except Exception as error:  # noqa: BLE001: the suite decides what a failure means
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
