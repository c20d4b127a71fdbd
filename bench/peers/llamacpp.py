#!/usr/bin/env python3
"""llama.cpp with the JSON protocol of tuft_engine_runner: sampling only. Needs numpy, gguf and llama-cpp-python (its
ctypes bindings; LLAMA_CPP_LIB_PATH may name another build of the library). The exit code of `--check` tells whether
they are installed.

The model is converted to an f32 GGUF file beside it, with the same numbers and a separate head (llama.cpp accepts an
adapter for lm_head only then). Adapters are those of the other peers: A random, B zero, on every linear layer."""
import argparse
import ctypes
import json
import pathlib
import struct
import time

import gguf
import llama_cpp.llama_cpp as llama
import numpy

import lines

LAYER = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def read_tensors(path):
    raw = numpy.memmap(path, mode="r")
    size = struct.unpack("<Q", raw[:8].tobytes())[0]
    for name, entry in json.loads(raw[8:8 + size].tobytes()).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            yield name, raw[begin:end].view("<f4").reshape(entry["shape"])


def neighbours(rows, heads):
    """Reorders rows of q and k: llama.cpp rotates adjacent values, Transformers the halves of a head."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write_model(source, target):
    config = json.loads((source / "config.json").read_text())
    out = gguf.GGUFWriter(str(target), "llama")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("no_vocab")
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, tensor in read_tensors(source / "model.safetensors"):
        if name in OUTER:
            out.add_tensor(OUTER[name], numpy.array(tensor))
            if name == "model.embed_tokens.weight":
                out.add_tensor("output.weight", numpy.array(tensor))
            continue
        _, _, layer, *module, _ = name.split(".")
        part = LAYER[".".join(module)]
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(part)
        tensor = neighbours(tensor, config[heads]) if heads else tensor
        out.add_tensor(f"blk.{layer}.{part}.weight", numpy.array(tensor))
    finish(out)


def write_adapter(source, target, rank):
    """B is zero, so its rows need not be reordered like those of q and k."""
    random, out = numpy.random.default_rng(1), gguf.GGUFWriter(str(target), "llama")
    out.add_type("adapter")
    out.add_string("adapter.type", "lora")
    out.add_float32("adapter.lora.alpha", 2.0 * rank)
    for name, tensor in read_tensors(source / "model.safetensors"):
        if tensor.ndim != 2:
            continue
        _, _, layer, *module, _ = name.split(".") if name not in OUTER else ["", "", "", "", ""]
        place = "output.weight" if name in OUTER else f"blk.{layer}.{LAYER['.'.join(module)]}.weight"
        rows, columns = tensor.shape
        out.add_tensor(place + ".lora_a", random.uniform(-0.05, 0.05, (rank, columns)).astype("f4"))
        out.add_tensor(place + ".lora_b", numpy.zeros((rows, rank), "f4"))
    finish(out)


def finish(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


class Runner:
    def __init__(self, options):
        self.directory, self.threads = pathlib.Path(options.model), options.threads
        self.quiet = llama.llama_log_callback(lambda *_: None)
        llama.llama_log_set(self.quiet, None)
        llama.llama_backend_init()
        path = self.directory / "model.gguf"
        weights = self.directory / "model.safetensors"
        if not path.exists() or path.stat().st_mtime < weights.stat().st_mtime:
            write_model(self.directory, path)
        self.model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.adapters, self.rank = [], None

    def hello(self, _):
        return {"program": "llama.cpp", "threads": self.threads,
                "versions": {"llama-cpp-python": __import__("llama_cpp").__version__},
                "system": llama.llama_print_system_info().decode().strip()}

    def adapt(self, rank, count):
        path = self.directory / f"adapter-{rank}.gguf"
        if not path.exists():
            write_adapter(self.directory, path, rank)
        if self.rank != rank:
            self.adapters, self.rank = [], rank
        while len(self.adapters) < count:
            self.adapters.append(llama.llama_adapter_lora_init(self.model, str(path).encode()))
            if not self.adapters[-1]:
                raise RuntimeError(f"llama.cpp cannot load {path}")

    def context(self, asked):
        settings = llama.llama_context_default_params()
        settings.n_ctx = asked["batch"] * (asked["prompt"] + asked["new_tokens"]) + 32 * asked["batch"]
        settings.n_seq_max = asked["batch"]
        settings.n_batch = settings.n_ubatch = asked["batch_tokens"]
        settings.n_threads = settings.n_threads_batch = self.threads
        settings.type_k = settings.type_v = 0  # f32, like the engine
        settings.kv_unified = True
        context = llama.llama_init_from_model(self.model, settings)
        if not context:
            raise RuntimeError("llama.cpp cannot make a context")
        return context

    def decode(self, context, batch, feeds):
        """`feeds`: (sequence, position, token, wants logits). Returns the most likely next tokens, in order."""
        batch.n_tokens = len(feeds)
        wanted = []
        for index, (sequence, position, token, logits) in enumerate(feeds):
            batch.token[index], batch.pos[index], batch.logits[index] = token, position, logits
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            if logits:
                wanted.append(index)
        if llama.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        found = []
        for index in wanted:
            row = numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, index), shape=(self.vocab,))
            best = int(row.argmax())
            # The engine returns the log-probability of every token, so compute it here too.
            row[best] - numpy.log(numpy.exp(row - row[best]).sum())
            found.append(best)
        return found

    def activate(self, context, number):
        adapters = (llama.llama_adapter_lora_p_ctypes * 1)(self.adapters[number])
        if llama.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0)) != 0:
            raise RuntimeError("llama.cpp does not accept the adapter")

    def sample(self, asked):
        """An adapter is active in a context for all that it decodes. With several adapters every step is one batch for
        each, as in llama-server. adapters 0: the base model."""
        self.adapt(asked["rank"], asked["adapters"])
        stream = lines.Tokens(self.vocab)
        prompts = [stream.take(asked["prompt"]) for _ in range(asked["batch"])]
        count = max(1, asked["adapters"])
        groups = [list(range(start, len(prompts), count)) for start in range(count)]
        times, last, first = [[] for _ in prompts], [0] * len(prompts), []
        context, batch = self.context(asked), llama.llama_batch_init(asked["batch_tokens"], 0, 1)
        try:
            watch = lines.Stopwatch()
            for step in range(asked["new_tokens"]):
                for number, group in enumerate(groups):
                    if asked["adapters"]:
                        self.activate(context, number)
                    feeds = [(index, position, token, position == asked["prompt"] - 1) for index in group
                             for position, token in enumerate(prompts[index])] if step == 0 else [
                        (index, asked["prompt"] + step - 1, last[index], True) for index in group]
                    owners = iter([feed[0] for feed in feeds if feed[3]])
                    for start in range(0, len(feeds), asked["batch_tokens"]):
                        for token in self.decode(context, batch, feeds[start:start + asked["batch_tokens"]]):
                            index = next(owners)
                            last[index] = token
                            times[index].append(time.monotonic())
                first = first or list(last)
            answer = watch.stop()
        finally:
            llama.llama_batch_free(batch)
            llama.llama_free(context)
        return {**answer, "tokens": asked["batch"] * asked["new_tokens"], "first_tokens": first,
                **lines.token_times(watch.wall, times)}


def main():
    options = parse()
    if options.check:
        return
    runner = Runner(options)
    lines.serve({"hello": runner.hello, "sample": runner.sample})


if __name__ == "__main__":
    main()
