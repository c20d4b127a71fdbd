"""Measures what processes cost: processor time (not wall-clock time, so that a busy machine changes nothing), memory,
descriptors and threads. Linux only."""
import dataclasses
import os
import pathlib
import re
import time


def cpu_ns(pid):
    """Returns the processor time of all threads of a process: the kernel's clock CPUCLOCK_SCHED of that process."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def status_bytes(pid, key):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M).group(1)) * 1024


def reset_peak(pid):
    """From here on VmHWM is the peak since this call."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))


def disk_use(folder):
    """Returns the bytes that everything below a folder takes on the disk, and the number of files and directories there.
    What goes away meanwhile does not count."""
    total = count = 0
    for path, directories, files in os.walk(folder):
        for name in directories + files:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
                count += 1
            except FileNotFoundError:
                continue
    return total, count


@dataclasses.dataclass
class Cost:
    cpu_ns: int = 0
    peak: int = 0  # the largest growth of resident memory while it ran
    kept: int = 0  # the growth that stays

    def __str__(self):
        return f"{self.cpu_ns / 1e6:.1f} ms of CPU, peak {self.peak / 2**20:.1f} MiB, kept {self.kept / 2**20:.1f} MiB"


class Meter:
    """The cost of what happens between begin() and end(), summed over a server and its workers."""

    def __init__(self, server):
        self.pids = [server.process.pid, *server.worker_pids()]

    def begin(self):
        for pid in self.pids:
            reset_peak(pid)
        self.resident = {pid: status_bytes(pid, "VmRSS") for pid in self.pids}
        self.cpu = self.cpu_now()

    def cpu_now(self):
        return sum(cpu_ns(pid) for pid in self.pids)

    def end(self):
        cost = Cost(cpu_ns=self.cpu_now() - self.cpu)
        for pid in self.pids:
            cost.peak += max(0, status_bytes(pid, "VmHWM") - self.resident[pid])
            cost.kept += status_bytes(pid, "VmRSS") - self.resident[pid]
        return cost
