"""For how long is training interrupted when one of two workers of a base model is lost?

Clients train without a pause, each its own run, half of them at each worker. Then one worker is lost. Measured is the
longest time between two steps that succeeded, over all clients, and the errors that they got."""
import http.client
import signal
import threading
import time

import joined
import load_client
import measure

RUNS = 4
USUAL_SECONDS = 2  # of training before the loss
RECOVERED_SECONDS = 60
PAUSE = 0.02  # after a request that was refused
# Title, workers that join (the third one stands by), signal, seconds that are watched.
LOSSES = {"killed": ("kill -9, nobody stands by", 2, signal.SIGKILL, 6),
          "killed, standby": ("kill -9, a third worker stands by", 3, signal.SIGKILL, 4),
          "drained": ("SIGTERM, nobody stands by", 2, signal.SIGTERM, 4),
          "drained, standby": ("SIGTERM, a third worker stands by", 3, signal.SIGTERM, 4),
          "stopped": (f"SIGSTOP: it answers no more, and its lease is {joined.LEASE} s", 2, signal.SIGSTOP, 10)}


class Trainer(threading.Thread):
    """Trains until it is ended, and notes when each step has succeeded."""

    def __init__(self, running, number):
        super().__init__(daemon=True)
        self.client = load_client.Run(running, number)
        self.times, self.errors, self.ended, self.failure = [], [], threading.Event(), None
        self.client.step()
        self.client.save("first")

    def run(self):
        try:
            while not self.ended.is_set():
                self.step()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.failure = error

    def step(self):
        try:
            self.client.step()
            self.times.append(time.monotonic())
        except load_client.Refused as error:
            self.errors.append(str(error))
            time.sleep(PAUSE)

    def longest(self, begin, end):
        """Returns the longest time between two steps that overlaps an interval."""
        return max(b - a for a, b in zip(self.times, self.times[1:]) if a < end and b > begin)

    def wait_for_step_after(self, moment):
        deadline = time.monotonic() + RECOVERED_SECONDS
        while not self.times or self.times[-1] < moment:
            if self.failure or time.monotonic() > deadline:
                raise RuntimeError(f"a run does not train after the loss: {self.failure or self.errors[-1:]}")
            time.sleep(0.01)


def lose(options, directory, name):
    """Returns one sample of a loss, with workers of its own."""
    _, workers, number, seconds = LOSSES[name]
    with joined.Server(options, "scale-losses", directory, workers=2) as running:
        lost = [running.join_worker() for _ in range(workers)][0]
        trainers = [Trainer(running, each) for each in range(RUNS)]
        for trainer in trainers:
            trainer.start()
        time.sleep(USUAL_SECONDS)
        begin = time.monotonic()
        lost.send_signal(number)
        time.sleep(seconds)
        end = time.monotonic()
        for trainer in trainers:
            trainer.wait_for_step_after(end)
            trainer.ended.set()
        for trainer in trainers:
            trainer.join()
    longest = sorted(trainer.longest(begin, end) for trainer in trainers)
    usual = max(trainer.longest(begin - USUAL_SECONDS / 2, begin - USUAL_SECONDS / 4) for trainer in trainers)
    # Half of the runs are not at the lost worker.
    return dict(seconds=longest[-1], others_seconds=longest[RUNS // 2 - 1], usual_seconds=usual,
                errors=sum(len(trainer.errors) for trainer in trainers))


def run(options):
    directory = joined.certificates(options)
    sources = {name: lambda name=name: lose(options, directory, name) for name in LOSSES}
    samples = measure.interleaved(sources, options.repetitions, warm_up=0)
    return report(samples)


def row(name, taken):
    return [LOSSES[name][0], *(measure.spread([sample[key] for sample in taken])
                               for key in ("seconds", "others_seconds", "usual_seconds", "errors"))]


def report(samples):
    return dict(
        data=samples,
        tables=[dict(title=f"{RUNS} runs that train all the time at two joined workers, one of which is lost: longest time "
                           "between two steps of a run, seconds",
                     columns=["loss", "runs of the lost worker", "runs of the other one", "without a loss",
                              "errors of all clients"],
                     rows=[row(name, taken) for name, taken in samples.items()])],
        notes=["Losses: model tiny of tuft init-model, so that reading a checkpoint takes no time; a large one adds the time to "
               "read it. A run whose worker was lost goes back to its checkpoint, and its client is told by an error and goes "
               "on. \"Runs of the other one\" is the longest of the half that waited least.",
               "Expected before the first run: 2.3 s after kill -9 without a standby (RunPlacement::kAway is 2 s, a sweep "
               "0.25 s), 0.3 s with one, 0.3 to 0.5 s after SIGTERM, without an error; 5.5 s after SIGSTOP (the lease and "
               "kAway)."])
