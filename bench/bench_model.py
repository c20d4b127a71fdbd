"""Random Llamas for benchmarks, written with the standard library only. The speed does not depend on the
values of the weights, as long as they are normal numbers."""
import array
import json
import math
import pathlib
import random
import struct

SIZES = {
    # Larger than the caches of small machines, and small enough to train for a minute on two cores.
    "mini": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                 num_key_value_heads=8, head_dim=64, vocab_size=8192),
    # The shape of Llama 3.2 1B, in bf16: 2.5 GB. For the suite gpu.
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, head_dim=64, vocab_size=128256, torch_dtype="bfloat16"),
}
WIDTHS = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}


def shapes(size):
    hidden, inner = size["hidden_size"], size["intermediate_size"]
    queries = size["num_attention_heads"] * size["head_dim"]
    keys = size["num_key_value_heads"] * size["head_dim"]
    yield "model.embed_tokens.weight", (size["vocab_size"], hidden)
    for layer in range(size["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name, shape in (("q", (queries, hidden)), ("k", (keys, hidden)), ("v", (keys, hidden)),
                            ("o", (hidden, queries))):
            yield f"{prefix}self_attn.{name}_proj.weight", shape
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            yield f"{prefix}mlp.{name}_proj.weight", shape
    yield "model.norm.weight", (hidden,)


def numbers(values, dtype):
    """Returns the values as they are stored. A bf16 number is the upper half of an f32 number."""
    wide = array.array("f", values)
    return wide if dtype == "F32" else array.array("H", memoryview(wide.tobytes()).cast("H")[1::2])


def write_tensors(path, size):
    dtype, width = WIDTHS[size.get("torch_dtype", "float32")]
    # Slices of one pool of normal numbers, because drawing every weight separately would take a minute.
    source = random.Random(1)
    pool = [source.gauss(0.0, 1.0) for _ in range(1 << 20)]
    header, offset, all_shapes = {"__metadata__": {"format": "pt"}}, 0, list(shapes(size))
    for name, shape in all_shapes:
        count = math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + width * count]}
        offset += width * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    scaled_pools = {}
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in all_shapes:
            count = math.prod(shape)
            if len(shape) == 1:
                numbers([1.0] * count, dtype).tofile(file)
                continue
            scale = 0.02 if "embed" in name else 1.0 / math.sqrt(shape[1])
            if scale not in scaled_pools:
                scaled_pools[scale] = numbers([scale * value for value in pool], dtype)
            scaled = scaled_pools[scale]
            while count > 0:
                start = source.randrange(len(pool) // 2)
                piece = scaled[start:start + count]
                piece.tofile(file)
                count -= len(piece)


def make(directory, name="mini"):
    directory, size = pathlib.Path(directory), SIZES[name]
    config = dict(dict(torch_dtype="float32"), **size, architectures=["LlamaForCausalLM"], model_type="llama",
                  hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None,
                  max_position_embeddings=8192, tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
                  bos_token_id=None, eos_token_id=None)
    text = json.dumps(config, indent=2) + "\n"
    if (directory / "config.json").exists() and (directory / "config.json").read_text() == text:
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / "model.safetensors", size)
    (directory / "config.json").write_text(text)
    return directory


def counts(name="mini"):
    """Returns the number of weights that every token is multiplied by, by place."""
    size = SIZES[name]
    linear = sum(math.prod(shape) for tensor, shape in shapes(size) if len(shape) == 2 and "embed" not in tensor)
    return {"linear": linear, "head": size["vocab_size"] * size["hidden_size"], **size}
