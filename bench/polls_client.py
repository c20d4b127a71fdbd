#!/usr/bin/env python3
"""Samples through the Tinker SDK for the suite polls, one line of JSON in and one out. Requires an interpreter with tinker,
and TINKER_BASE_URL and TINKER_API_KEY in the environment."""
import json
import sys
import time

import tinker
from tinker import types


class Client:
    def __init__(self):
        self.service = tinker.ServiceClient()
        self.sampling = self.service.create_sampling_client(base_model="bench")
        self.pending = []

    def submit(self, asked):
        parameters = types.SamplingParams(max_tokens=asked["new_tokens"], temperature=1.0, stop=None)
        prompt = types.ModelInput.from_ints(list(range(10, 10 + asked["prompt"])))
        self.pending = [self.sampling.sample(prompt=prompt, num_samples=1, sampling_params=parameters)
                        for _ in range(asked["count"])]
        return {}

    def sample(self, asked):
        """Submits samples all at once, and waits for all of them."""
        begin, cpu = time.monotonic(), time.process_time()
        self.submit(asked)
        tokens = sum(len(one.result().sequences[0].tokens) for one in self.pending)
        return dict(seconds=time.monotonic() - begin, cpu_seconds=time.process_time() - cpu, tokens=tokens)

    def cancel(self, _):
        cancelled = sum(one.cancel() for one in self.pending)
        return dict(cancelled=cancelled)


def main():
    client = Client()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(client, asked["op"])(asked)
        except Exception as error:  # the other side prints it and ends
            answer = dict(error=f"{type(error).__name__}: {error}")
        print(json.dumps(answer), flush=True)


main()
