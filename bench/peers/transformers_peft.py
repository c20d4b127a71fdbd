#!/usr/bin/env python3
"""Transformers + PEFT with the JSON protocol of tuft_engine_runner, for bench/run.py. Needs torch, transformers and
peft; the exit code of `--check` tells whether they are installed."""
import argparse
import os
import time

import lines


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


OPTIONS = parse()
os.environ.setdefault("OMP_NUM_THREADS", str(OPTIONS.threads))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.generation.configuration_utils import ContinuousBatchingConfig  # noqa: E402

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
# Tokens per page of the KV cache in continuous batching. Its attention on a CPU reads every page of the cache, so it
# gets only as many pages as the requests need.
PAGE = 32


class Clock(transformers.generation.StoppingCriteria):
    """Records when generate() had each token."""

    def __init__(self):
        self.times = []

    def __call__(self, ids, scores, **_):
        self.times.append(time.monotonic())
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)


class Runner:
    def __init__(self, options):
        torch.set_num_threads(options.threads)
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
        self.options, self.model, self.rank, self.optimizers = options, None, None, {}
        self.on_gpu = options.device != "cpu"
        self.base = self.load()
        self.vocab = self.base.config.vocab_size

    def load(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.options.model, dtype=self.dtype,
                                                                 attn_implementation="sdpa").to(self.options.device)

    def wait(self):
        """Waits until the device has done all work, so that a stopwatch counts it."""
        if self.on_gpu:
            torch.cuda.synchronize(self.options.device)

    def release(self, _):
        """Returns the memory that is kept for later requests to the device, which other programs use, too."""
        if self.on_gpu:
            torch.cuda.empty_cache()
        return {}

    def hello(self, _):
        return {"program": "transformers + peft", "dtype": self.options.dtype, "threads": torch.get_num_threads(),
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__,
                             "peft": peft.__version__}}

    def adapt(self, rank, adapters):
        """Makes new adapters "0", "1", ... on every linear layer and lm_head: A random, B zero."""
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, task_type="CAUSAL_LM",
                                 target_modules=TARGETS)
        if self.rank != rank:
            if self.model is not None:
                self.base = self.model.unload()
            self.model, self.rank = peft.get_peft_model(self.base, config, adapter_name="0"), rank
        held = len(self.model.peft_config)
        for number in range(held, adapters):
            self.model.add_adapter(str(number), config)
        for number in range(adapters, held):
            self.model.delete_adapter(str(number))
            self.optimizers.pop(number, None)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()
        return self.model

    def batches(self, lengths, micro_batch):
        """Returns right-padded batches of sequences with similar lengths, which need the least padding."""
        stream = lines.Tokens(self.vocab)
        data = sorted((stream.take(length + 1) for length in lengths), key=len)
        for start in range(0, len(data), micro_batch):
            rows = data[start:start + micro_batch]
            longest = max(map(len, rows)) - 1
            tokens = torch.zeros(len(rows), longest, dtype=torch.long)
            targets, weights, mask = tokens.clone(), torch.zeros(len(rows), longest), tokens.clone()
            for index, row in enumerate(rows):
                count = len(row) - 1
                tokens[index, :count] = torch.tensor(row[:-1])
                targets[index, :count] = torch.tensor(row[1:])
                weights[index, :count] = torch.tensor(lines.loss_weights(count))
                mask[index, :count] = 1
            yield [part if part is None else part.to(self.options.device)
                   for part in (tokens, targets, weights, None if mask.all() else mask)]

    def optimizer(self, number):
        """Returns the optimizer with moments of zero. It keeps its memory, so that no first step is measured."""
        if number not in self.optimizers:
            self.model.set_adapter(str(number))
            parameters = [p for p in self.model.parameters() if p.requires_grad]
            self.optimizers[number] = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-12,
                                                        weight_decay=0.0, fused=True)
        lines.forget_moments(self.optimizers[number])
        return self.optimizers[number]

    def forward_backward(self, batches):
        total = 0.0
        for ids, targets, weights, mask in batches:
            logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            loss = (losses * weights.flatten()).sum()
            loss.backward()
            total += float(loss.detach())
        return total

    def train_tenants(self, asked):
        """Trains one tenant after the other, because only one adapter is active at a time."""
        tenants = asked["tenants"]
        self.adapt(asked["rank"], len(tenants)).train()
        optimizers = [self.optimizer(number) for number in range(len(tenants))]
        batches = [list(self.batches(lengths, asked["micro_batch"])) for lengths in tenants]
        first_loss, watch = 0.0, lines.Stopwatch()
        for step in range(asked["steps"]):
            for number, of_tenant in enumerate(batches):
                self.model.set_adapter(str(number))
                loss = self.forward_backward(of_tenant)
                optimizers[number].step()
                optimizers[number].zero_grad()
                first_loss += loss if step == 0 else 0.0
        self.wait()
        return {**watch.stop(), "tokens": asked["steps"] * sum(map(sum, tenants)), "loss": first_loss}

    def fairness(self, asked):
        self.adapt(asked["rank"], asked["light"] + 1).train()

        def train(tenant, lengths):
            self.model.set_adapter(str(tenant))
            self.forward_backward(self.batches(lengths, asked["micro_batch"]))

        return lines.serve_fifo(asked, train)

    def sample(self, asked):
        """`way`: "generate" and "loop" (forward() without the other work of generate()) run all sequences as one batch
        if they have one adapter, else one batch per adapter; "mixed" is "loop" with PEFT's adapter_names, one batch of
        all adapters."""
        adapters = asked["adapters"]
        self.adapt(asked["rank"], adapters).eval()
        stream = lines.Tokens(self.vocab)
        prompts = [stream.take(asked["prompt"]) for _ in range(asked["batch"])]
        owners = [str(index % adapters) for index in range(len(prompts))]
        mixed = asked["way"] == "mixed"
        groups = [list(range(len(prompts)))] if mixed else [
            [index for index, owner in enumerate(owners) if owner == adapter] for adapter in dict.fromkeys(owners)]
        times = [[] for _ in prompts]
        first_tokens = [0] * len(prompts)
        watch = lines.Stopwatch()
        with torch.inference_mode():
            for group in groups:
                ids = torch.tensor([prompts[index] for index in group], device=self.options.device)
                if mixed:
                    moments, first = self.loop(ids, asked["new_tokens"], adapter_names=owners)
                else:
                    self.model.set_adapter(owners[group[0]])
                    moments, first = getattr(self, asked["way"])(ids, asked["new_tokens"])
                for row, index in enumerate(group):
                    times[index], first_tokens[index] = moments, int(first[row])
        return {**watch.stop(), "tokens": asked["batch"] * asked["new_tokens"], "first_tokens": first_tokens,
                **lines.token_times(watch.wall, times)}

    def generate(self, ids, new_tokens):
        clock = Clock()
        out = self.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0,
                                  stopping_criteria=transformers.StoppingCriteriaList([clock]))
        return clock.times, out[:, ids.shape[1]]

    def loop(self, ids, new_tokens, **more):
        times, first, cache = [], None, None
        for _ in range(new_tokens):
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, **more)
            logits, cache = out.logits[:, -1], out.past_key_values
            ids = logits.argmax(-1, keepdim=True)
            # The engine returns the log-probability of every token, so compute it here too.
            torch.log_softmax(logits.float(), -1).gather(1, ids)
            self.wait()
            times.append(time.monotonic())
            first = ids[:, 0] if first is None else first
        return times, first

    def paging(self, asked, sequences):
        """Returns the settings of continuous batching that are best on the device."""
        tokens = asked["prompt"] + asked["new_tokens"]
        if self.on_gpu:
            return dict(num_blocks=-(-tokens // 256) * sequences + 2, return_logprobs=True,
                        use_cuda_graph=asked["way"] == "graphs")
        return dict(page_size=PAGE, num_blocks=-(-tokens // PAGE) * sequences + 2, use_cuda_graph=False,
                    use_async_batching=False)

    def continuous(self, asked):
        """Runs Transformers' continuous batching. All requests share one adapter, which is active in the model."""
        model = self.adapt(asked["rank"], 1).eval()
        model.set_adapter("0")
        stream = lines.Tokens(self.vocab)
        prompts = [stream.take(asked["prompt"]) for _ in range(asked["batch"])]
        config = ContinuousBatchingConfig(max_batch_tokens=asked["batch_tokens"], **self.paging(asked, len(prompts)))
        generation = transformers.GenerationConfig(max_new_tokens=asked["new_tokens"], do_sample=False, eos_token_id=-1,
                                                   pad_token_id=0)
        watch = lines.Stopwatch()
        out = model.get_base_model().generate_batch(prompts, generation_config=generation, warmup=self.on_gpu,
                                                    continuous_batching_config=config, record_timestamps=True)
        answer = watch.stop()
        if any(len(one.generated_tokens) != asked["new_tokens"] for one in out.values()) or len(out) != len(prompts):
            raise RuntimeError("continuous batching did not generate all tokens")
        # Uses the times of the requests, so that starting and stopping the loop does not count.
        begin = min(one.created_time for one in out.values())
        end = max(one.timestamps[-1] for one in out.values())
        return {**answer, "seconds": end - begin, "tokens": asked["batch"] * asked["new_tokens"],
                "first_tokens": [one.generated_tokens[0] for one in out.values()],
                **lines.token_times(begin, [one.timestamps for one in out.values()])}


def main():
    if OPTIONS.check:
        return
    transformers.logging.set_verbosity_error()
    runner = Runner(OPTIONS)
    lines.serve({"hello": runner.hello, "release": runner.release, "train_tenants": runner.train_tenants,
                 "fairness": runner.fairness, "sample": runner.sample, "continuous": runner.continuous})


if __name__ == "__main__":
    main()
