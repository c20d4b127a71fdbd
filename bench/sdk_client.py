#!/usr/bin/env python3
"""Drives a server through the Tinker SDK for bench/run.py, one line of JSON in and one out. Requires an interpreter
with tinker, and TINKER_BASE_URL and TINKER_API_KEY in the environment."""
import json
import sys
import time

import tinker
from tinker import types


class Client:
    def __init__(self):
        self.service = tinker.ServiceClient()
        self.training = self.service.create_lora_training_client(base_model="bench", rank=16)
        self.sampling = None

    def data(self, lengths, vocab=256):
        data, token = [], 1
        for length in lengths:
            tokens = []
            for _ in range(length + 1):
                token = (token * 75 + 74) % 65537
                tokens.append(token % vocab)
            data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                                    loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * length}))
        return data

    def train(self, asked):
        data = self.data(asked["lengths"])
        begin = time.monotonic()
        for _ in range(asked["steps"]):
            forward = self.training.forward_backward(data, "cross_entropy")
            step = self.training.optim_step(types.AdamParams(learning_rate=1e-4))
            forward.result()
            step.result()
        return dict(seconds=time.monotonic() - begin, tokens=asked["steps"] * sum(asked["lengths"]))

    def decode(self, asked):
        if self.sampling is None:
            self.sampling = self.training.save_weights_and_get_sampling_client()
        parameters = types.SamplingParams(max_tokens=asked["new_tokens"], temperature=1.0, seed=1)
        prompt = types.ModelInput.from_ints(list(range(10, 10 + asked["prompt"])))
        begin = time.monotonic()
        result = self.sampling.sample(prompt=prompt, num_samples=asked["batch"], sampling_params=parameters).result()
        return dict(seconds=time.monotonic() - begin, tokens=sum(len(one.tokens) for one in result.sequences))

    def publish(self, asked):
        """Measures from optim_step to the first token of a sampling client that has its weights."""
        self.training.forward_backward(self.data([asked["length"]]), "cross_entropy").result()
        prompt = types.ModelInput.from_ints(list(range(10, 10 + asked["prompt"])))
        begin = time.monotonic()
        step = self.training.optim_step(types.AdamParams(learning_rate=1e-4))
        sampling = self.training.save_weights_and_get_sampling_client()
        published = time.monotonic()
        sampling.sample(prompt=prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=1)).result()
        end = time.monotonic()
        step.result()
        return dict(seconds=end - begin, publish_ms=1e3 * (published - begin), first_token_ms=1e3 * (end - published))


def main():
    client = Client()
    answers = {"train": client.train, "decode": client.decode, "publish": client.publish}
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answers[asked["op"]](asked)), flush=True)


if __name__ == "__main__":
    main()
