#!/usr/bin/env python3
"""Makes tests/parity/data: tiny random models and the numbers that Transformers + PEFT compute from them.

Run by hand when a case is added; the result is committed. Needs torch, transformers >= 5, peft, safetensors.

    python3 tests/parity/make_parity_data.py [--only CASE]

Each case is a folder:
    model/                  a Hugging Face model directory
    adapter/                a LoRA adapter as PEFT saves it (rank 4, alpha 8, every linear layer and lm_head)
    reference.json          token sequences, loss inputs, losses, greedy tokens, AdamW settings and norms
    reference.safetensors   logits, log-probabilities, LoRA gradients, adapter after ten AdamW steps

Weights are rounded to the type of the file first; all numbers are then computed from those values. "Exact" numbers
come from a float64 model. Transformers itself rounds norms, rotary tables and softmax to float32 there, so they are
good to about 1e-7 relative, an order of magnitude below the tolerances of the test.
"""
import argparse
import json
import math
import pathlib
import shutil

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent / "data"
RANK, ALPHA = 4, 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
LENGTHS = [1, 5, 17, 33, 150]
LOGITS_OF = 2  # the sequence whose logits are stored completely
ADAM = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.01}
ADAM_STEPS = 10

# Sizes are odd where a format allows it, so that kernels have remainders.
SIZES = dict(vocab_size=61, hidden_size=40, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
             bos_token_id=None, eos_token_id=2, pad_token_id=None)

CASES = {
    "llama_plain": dict(
        config=lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=False, rope_parameters=dict(
            rope_type="default", rope_theta=10000.0)),
        dtype=torch.float32, importance_gradients=True),
    "llama3_rope": dict(
        config=lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=False, rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
        dtype=torch.bfloat16, old_config=True),
    "llama_linear_bias": dict(
        config=lambda: transformers.LlamaConfig(**{**SIZES, "num_attention_heads": 2, "num_key_value_heads": 1},
            tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=dict(
            rope_type="linear", rope_theta=10000.0, factor=2.5)),
        dtype=torch.float16),
    "qwen2_tied": dict(
        config=lambda: transformers.Qwen2Config(**{**SIZES, "hidden_size": 48, "num_attention_heads": 3,
            "num_key_value_heads": 1}, tie_word_embeddings=True, rope_parameters=dict(
            rope_type="default", rope_theta=1000000.0)),
        dtype=torch.float16, old_config=True, drop=["head_dim"]),
    "qwen3_untied": dict(
        config=lambda: transformers.Qwen3Config(**SIZES, tie_word_embeddings=False, rope_parameters=dict(
            rope_type="default", rope_theta=1000000.0)),
        dtype=torch.bfloat16, shard="20KB", embeddings_in_adapter=True),
    "qwen3_tied_yarn": dict(
        config=lambda: transformers.Qwen3Config(**SIZES, tie_word_embeddings=True, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)),
        dtype=torch.bfloat16),
}


def randomise(model, generator):
    """Sets weights for which every part matters: logits of some nats, norms and biases different from 1 and 0."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1.0 + 0.2 * noise
        elif name.endswith("bias"):
            parameter.data = 0.3 * noise
        elif "embed_tokens" in name:
            parameter.data = 0.4 * noise
        elif "lm_head" in name:
            parameter.data = 1.5 * noise / math.sqrt(parameter.shape[1])
        else:
            parameter.data = noise / math.sqrt(parameter.shape[1])


def write_old_config(directory, drop):
    """Writes config.json as most models on the Hub have it: top-level rope_theta and rope_scaling, torch_dtype."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    for key in drop:
        config.pop(key, None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def save_model(case, directory, generator):
    model = transformers.AutoModelForCausalLM.from_config(case["config"](), attn_implementation="eager")
    randomise(model, generator)
    model.tie_weights()
    model = model.to(case["dtype"])
    model.save_pretrained(directory, max_shard_size=case.get("shard", "1GB"))
    if case.get("old_config"):
        write_old_config(directory, case.get("drop", []))


def load_model(directory, adapter, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(dtype)
        parameter.requires_grad_("lora_" in name)
    return model.eval()


def save_adapter(model_directory, directory, generator, with_embeddings):
    """with_embeddings: includes the base embeddings, as PEFT does by default if lm_head is a target."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_directory, dtype=torch.float32)
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0, bias="none",
                             task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(directory, save_embedding_layers="auto" if with_embeddings else False)
    (directory / "README.md").unlink(missing_ok=True)
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = model_directory.parent.name
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def lora_tensors(model, of=lambda p: p):
    return {name.replace(".default", ""): of(parameter).detach().to(torch.float32).contiguous().clone()
            for name, parameter in model.named_parameters() if "lora_" in name}


def logprobs_of(model, tokens, targets):
    """Returns log p(target) of every position in float64. `targets` is [N] or [N, K]."""
    logits = model(input_ids=torch.tensor([tokens])).logits[0].double()
    wanted = torch.tensor(targets)
    if wanted.dim() == 1:
        return torch.log_softmax(logits, -1).gather(1, wanted[:, None])[:, 0]
    return torch.log_softmax(logits, -1).gather(1, wanted)


def cross_entropy(model, datum):
    return -(logprobs_of(model, datum["tokens"], datum["targets"]) * torch.tensor(datum["weights"]).double()).sum()


def importance_sampling(model, datum):
    ratio = torch.exp(logprobs_of(model, datum["tokens"], datum["targets"]) - torch.tensor(datum["logprobs"]).double())
    return -(ratio * torch.tensor(datum["advantages"]).double()).sum()


def gradients(model, data, loss):
    model.zero_grad()
    total = sum(loss(model, datum) for datum in data)
    total.backward()
    return float(total.detach()), lora_tensors(model, lambda p: p.grad)


def as_f32(values):
    return [float(np.float32(value)) for value in values]


def make_data(model, vocab, random):
    data = []
    for index, length in enumerate(LENGTHS):
        tokens = random.integers(0, vocab, length + 1).tolist()
        weights = np.where(random.random(length) < 0.3, 0.0, random.random(length) * 1.5)
        if index == 1:
            weights[2] = -0.75
        datum = dict(tokens=tokens[:-1], targets=tokens[1:], weights=as_f32(weights))
        if index == 0:
            datum["weights"] = [1.0]
        with torch.no_grad():
            exact = logprobs_of(model, datum["tokens"], datum["targets"]).numpy()
        datum["logprobs"] = as_f32(exact + 0.15 * random.standard_normal(length))
        datum["advantages"] = as_f32(random.standard_normal(length))
        data.append(datum)
    return data


def make_soft_datum(vocab, random):
    targets = random.integers(0, vocab, (9, 3))
    weights = random.random((9, 3))
    return dict(tokens=random.integers(0, vocab, 9).tolist(), targets=targets.tolist(),
                weights=[as_f32(row) for row in weights])


def greedy(model, vocab, random, count=20):
    """Returns a greedy continuation in which each best token leads clearly, so that rounding cannot change it."""
    while True:
        run = continue_greedily(model, random.integers(0, vocab, 7).tolist(), count)
        if run["margin"] > 0.02 and SIZES["eos_token_id"] not in run["tokens"]:
            return run


def continue_greedily(model, prompt, count):
    tokens, logprobs, margin = list(prompt), [], math.inf
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([tokens])).logits[0, -1].double()
            best = torch.topk(logits, 2).values
            margin = min(margin, float(best[0] - best[1]))
            tokens.append(int(logits.argmax()))
            logprobs.append(float(torch.log_softmax(logits, -1)[tokens[-1]]))
    return dict(prompt=list(prompt), tokens=tokens[len(prompt):], logprobs=logprobs, margin=margin)


def adam_run(model, data, clip):
    """Runs ten rounds of forward_backward (cross_entropy over all data) and optim_step."""
    parameters = [p for n, p in model.named_parameters() if "lora_" in n]
    optimizer = torch.optim.AdamW(parameters, lr=ADAM["learning_rate"], betas=(ADAM["beta1"], ADAM["beta2"]),
                                  eps=ADAM["eps"], weight_decay=ADAM["weight_decay"])
    losses, norms = [], []
    for _ in range(ADAM_STEPS):
        losses.append(gradients(model, data, cross_entropy)[0])
        limit = clip if clip > 0 else math.inf
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, limit)))
        optimizer.step()
    return losses, norms, lora_tensors(model)


def make_case(name, seed):
    case, directory = CASES[name], ROOT / name
    shutil.rmtree(directory, ignore_errors=True)
    generator, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    save_model(case, directory / "model", generator)
    save_adapter(directory / "model", directory / "adapter", generator, case.get("embeddings_in_adapter", False))

    def fresh(dtype):
        return load_model(directory / "model", directory / "adapter", dtype)

    exact, single = fresh(torch.float64), fresh(torch.float32)
    vocab = exact.config.vocab_size
    data, soft = make_data(exact, vocab, random), make_soft_datum(vocab, random)
    tensors, reference = {}, dict(rank=RANK, alpha=ALPHA, data=data, soft=soft, logits_of=LOGITS_OF, adam=dict(ADAM))
    with torch.no_grad():
        sequence = torch.tensor([data[LOGITS_OF]["tokens"]])
        tensors["logits.adapter"] = exact(input_ids=sequence).logits[0].float()
        error = (single(input_ids=sequence).logits[0] - tensors["logits.adapter"]).abs().max()
        reference["f32_logits_error"] = float(error)
        with exact.disable_adapter():
            tensors["logits.base"] = exact(input_ids=sequence).logits[0].float()
            reference["greedy_base"] = greedy(exact, vocab, random)
        for index, datum in enumerate(data):
            tensors[f"logprobs.{index}"] = logprobs_of(exact, datum["tokens"], datum["targets"]).float()
        tensors["logprobs.soft"] = logprobs_of(exact, soft["tokens"], soft["targets"]).float()
    reference["greedy"] = greedy(exact, vocab, random)

    reference["cross_entropy"], grads = gradients(exact, data, cross_entropy)
    tensors |= {f"grad.cross_entropy.{key}": value for key, value in grads.items()}
    norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads.values()))
    reference["importance_sampling"], grads = gradients(exact, data, importance_sampling)
    if case.get("importance_gradients"):
        tensors |= {f"grad.importance_sampling.{key}": value for key, value in grads.items()}
    reference["cross_entropy_soft"] = float(cross_entropy(exact, soft).detach())

    reference["adam"]["grad_clip_norm"] = 0.97 * norm  # clips the first steps, not the last ones
    losses, norms, final = adam_run(fresh(torch.float64), data, reference["adam"]["grad_clip_norm"])
    reference["adam"] |= dict(losses=losses, grad_norms=norms)
    tensors |= {f"adam.{key}": value for key, value in final.items()}
    f32_losses, f32_norms, f32_final = adam_run(fresh(torch.float32), data, reference["adam"]["grad_clip_norm"])
    # The final difference of PyTorch's own float32 and float64 runs: a lower bound of the test's AdamW tolerance.
    reference["adam"]["f32_max_difference"] = max(float((f32_final[k] - final[k]).abs().max()) for k in final)
    reference["made_with"] = dict(torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__)
    save_file(tensors, directory / "reference.safetensors")
    for path in directory.rglob("*.safetensors"):
        path.chmod(0o644)
    (directory / "reference.json").write_text(json.dumps(reference, sort_keys=True) + "\n")
    print(f"{name}: f32 logits error {reference['f32_logits_error']:.1e}, adam f32 difference "
          f"{reference['adam']['f32_max_difference']:.1e}, margins {reference['greedy']['margin']:.3f} "
          f"{reference['greedy_base']['margin']:.3f}, norms {norms[0]:.2f} .. {norms[-1]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted(CASES))
    only = parser.parse_args().only
    torch.set_num_threads(1)
    for index, name in enumerate(CASES):
        if only in (None, name):
            make_case(name, 1000 + 7 * index)


if __name__ == "__main__":
    main()
