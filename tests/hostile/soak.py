#!/usr/bin/env python3
"""A mixed load of many users who make and delete everything, for as long as you like, and the growth of the server after
its first part: memory, descriptors, threads, disk. Prints a line a minute; exits with 1 if an operation fails. The limits
of what the server remembers (results, audit, usage, ended sessions, telemetry) are so low that the first part reaches them.

    soak.py --minutes 120 --users 50
"""
import argparse
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import lab_results
import meter
from raw_client import PROTOBUF, RawClient, forward_backward
from tuft_server import ALICE, MODEL, TuftServer, configuration, init_model

WEEK = 7 * 24 * 3600
LIMITS = {"future_retention_seconds": 120, "audit_events_per_user_max": 200, "usage_lines_per_user_max": 200,
          "ended_sessions_per_user_max": 50}
STORE = {"memory_bytes_max": 16 << 20, "disk_bytes_max": 256 << 20}


class User:
    """Makes a session with all that belongs to it, uses it, and deletes it, again and again."""

    def __init__(self, url, key, number):
        self.client, self.chance = RawClient(url, key, timeout=120), random.Random(number)
        self.rounds, self.error = 0, None

    def live(self, stop):
        try:
            while not stop.is_set():
                self.round()
                self.rounds += 1
        except Exception as error:  # the main thread prints it
            self.error = repr(error)[:500]
            stop.set()

    def done(self, submitted, protobuf=False):
        answer = self.client.result(submitted, protobuf)
        good = answer.status == 200 and (answer.headers["Content-Type"] == PROTOBUF) == protobuf
        assert good and (protobuf or "error" not in answer.json), answer
        return answer

    def round(self):
        client, session = self.client, self.client.session()
        model = client.model(MODEL, session, rank=self.chance.choice((2, 4, 8)))
        seq = 0
        for _ in range(self.chance.randint(1, 4)):
            seq += 2
            self.done(client.train(model, seq - 1, forward_backward(model, seq - 1)), protobuf=True)
            self.done(client.optim(model, seq))
        for route, folder in (("save_weights", "weights"), ("save_weights_for_sampler", "sampler_weights")):
            seq += 1
            self.done(client.post(route, {"model_id": model, "path": "one", "seq_id": seq, "type": route}))
        made = client.sampler(session, model_path=f"tinker://{model}/sampler_weights/one")
        assert made.status == 200, made
        for number in range(self.chance.randint(1, 4)):
            self.done(client.sample(made.json["sampling_session_id"], number), protobuf=True)
        for route in ("sessions", "training_runs", "checkpoints", f"sessions/{session}"):
            assert client.get(route).status == 200
        for folder in ("weights", "sampler_weights"):
            answer = client.request("DELETE", f"/api/v1/training_runs/{model}/checkpoints/{folder}/one")
            assert answer.status in (200, 204), answer
        self.done(client.post("unload_model", {"model_id": model, "type": "unload_model"}))
        answer = client.post(f"sessions/{session}/finish", {})
        assert answer.status == 200, answer


def sample(server):
    """Returns what the server and its workers hold."""
    pids = [server.process.pid, *server.worker_pids()]
    disk_bytes, files = meter.disk_use(server.home)
    return {"memory (MiB)": sum(meter.status_bytes(pid, "VmRSS") for pid in pids) / 2**20,
            "descriptors": sum(map(meter.descriptors, pids)),
            "threads": sum(map(meter.threads, pids)),
            "disk (MiB)": disk_bytes / 2**20,
            "files": files}


def slope(points):
    """Returns the least-squares slope of (seconds, value) points."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def watch(server, users, seconds):
    """Samples every second until the time is over or a user fails. Returns (seconds since the start, sample) pairs."""
    begin, taken, said = time.monotonic(), [], 0
    while time.monotonic() - begin < seconds and not users[0][1].is_set():
        users[0][1].wait(1)
        taken.append((time.monotonic() - begin, sample(server)))
        if taken[-1][0] >= 60 * said:
            said += 1
            rounds = sum(user.rounds for user, _ in users)
            print(f"{taken[-1][0]:6.0f} s, {rounds} rounds: " +
                  ", ".join(f"{key} {value:.1f}" for key, value in taken[-1][1].items()), flush=True)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--settle", type=float, default=0.25, help="the first part of the time, which does not count")
    options = parser.parse_args()
    keys = {ALICE: "alice", **{f"tml-soak-{number}": f"user{number}" for number in range(options.users)}}
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory)
        model = init_model(home / "tiny", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        config = configuration(model, authorized_users=keys, persistence={"mode": "FILE"},
                               limits=LIMITS, telemetry={"store": STORE})
        with TuftServer(home / "home", config, arguments=["--log-level", "warning"]) as server:
            stop = threading.Event()
            users = [(User(server.url, key, number), stop) for number, key in enumerate(keys) if key != ALICE]
            threads = [threading.Thread(target=user.live, args=(stop,)) for user, _ in users]
            for thread in threads:
                thread.start()
            taken = watch(server, users, options.minutes * 60)
            stop.set()
            for thread in threads:
                thread.join()
    errors = [user.error for user, _ in users if user.error]
    rounds = sum(user.rounds for user, _ in users)
    counted = [one for one in taken if one[0] >= options.settle * options.minutes * 60]
    parts = []
    for key in counted[0][1]:
        rate = slope([(when, values[key]) for when, values in counted])
        parts.append(f"{key} {counted[0][1][key]:.0f} -> {counted[-1][1][key]:.0f}, slope {rate * 3600:+.2f} an hour "
                     f"({rate * WEEK:+.0f} a week, {rate * (taken[-1][0] - counted[0][0]) / max(1, rounds) * 1024:+.2f} "
                     f"KiB a round)" if "MiB" in key else
                     f"{key} {counted[0][1][key]:.0f} -> {counted[-1][1][key]:.0f}, slope {rate * 3600:+.2f} an hour")
    text = "; ".join(parts)
    print(f"{rounds} rounds of {options.users} users in {options.minutes:g} min, after the first "
          f"{options.settle * options.minutes:g} min: {text}")
    lab_results.note("soak", f"{options.users} users make and delete everything, {options.minutes:g} min", rounds,
                     (f"FAILED: {errors[0]}; " if errors else "no operation failed; ") + text)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
