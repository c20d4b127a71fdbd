"""Records what the server has promised to a client: every operation sent, every answer received, and what must be true
after a crash. Training is the same in every run (one datum, one seed), so that loss and gradient norm depend on the
step number only: a step that was lost, done twice, or done with another optimizer state changes the next numbers."""
import dataclasses
import http.client
import math
import threading
import time

from tinker.proto import tinker_public_pb2 as pb

from raw_client import PROTOBUF, RawClient

CUT = (OSError, http.client.HTTPException)  # the server died under the request
POLL_SECONDS = 25  # shorter than a long poll, because no operation may be pending for long


class Broken(AssertionError):
    """The server broke a promise."""


def promise(kept, what, *facts):
    if not kept:
        raise Broken(f"{what}: {' | '.join(map(str, facts))}")


@dataclasses.dataclass
class Op:
    kind: str  # forward, backward, step, save, save_sampler, load, sample, create
    seq: int = 0
    name: str = ""
    request: str | None = None  # None: its submission was not answered
    answer: object = None       # the first final answer
    step: int | None = None     # of a checkpoint: how many steps are in it
    public: bool = False        # its checkpoint was made public
    deleted: bool | None = None  # deletion of its checkpoint: requested (False), acknowledged (True)

    @property
    def in_protobuf(self):
        return self.kind in ("forward", "backward", "sample")

    @property
    def ok(self):
        if self.answer is None or self.answer.status != 200:
            return False
        return self.in_protobuf == (self.answer.headers["Content-Type"] == PROTOBUF) and "error" not in self.fields

    @property
    def fields(self):
        return {} if self.answer.headers["Content-Type"] == PROTOBUF else self.answer.json

    @property
    def error(self):
        return self.fields.get("error", "") or self.fields.get("detail", "")

    def same_as(self, other):
        return (self.answer.status, self.answer.body) == (other.status, other.body)


class Client(RawClient):
    """A client that repeats a request while the store is away. At any other time it treats a 503 like other answers."""

    def __init__(self, url, key, store_away):
        super().__init__(url, key, timeout=POLL_SECONDS)
        self.store_away = store_away  # an event that is set from before the store goes away until after it is back

    def request(self, *arguments, **keywords):
        self.tried_again = False
        while True:
            away = self.store_away.is_set()
            answer = super().request(*arguments, **keywords)
            if answer.status != 503 or not (away or self.store_away.is_set()):
                return answer
            self.tried_again = True
            time.sleep(0.05)

    def why_pending(self, op):
        """Returns the answer to a poll that waits until its time limit."""
        host, port = self.connection.host, self.connection.port
        return RawClient(f"http://{host}:{port}", self.api_key).retrieve(op.request, op.in_protobuf)


def take(raw, op, submitted):
    """Records the answer to a submission."""
    promise(submitted.status in (200, 202), "a submission is accepted", op, submitted)
    op.request = submitted.json["request_id"]


def final(raw, op):
    """Returns the answer of the operation's future. Fails if it stays pending."""
    try:
        answer = raw.retrieve(op.request, op.in_protobuf)
    except TimeoutError as hangs:
        raise Broken(f"pending for ever: {op}; the server says: {raw.why_pending(op)}") from hangs
    promise(answer.status in (200, 410), "a future ends", op, answer)
    return answer


class Curve:
    """Loss and gradient norm by step number. The first value seen of a step is the expected value for all runs."""

    def __init__(self):
        self.lock, self.losses, self.norms = threading.Lock(), {}, {}

    def check(self, table, step, value, what, *facts):
        with self.lock:
            known = table.setdefault(step, value)
        promise(math.isclose(known, value, rel_tol=2e-3, abs_tol=1e-6),
                f"{what} at step {step} is {value}, and was {known}", *facts)

    def loss(self, step, answer, *facts):
        output = pb.ForwardBackwardOutput.FromString(answer.body)
        self.check(self.losses, step, output.metrics["loss:sum"], "the loss", *facts)

    def is_at(self, step, answer):
        """Returns whether this is the loss that is known of a step."""
        known = self.losses.get(step)
        return known is not None and math.isclose(
            known, pb.ForwardBackwardOutput.FromString(answer.body).metrics["loss:sum"], rel_tol=2e-3, abs_tol=1e-6)

    def norm(self, step, metrics, *facts):
        self.check(self.norms, step, metrics["grad_norm"], "the gradient norm", *facts)


class Usage:
    """An upper bound of a user's usage: the sum of everything that was ever sent."""

    def __init__(self):
        self.lock = threading.Lock()
        self.most = {"training": 0, "sampling_prefill": 0, "sampling_sample": 0, "checkpoint": 0}

    def sent(self, kind, count):
        with self.lock:
            self.most[kind] += count

    def check(self, raw, since, until):
        answer = raw.get(f"billing/usage/events?starting_on={since}&ending_before={until}")
        promise(answer.status == 200, "usage is available", answer)
        counted = dict.fromkeys(self.most, 0)
        for event in answer.json["data"]:
            info = event["event_info"]
            if info["type"] in counted:
                counted[info["type"]] += info.get("token_count", info.get("count", 0))
        for kind, count in counted.items():
            promise(count <= self.most[kind], f"{kind} is not counted twice", count, "sent:", self.most[kind])
        return counted
