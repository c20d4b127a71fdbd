"""The common parts of all suites: the machine, child programs that answer lines of JSON, samples and their spread."""
import contextlib
import datetime
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Skip(Exception):
    """A suite, or a part of one, cannot run here; the text gives the reason and the remedy."""


class PeerFailed(RuntimeError):
    """A peer has failed. The suite continues without it."""


def shortened(text):
    """Returns the beginning and the end of a long error."""
    return text if len(text) <= 600 else f"{text[:290]} ... {text[-290:]}"


@contextlib.contextmanager
def peer_may_fail(title, notes):
    """Reports an error of a peer in a line of output and in a note of the result, and raises PeerFailed."""
    try:
        yield
    except PeerFailed:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        note = f"{title} failed and was left out from then on: {shortened(' '.join(str(error).split()))}"
        notes.append(note)
        progress.line(note)
        raise PeerFailed(note) from error


class Progress:
    """Prints on stderr what is running. On a terminal each step overwrites the previous one; elsewhere there is at most
    one line every ten seconds."""
    STEP_SECONDS = 10

    def __init__(self):
        self.suite, self.case_title, self.open_line, self.last = "", "", False, -math.inf

    def line(self, text):
        if self.open_line:
            print(file=sys.stderr)
            self.open_line = False
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def begin(self, suite):
        self.suite, self.case_title, self.last = suite, "", -math.inf

    def case(self, title, number, count):
        """Names the case of the steps that follow."""
        self.case_title = f", case {number} of {count}: {title}"

    def step(self, name, number, count):
        name = ", ".join(str(part) for part in name) if isinstance(name, tuple) else name
        text = f"bench: {self.suite}{self.case_title}, sample {number} of {count}: {name}"
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self.open_line = True
        elif time.monotonic() - self.last >= self.STEP_SECONDS:
            self.last = time.monotonic()
            print(text, file=sys.stderr, flush=True)


progress = Progress()


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine():
    cpu = {key.strip(): value.strip() for key, _, value in
           (line.partition(":") for line in output_of("lscpu").splitlines())}
    governor = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": f"{cpu.get('Model name', platform.processor())}, family {cpu.get('CPU family', '?')} "
               f"model {cpu.get('Model', '?')}",
        "cores": len(os.sched_getaffinity(0)),
        "l2": cpu.get("L2 cache", "?"),
        "l3": cpu.get("L3 cache", "?"),
        "isa": " ".join(name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
                        if name in cpu.get("Flags", "").split()),
        "virtual": cpu.get("Hypervisor vendor", "no"),
        "memory_gib": round(memory / 2**30, 1),
        "governor": governor.read_text().strip() if governor.exists() else "not visible",
        "kernel": platform.release(),
    }


def versions(programs):
    commit = output_of("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    changed = output_of("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit + (" with changes" if changed else ""), "python": platform.python_version(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
            "compiler": output_of("c++", "--version").splitlines()[0] if output_of("c++", "--version") else "?",
            "tuft": output_of(str(programs / "tuft"), "--version")}


def busy_share(seconds=2.0):
    """Returns the fraction of the machine (0 to 1) that other programs use during a short interval."""
    def ticks():
        fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle, and waiting for disks

    total, idle = ticks()
    time.sleep(seconds)
    total_after, idle_after = ticks()
    return round(1.0 - (idle_after - idle) / max(1, total_after - total), 3)


def wait_until_idle(minutes, allowed=0.05):
    """Waits for at most `minutes` until the used fraction was small three times in a row. Returns the last one."""
    deadline, quiet = time.monotonic() + 60 * minutes, 0
    while True:
        share = busy_share()
        quiet = quiet + 1 if share <= allowed else 0
        if quiet == 3 or time.monotonic() > deadline:
            return share


class Child:
    """A program that answers one line of JSON with one line of JSON. With `rests` it is stopped (SIGSTOP) between two
    requests, because the OpenMP threads of an idle PyTorch keep spinning and would take cores from the next program."""

    def __init__(self, command, rests=False, **environment):
        self.rests = rests
        self.errors = tempfile.TemporaryFile("w+")  # a pipe that is not read would block the child when full
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=dict(os.environ, **environment))

    def ask(self, **request):
        try:
            if self.rests:
                self.process.send_signal(signal.SIGCONT)
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            if self.rests:
                self.process.send_signal(signal.SIGSTOP)
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"{self.process.args[0]} ended: {self.errors.read()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.process.args[0]}: {answer['error']}")
        return answer

    def close(self):
        if self.rests:
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.communicate(timeout=20)
        except (subprocess.TimeoutExpired, ValueError):
            self.process.kill()
        self.errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class HardwareMonitor:
    """Samples processors, memory and GPUs with tuft_hardware_monitor every 100 ms while a suite runs."""

    def __init__(self, programs):
        program = programs.parent / "bench" / "tuft_hardware_monitor"
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True) if program.exists() else None

    def stop_and_collect(self):
        if self.process is None:
            return {"status": "tuft_hardware_monitor is not built"}
        text, _ = self.process.communicate(timeout=20)
        return json.loads(text)


def interleaved(sources, repetitions, warm_up=1):
    """Runs all sources in turn, round after round, so that a drift of the machine affects all of them. Every other
    round runs backwards, so that no source always follows the same one. Returns the samples by name, without the
    sources that raised PeerFailed."""
    sources, samples = dict(sources), {name: [] for name in sources}
    done, count = 0, len(sources) * (warm_up + repetitions)
    for round_number in range(-warm_up, repetitions):
        names = list(sources) if round_number % 2 == 0 else list(reversed(sources))
        for name in names:
            done += 1
            progress.step(name, done, count)
            try:
                sample = sources[name]()
            except PeerFailed:
                del sources[name], samples[name]
                continue
            if round_number >= 0:
                samples[name].append(sample)
    return samples


def run_parts(parts, options):
    """Runs the parts of a suite, by name, that --parts chose, and joins their results. A part that cannot run is left out."""
    data, tables, notes = {}, [], []
    chosen = [name for name in parts if not options.parts or name in options.parts]
    for number, name in enumerate(chosen, 1):
        progress.case(name, number, len(chosen))
        try:
            result = parts[name].run(options)
        except Skip as reason:
            notes.append(f"{name} skipped: {reason}")
            progress.line(notes[-1])
            continue
        data[name] = result["data"]
        tables += result["tables"]
        notes += result["notes"]
    return dict(data=data, tables=tables, notes=list(dict.fromkeys(notes)))


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": len(values)}


# Two-sided 95 % quantiles of Student's t by degrees of freedom; 1.96 beyond the table.
STUDENT = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def paired_ratio(numerators, denominators):
    """Returns the geometric mean of the pairs' ratios, with its 95 % interval (normal errors of the logarithms)."""
    logs = [math.log(a / b) for a, b in zip(numerators, denominators)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return {"ratio": math.exp(mean), "low": None, "high": None, "pairs": len(logs)}
    quantile = STUDENT[len(logs) - 1] if len(logs) <= len(STUDENT) else 1.96
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "pairs": len(logs)}


def flat(value):
    return [one for part in value for one in flat(part)] if isinstance(value, list) else [value]


def many(values):
    """Returns spread() of a list of numbers, with the 99th percentile if there are enough of them."""
    found = spread(values)
    if len(values) > 20:
        found["p99"] = sorted(values)[int(0.99 * len(values))]
    return found


def is_sample(value):
    return isinstance(value, dict) and "seconds" in value


def summary(value):
    """Returns `value` without raw samples: a list of samples becomes the spread of each of their numbers, and a long
    list of numbers becomes its spread."""
    if isinstance(value, dict):
        return {key: summary(part) for key, part in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    value = list(value)
    if value and all(map(is_sample, value)):
        columns = {key: flat([sample[key] for sample in value if key in sample]) for key in value[0]}
        return {key: many(column) for key, column in columns.items()
                if column and all(isinstance(one, (int, float)) for one in column)}
    if len(value) > 20 and all(isinstance(one, (int, float)) for one in value):
        return many(value)
    return [summary(part) for part in value]


def rates(samples, what="tokens"):
    return [sample[what] / sample["seconds"] for sample in samples]


def cores(samples, what):
    """Returns the processors that were used on average, where `what` is a number of processor seconds."""
    return sum(sample[what] for sample in samples) / sum(sample["seconds"] for sample in samples)


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
