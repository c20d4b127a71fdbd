#!/usr/bin/env python3
"""Transformers + PEFT behind the same lines of JSON as tuft_engine_runner, for bench/run.py. Needs torch, transformers
and peft; `--check` says by its exit code whether they are there."""
import argparse
import json
import os
import resource
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


OPTIONS = parse()
os.environ.setdefault("OMP_NUM_THREADS", str(OPTIONS.threads))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

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


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    def __init__(self):
        self.wall, self.cpu = time.monotonic(), cpu_seconds()

    def stop(self):
        return {"seconds": time.monotonic() - self.wall, "cpu_seconds": cpu_seconds() - self.cpu}


class Runner:
    def __init__(self, options):
        torch.set_num_threads(options.threads)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
        self.base = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype,
                                                                      attn_implementation="sdpa")
        self.vocab = self.base.config.vocab_size
        self.options, self.model, self.rank = options, None, None

    def hello(self, _):
        return {"program": "transformers + peft", "dtype": self.options.dtype, "threads": torch.get_num_threads(),
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__,
                             "peft": peft.__version__},
                "parameters": sum(p.numel() for p in self.base.parameters())}

    def adapt(self, rank):
        """A fresh adapter on every linear layer and lm_head: A random, B zero. Rank 0 is the base model."""
        if self.rank != rank:
            if self.model is not None:
                self.base = self.model.unload()
            self.model, self.rank = None, rank
            if rank:
                config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                         "down_proj", "lm_head"])
                self.model = peft.get_peft_model(self.base, config)
        if rank:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    if "lora_B" in name:
                        parameter.zero_()
        return self.model if rank else self.base

    def batches(self, lengths, micro_batch):
        """Right-padded batches of neighbours in length, which wastes least."""
        stream = Tokens(self.vocab)
        data = sorted((stream.take(length + 1) for length in lengths), key=len)
        for start in range(0, len(data), micro_batch):
            rows = data[start:start + micro_batch]
            longest = max(map(len, rows)) - 1
            tokens = torch.zeros(len(rows), longest, dtype=torch.long)
            targets, weights = tokens.clone(), torch.zeros(len(rows), longest)
            for index, row in enumerate(rows):
                tokens[index, :len(row) - 1] = torch.tensor(row[:-1])
                targets[index, :len(row) - 1] = torch.tensor(row[1:])
                weights[index, :len(row) - 1] = 1.0
            padded = bool((weights == 0).any())
            yield tokens, targets, weights, weights.long() if padded else None

    def train(self, asked):
        model = self.adapt(asked["rank"]).train()
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0, fused=True)
        batches = list(self.batches(asked["lengths"], asked["micro_batch"]))
        first_loss, tokens, watch = None, 0, Stopwatch()
        for _ in range(asked["steps"]):
            total = 0.0
            for ids, targets, weights, mask in batches:
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
                losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
                loss = (losses * weights.flatten()).sum()
                loss.backward()
                total += float(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            first_loss = total if first_loss is None else first_loss
            tokens += sum(asked["lengths"])
        return {**watch.stop(), "tokens": tokens, "loss": first_loss}

    def decode(self, asked):
        model, stream = self.adapt(asked["rank"]).eval(), Tokens(self.vocab)
        prompt = torch.tensor([stream.take(asked["prompt"]) for _ in range(asked["batch"])])
        with torch.inference_mode():
            out = model(input_ids=prompt, use_cache=True, logits_to_keep=1)
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            watch = Stopwatch()
            for _ in range(asked["new_tokens"] - 1):
                out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
                logits = out.logits[:, -1]
                token = logits.argmax(-1, keepdim=True)
                # The engine returns the log-probability of every token; so does this.
                torch.log_softmax(logits.float(), -1).gather(1, token)
            result = watch.stop()
        return {**result, "tokens": asked["batch"] * (asked["new_tokens"] - 1)}


def main():
    if OPTIONS.check:
        return
    transformers.logging.set_verbosity_error()
    runner = Runner(OPTIONS)
    answers = {"hello": runner.hello, "train": runner.train, "decode": runner.decode}
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answers[asked["op"]](asked)), flush=True)


if __name__ == "__main__":
    main()
