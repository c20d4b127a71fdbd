"""S4: what do polls cost when one client has 2,000 samples in flight?

The same program runs on the oldest SDK, which polls for each sample, and on the newest one, which polls for all samples of a
client at once (retrieve_futures). Both submit all samples and wait for them. Then samples are given up: measured is how long
the server goes on with them. The oldest SDK cannot cancel; its client ends, and the server notices its silence.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import measure
import server

COUNT, PROMPT, TOKENS = 2000, 32, 32
ABANDONED_TOKENS = 1024
GIVE_UP = 150.0  # seconds; limits.sampling_silence_seconds is 60
TITLES = {"oldest": "a poll for each sample", "newest": "one poll for all"}


def interpreters():
    """Makes the environments of the oldest and the newest SDK that the tests know. Returns their interpreters."""
    folder = measure.ROOT / "tests/sdk"
    subprocess.run([sys.executable, folder / "environments.py", *TITLES], check=True)
    sys.path.insert(0, str(folder))
    import environments
    return {word: (environments.named([word])[0], environments.program(environments.named([word])[0])) for word in TITLES}


def sum_of(page, name, **labels):
    total = 0.0
    for found in re.finditer(rf"^{name}(?:{{(.*)}})? (\S+)$", page, re.M):
        if all(f'{key}="{value}"' in (found.group(1) or "") for key, value in labels.items()):
            total += float(found.group(2))
    return total


def own_cpu_seconds(running):
    """Returns the processor time of the server without its workers."""
    fields = pathlib.Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def counts(running):
    page = running.get_text("/metrics")
    return dict(requests=sum_of(page, "http_server_request_duration_seconds_count"), server_cpu=own_cpu_seconds(running))


def left(running):
    page = running.get_text("/metrics")
    return sum(sum_of(page, f"tuft_futures_{state}", operation_type="sample") for state in ("queued", "running"))


def sample(running, client):
    before = counts(running)
    taken = client.ask(op="sample", count=COUNT, prompt=PROMPT, new_tokens=TOKENS)
    after = counts(running)
    return dict(taken, requests=after["requests"] - before["requests"], server_cpu=after["server_cpu"] - before["server_cpu"])


def abandon(running, client, cancels):
    """Returns for how many seconds the server works on samples that nobody wants, and how many it works on at first."""
    client.ask(op="submit", count=COUNT, prompt=PROMPT, new_tokens=ABANDONED_TOKENS)
    deadline = time.monotonic() + GIVE_UP
    while left(running) < COUNT / 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    begin, first = time.monotonic(), left(running)
    if cancels:
        client.ask(op="cancel")
    else:
        client.process.kill()
    while left(running) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    return dict(seconds=time.monotonic() - begin, first=first, left=left(running))


def measure_sdk(options, word, version, python):
    with server.Server(options, f"polls-{word}", metrics=True) as running:
        client = measure.Child([python, pathlib.Path(__file__).parents[1] / "polls_client.py"],
                               TINKER_BASE_URL=running.url, TINKER_API_KEY=server.KEY)
        with client:
            client.ask(op="sample", count=50, prompt=PROMPT, new_tokens=TOKENS)
            samples = []
            for number in range(options.repetitions):
                measure.progress.step(version, number + 1, options.repetitions)
                samples.append(sample(running, client))
            given_up = abandon(running, client, cancels=word == "newest")
    return dict(version=version, samples=samples, abandoned=given_up)


def row(word, found):
    def middle(key, scale=1.0):
        values = [scale * taken[key] for taken in found["samples"]]
        return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"
    gone = found["abandoned"]
    ended = f"{gone['seconds']:.1f}" + (f", {gone['left']:.0f} still there" if gone["left"] else "")
    return [f"SDK {found['version']}: {TITLES[word]}", middle("seconds"), middle("requests", 1 / COUNT),
            middle("server_cpu", 1e6 / COUNT), middle("cpu_seconds", 1e3 / COUNT), ended]


def run(options):
    found = {word: measure_sdk(options, word, *which) for word, which in interpreters().items()}
    return dict(
        data=found,
        tables=[dict(title=f"{COUNT} samples of {TOKENS} tokens at once",
                     columns=["client", "seconds until all are there", "requests for each sample",
                              "us of the server for each sample", "ms of the client for each sample",
                              f"seconds until {COUNT} given-up samples of {ABANDONED_TOKENS} tokens have ended"],
                     rows=[row(word, one) for word, one in found.items()])],
        notes=["Model of tuft init-model, small, on the same cores. The server's time is that of the control plane, without "
               "its worker. Requests include the submissions, one for each sample, and heartbeats.",
               "The two SDKs differ in more than their polls; the requests and the server's time are what the polls change. "
               "Samples are given up by cancel() with the newest SDK. The oldest has no such call: its process is killed, and "
               "the server ends its samples limits.sampling_silence_seconds (60 s) after its last request."])
