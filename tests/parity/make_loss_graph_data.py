#!/usr/bin/env python3
"""Writes tests/parity/data/loss_graph/cases.jsonl: custom losses, traced and encoded by the Tinker SDK, with the loss,
gradient and metrics that torch computes for one datum in float64. Run it with an interpreter that has `torch`, `numpy` and
`tinker` 0.38; their versions are in the first line. Each other line is a case:
{"inputs": [{"name", "rank", "shape", "data": floats, or "ints": integers}], "graph": as uploaded, "loss": number,
"gradient": by logprobs, "metrics": {name: number}}.

The first cases are losses that people write; the others are random programs."""
import json
import math
import pathlib
import random

import numpy
import tinker
import torch
from tinker.lib.public_interfaces import custom_loss

OUT = pathlib.Path(__file__).resolve().parent / "data" / "loss_graph" / "cases.jsonl"
SEED, RANDOM_CASES = 20261123, 360
MODULES = {"torch": torch, "math": math, "F": torch.nn.functional}

# Bodies of losses. p is logprobs, q the sampler's, a advantages, w weights, tau a number, ids integers, k a second dimension.
WRITTEN = [
    ("p w", "return -(w * p).sum(), {}"),
    ("p q a", "r = torch.exp(p - q)\nreturn -torch.minimum(r * a, torch.clamp(r, 0.8, 1.2) * a).sum(), {'custom/ratio:mean': r.mean(), 'custom/kl:sum': (q - p).sum()}"),
    ("p q a tau", "r = (p - q).exp()\nkl = r - 1 - (p - q)\nreturn -(r.detach().clip(max=2.0) * a * p).sum() + tau * kl.sum(), {'custom/clipped:mean': (r > 2.0).float().mean()}"),
    ("p q a", "n = p.shape[0]\nreturn -((p - q).exp() * a).sum() / n, {'custom/n:sum': (p * 0 + n).amax()}"),
    ("p q w tau", "m = w > 0\nd = torch.where(m, p - q, torch.zeros_like(p))\nreturn (d ** 2).sum() * tau, {'custom/tokens:sum': m.sum()}"),
    ("p q tau", "return -torch.nn.functional.logsigmoid(tau * (p.sum() - q.sum())), {'custom/margin:mean': p.sum() - q.sum()}"),
    ("p q tau", "return torch.nn.functional.softplus(-(p - q) * tau).mean(), {}"),
    ("p a", "g = torch.cumsum(a.flip(0), dim=0).flip(0)\nb = g - g.mean()\nreturn -(p * (b / (b.std() + 1e-6))).sum(), {'custom/return:mean': g[0]}"),
    ("p q a w", "s = ((p - q).detach() * w).sum() / w.sum().clamp(min=1.0)\nr = torch.exp(s + p - p.detach())\nreturn -torch.min(r * a, r.clamp(0.9, 1.1) * a).sum(), {'custom/s:mean': s}"),
    ("p q", "d = p.unsqueeze(0) - q.unsqueeze(1)\nreturn torch.relu(1.0 - d).mean() + torch.tril(d).sum() * 0.1, {}"),
    ("p ids", "one = (ids == 2).float()\nreturn -(one * p).sum() + p[ids % p.shape[0]].mean(), {'custom/twos:sum': one.sum()}"),
    ("P Q", "return (Q.exp() * (Q - P)).sum(), {'custom/kl:mean': (Q.exp() * (Q - P)).sum(-1).mean()}"),
    ("P w", "lse = torch.logsumexp(P, dim=-1)\nreturn (w * lse).sum(), {'custom/best:sum': P.max(dim=1).values.sum()}"),
    ("P ids", "top = P.max(dim=-1)[0]\nchosen = torch.gather(P, 1, (ids % P.shape[1]).unsqueeze(1)).squeeze(1)\nreturn (top - chosen).sum(), {'custom/same:mean': (P.argmax(dim=1) == ids).float().mean()}"),
    ("P a tau", "s = torch.softmax(P / tau, dim=1)\nreturn -(s * torch.log_softmax(P, dim=1)).sum() + (a * P[:, 0]).sum(), {}"),
    ("p w", "x = p[1:] - p[:-1]\nreturn x.pow(2).sum() + p[..., -1] + w[::2].sum() * p[0], {}"),
    ("p tau", "return (p * math.sqrt(2.0) + math.log(tau)).sum() / p.numel(), {}"),
    ("p w", "return torch.nn.functional.relu(p + 1).sum() + torch.special.expm1(p * 0.1).sum(), {'custom/w:sum': w.abs().max()}"),
]
NAMES = {"p": ("logprobs", 1), "P": ("logprobs", 2), "q": ("q", 1), "Q": ("q", 2), "a": ("advantages", 1), "w": ("weights", 1),
         "tau": ("tau", 0), "ids": ("ids", 1)}

UNARY = ["torch.exp({0})", "torch.log({0}.abs() + 0.5)", "torch.sigmoid({0})", "{0}.tanh()", "torch.abs({0})", "-{0}",
         "{0}.square()", "torch.sqrt({0}.abs() + 0.25)", "F.softplus({0})", "F.logsigmoid({0})", "torch.relu({0})",
         "torch.log1p({0}.square())", "torch.expm1({0})", "{0}.clamp(-0.5, 0.5)", "{0}.clamp(min=-0.25)", "torch.clip({0}, max=0.3)",
         "{0} ** 2", "{0} * 0.5 + 1", "2 - {0}", "1 / ({0}.square() + 1)", "torch.sign({0}) * {0}", "{0}.detach() * {0}",
         "torch.reciprocal({0}.exp())", "torch.rsqrt({0}.square() + 1)", "{0}.sin()", "torch.cos({0})", "torch.exp2({0})",
         "torch.erf({0})", "torch.where({0} > 0, {0}, {0} * 0.1)", "{0}.masked_fill({0} < -0.5, 0.25)", "torch.floor({0}) + {0}",
         "{0} * ({0} > 0).float()", "torch.round({0}) * {0}", "torch.nan_to_num({0})", "{0}.pow(3)", "torch.zeros_like({0}) + {0}",
         "torch.ones_like({0}) - {0}", "torch.full_like({0}, 0.75) * {0}", "{0}.type_as({0})", "torch.log2({0}.abs() + 1)"]
BINARY = ["{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 0.5)", "torch.minimum({0}, {1})", "torch.maximum({0}, {1})",
          "torch.where({0} > {1}, {0}, {1} * 2)", "torch.logaddexp({0}, {1})", "torch.min({0}, {1})", "torch.max({0}, {1})",
          "torch.lerp({0}, {1}, 0.3)", "({0}.abs() + 0.5) ** {1}", "torch.clamp({0}, min={1})", "torch.add({0}, {1}, alpha=0.5)",
          "torch.remainder({0}, {1}.abs() + 0.5)", "torch.fmod({0}, 0.75) + {1}", "torch.where(({0} > 0) & ({1} < 0), {0}, {1})",
          "torch.where(torch.logical_or({0} > 0, ~({1} > 0)), {0}, {1})"]
VECTOR = ["{0}.cumsum(0)", "torch.softmax({0}, dim=0)", "torch.log_softmax({0}, -1)", "{0}.flip(0)", "{0} - {0}.mean()",
          "{0} / ({0}.std() + 1)", "{0}[::2]", "{0}[1:]", "{0}[:-1]", "{0}.unsqueeze(1)", "{0}[None, :]", "torch.diff({0})",
          "torch.cat([{0}, {0} * 2])", "torch.stack([{0}, {0}.exp()])", "{0}.reshape(-1, 1)", "{0}.view(1, -1)", "{0}[-1]", "{0}[0] + {0}",
          "torch.outer({0}, {0})", "{0}.expand(2, -1)", "{0} * torch.arange({0}.shape[0])", "{0}.max(dim=0).values", "{0}.narrow(0, 0, 2)",
          "{0}[torch.arange({0}.size(0) - 1)]"]
MATRIX = ["{0}.cumsum(0)", "{0}.cumsum(1)", "torch.softmax({0}, dim=1)", "torch.log_softmax({0}, dim=0)", "{0}.sum(0)", "{0}.sum(dim=1)",
          "{0}.mean(-1)", "{0}.mean(dim=0, keepdim=True)", "{0}.logsumexp(1)", "torch.logsumexp({0}, dim=0)", "{0}.amax(1)", "{0}.amin(dim=0)",
          "{0}.max(1).values", "{0}.min(dim=0)[0]", "{0}.t()", "{0}.transpose(0, 1)", "{0}[0]", "{0}[:, 0]", "{0}[1:, ::2]", "{0}[..., -1]",
          "{0}.flip(0)", "{0}.flip(1)", "{0}.flatten()", "{0}.reshape(-1)", "{0}.var(1)", "{0}.std(0, unbiased=False)", "torch.tril({0})",
          "torch.triu({0}, 1)", "{0} @ {0}[0]", "{0}.permute(1, 0)", "torch.cat([{0}, {0}], dim=1)", "torch.stack([{0}[0], {0}[1]], dim=1)",
          "{0}.select(1, 0)", "{0}.T", "torch.gather({0}, 1, {0}.argmax(1, keepdim=True))", "{0}.index_select(1, torch.arange({0}.shape[1]))",
          "{0}.max(dim=1, keepdim=True)[0]", "{0}[{0}.argmin(0)]"]
SCALAR = ["{0}.reshape(1)", "{0}.unsqueeze(0)", "{0}.exp()"]
REDUCE = ["{0}.sum()", "{0}.mean()", "{0}.amax()", "{0}.max()", "{0}.min()", "torch.sum({0} ** 2)", "{0}.var(unbiased=False)",
          "torch.logsumexp({0}.reshape(-1), 0)", "torch.std({0})"]


def number(value):
    return float(f"{value:.9g}")


def draw(rng, shape):
    return numpy.array([round(rng.uniform(-2.0, 1.0), 3) for _ in range(math.prod(shape))], dtype=numpy.float32).reshape(shape)


def double(source):
    """The same in float64, which torch's own names for dtypes would leave."""
    return source.replace(".float()", ".double()").replace("torch.float32", "torch.float64")


def define(params, body):
    lines = "\n".join("    " + line for line in body.split("\n"))
    scope = dict(MODULES)
    exec(f"def loss({', '.join(params)}):\n{lines}\n", scope)
    return scope["loss"]


def case(inputs, body):
    """`inputs`: [(name, rank, array)], logprobs first. Returns None if torch's results are not finite."""
    names = [name for name, _, _ in inputs]
    traced = custom_loss.trace_loss(define(names, body), {name: rank for name, rank, _ in inputs}, "s")
    graph = custom_loss.encode_graph(traced).model_dump()
    tensors = [torch.tensor(array.astype(numpy.float64) if array.dtype == numpy.float32 else array) for _, _, array in inputs]
    tensors[0].requires_grad_(True)
    loss, metrics = define(names, double(body))(*tensors)
    if loss.ndim != 0 or not loss.requires_grad:
        return None
    gradient = torch.autograd.grad(loss, tensors[0], allow_unused=True)[0]
    if gradient is None:
        return None
    values = [loss.item(), *gradient.flatten().tolist(), *(float(value) for value in metrics.values())]
    if not all(math.isfinite(value) and abs(value) < 1e6 for value in values):
        return None
    return {"inputs": [{"name": name, "rank": rank, "shape": list(array.shape),
                        "data" if array.dtype == numpy.float32 else "ints": [
                            round(float(x), 3) if array.dtype == numpy.float32 else int(x) for x in array.flatten()]}
                       for name, rank, array in inputs],
            "graph": graph, "loss": number(loss.item()), "gradient": [number(x) for x in gradient.flatten().tolist()],
            "metrics": {name: number(float(value)) for name, value in metrics.items()}}


def written(rng, parameters, body):
    length, width = rng.randint(4, 7), rng.randint(3, 4)
    inputs = []
    for short in parameters.split():
        name, rank = NAMES[short]
        shape = [(), (length,), (length, width)][rank]
        array = numpy.array(rng.choices(range(5), k=length), dtype=numpy.int64) if short == "ids" else draw(rng, shape)
        if short == "tau":
            array = numpy.array(0.5, dtype=numpy.float32)
        inputs.append((name, rank, array))
    for short in parameters.split():
        name = NAMES[short][0]
        if short != name:
            body = f"{short} = {name}\n" + body
    return case(inputs, body)


def usable(value):
    return (isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.ndim <= 2 and 0 < value.numel() <= 40
            and bool(torch.isfinite(value).all()) and bool((value.abs() < 1e4).all()))


def random_case(rng):
    rank = rng.choice([1, 1, 2])
    length, width = rng.randint(3, 6), rng.randint(2, 4)
    shapes = {"logprobs": (length,) if rank == 1 else (length, width), "x": (length,), "y": rng.choice([(), (length,), (length, width)])}
    if rank == 2:
        shapes["x"] = (length, 1)
    inputs = [(name, len(shape), draw(rng, shape)) for name, shape in shapes.items()]
    scope = dict(MODULES)
    for name, _, array in inputs:
        scope[name] = torch.tensor(array.astype(numpy.float64))
    scope["logprobs"].requires_grad_(True)
    lines, pool = [], list(shapes)
    while len(lines) < rng.randint(4, 12):
        first = rng.choice(pool[-4:] + ["logprobs"])
        kind = rng.random()
        if kind < 0.35:
            template = rng.choice(UNARY)
        elif kind < 0.65:
            template = rng.choice(BINARY)
        else:
            template = rng.choice([SCALAR, VECTOR, MATRIX][scope[first].ndim])
        name = f"v{len(lines)}"
        line = template.format(first, rng.choice(pool[-5:] + ["logprobs"]))
        try:
            value = eval(double(line), scope)
        except (RuntimeError, IndexError, TypeError):
            continue
        if not usable(value):
            continue
        lines.append(f"{name} = {line}")
        scope[name] = value
        pool.append(name)
    depending = [name for name in pool if scope[name].requires_grad]
    terms = [rng.choice(REDUCE).format(name) for name in depending[-3:]]
    metric = rng.choice(REDUCE).format(rng.choice(pool))
    lines.append(f"return {' + '.join(terms)}, {{'custom/m:{rng.choice(['sum', 'mean'])}': {metric}}}")
    return case(inputs, "\n".join(lines))


def main():
    torch.manual_seed(0)
    rng = random.Random(SEED)
    cases = []
    for parameters, body in WRITTEN:
        made = written(rng, parameters, body)
        assert made is not None, body
        cases.append(made)
    while len(cases) < RANDOM_CASES + len(WRITTEN):
        made = random_case(rng)
        if made is not None:
            cases.append(made)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", encoding="utf-8") as out:
        out.write(json.dumps({"torch": torch.__version__, "tinker": tinker.__version__, "seed": SEED, "cases": len(cases)}) + "\n")
        for one in cases:
            out.write(json.dumps(one, separators=(",", ":")) + "\n")


main()
