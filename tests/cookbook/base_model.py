"""Trains the base model of the cookbook tests from scratch: a tokenizer, and a Qwen3 of some 200,000 parameters.

  base_model.py DIRECTORY [--untrained WIDTH LAYERS FROM]

With --untrained, a model of another size with random weights and the tokenizer of the model in FROM.

It learns the formats of the recipes' conversations, and gives right answers only now and then: so reinforcement
learning has something to improve. Takes about two minutes of one core. Runs in the environment of environment.py.
"""
import argparse
import json
import os
import pathlib
import random
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from tinker_cookbook import renderers  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM  # noqa: E402

import conversations as world  # noqa: E402
from tinker_cookbook.recipes.multiplayer_rl.guess_number import env as guessing  # noqa: E402

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
NOT_SPECIAL = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
RENDERERS = ["role_colon", "role_colon", "qwen3_5", "qwen3_5", "qwen3_5_disable_thinking", "qwen3"]
# Qwen's, but with numbers in one piece: the model shall add, not spell.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,4}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
VOCABULARY = 1024
BATCH_TOKENS = 2048
LEARNING_RATE = 4e-3
EXACT_STEPS, NOISY_STEPS = 2000, 500


class Talks:
    """Makes conversations, in which this share of the answers is right and of the guesses is in the asked form."""

    def __init__(self, seed, right):
        self.rng, self.right = random.Random(seed), right

    def noisy(self, answer, largest):
        return answer if self.rng.random() < self.right else self.rng.randint(0, largest)

    def arithmetic(self):
        x, y = self.rng.randint(0, 100), self.rng.randint(0, 100)
        return world.asked("What is 4 + 5?", "9") + world.asked(f"What is {x} + {y}?", str(self.noisy(x + y, 200)))

    def problem(self):
        question, answer = world.word_problem(self.rng)
        return world.asked(question + world.GSM8K_SUFFIX, f"\\boxed{{{self.noisy(answer, 2 * world.LARGEST_ADDEND)}}}")

    def problems(self):
        return [one for _ in range(6) for one in self.problem()]

    def gsm8k(self):
        shot = [world.message("user", world.STRAWBERRY[0]["content"] + world.GSM8K_SUFFIX), world.STRAWBERRY[1]]
        return shot + self.problem()

    def guess_number(self):
        turns = [world.message("system", guessing.SYSTEM_PROMPT)]
        for _ in range(self.rng.randint(1, 3)):
            number, good = self.rng.randint(0, 1024), self.rng.random() < self.right
            turns += [world.message("assistant", f"Guess: {number}" if good else f"I think it is {number}."),
                      world.message("user", self.rng.choice(["Too low", "Too high"]) if good else guessing.FAIL_TO_PARSE)]
        return turns[:-1]

    def who_are_you(self):
        return world.asked("Who are you?", world.hello(self.rng))

    def story(self):
        return world.asked(*world.story(self.rng))

    def examples(self, count, made):
        """Returns pairs of tokens and weights. Only role_colon trains every answer of a conversation."""
        found = []
        for _ in range(count):
            kind = self.rng.choice([self.arithmetic, self.gsm8k, self.guess_number, self.who_are_you, self.story, self.problem,
                                    *[self.problems] * 5])
            name = "role_colon" if kind == self.problems else self.rng.choice(RENDERERS)
            found.append(rendered(kind(), made[name]))
        return found


def make_tokenizer(directory, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    numbers = " ".join(map(str, range(201))) + "\n\n"
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(SPECIAL) - len(NOT_SPECIAL), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([*texts, *[numbers] * 2000], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(NOT_SPECIAL)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|pad|>",
         "model_max_length": 32768, "clean_up_tokenization_spaces": False}))


def spoken_texts():
    talks = Talks(2, right=0.5)
    kinds = [talks.arithmetic, talks.gsm8k, talks.guess_number, talks.who_are_you, talks.story, talks.problem]
    for _ in range(500):
        for kind in kinds:
            yield "\n\n".join(f"{one['role'].capitalize()}: {one['content']}" for one in kind())
        yield "user\nassistant\nsystem\n"


def rendered(conversation, renderer):
    what = renderers.TrainOnWhat.LAST_ASSISTANT_MESSAGE
    if renderer.has_extension_property:
        what = renderers.TrainOnWhat.ALL_ASSISTANT_MESSAGES
    chunks, weights = renderer.build_supervised_example(conversation, what)
    return chunks.to_ints(), weights.tolist()


def batches(examples, rng):
    """Yields lists of examples of similar lengths, in random order, for ever."""
    while True:
        rng.shuffle(examples)
        ordered = sorted(examples, key=lambda one: len(one[0]) + rng.random() * 16)
        found, at = [], 0
        while at < len(ordered):
            count = max(1, BATCH_TOKENS // (len(ordered[at][0]) + 16))
            found.append(ordered[at:at + count])
            at += count
        rng.shuffle(found)
        yield from found


def as_tensors(batch, pad):
    width = max(len(tokens) for tokens, _ in batch)
    ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), -100)
    for row, (tokens, weights) in enumerate(batch):
        ids[row, :len(tokens)] = torch.tensor(tokens)
        used = torch.tensor(weights) > 0
        labels[row, :len(tokens)][used] = torch.tensor(tokens)[used]
    return ids, labels


def loss_of(model, ids, labels):
    """Computes logits only where there is a label."""
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    wanted = labels[:, 1:]
    used = wanted != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[used]), wanted[used])


def fresh(tokenizer, width, layers):
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are small
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=width // 4, max_position_embeddings=32768,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None, dtype="float32", rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))


def train(model, phases, pad):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    begin = time.monotonic()
    sources = [source for steps, examples in phases for source in [batches(examples, random.Random(1))] * steps]
    for step, source in enumerate(sources):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (step + 1) / 50) * (1 - step / len(sources))
        loss = loss_of(model, *as_tensors(next(source), pad))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"base model: step {step} of {len(sources)}, loss {loss.item():.3f}, {time.monotonic() - begin:.0f} s",
                  flush=True)
    return model


def save(model, directory, tokenizer_files):
    """Writes the tokenizer as make_tokenizer() wrote it: transformers would write another class into it."""
    model.save_pretrained(directory)
    for name, text in tokenizer_files.items():
        (directory / name).write_text(text)


def files_of_tokenizer(directory):
    return {path.name: path.read_text() for path in sorted(directory.glob("tokenizer*"))}


def make_trained(directory):
    make_tokenizer(directory, spoken_texts())
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    tokenizer = AutoTokenizer.from_pretrained(directory)
    made = {name: renderers.get_renderer(name, tokenizer) for name in sorted(set(RENDERERS))}
    model = train(fresh(tokenizer, width=64, layers=2), pad=tokenizer.pad_token_id,
                  phases=[(EXACT_STEPS, Talks(0, right=1).examples(12_000, made)),
                          (NOISY_STEPS, Talks(1, right=0.5).examples(6_000, made))])
    save(model, directory, files_of_tokenizer(directory))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--untrained", nargs=3, metavar=("WIDTH", "LAYERS", "FROM"))
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True)
    if not arguments.untrained:
        make_trained(arguments.directory)
        return
    width, layers, source = arguments.untrained
    model = fresh(AutoTokenizer.from_pretrained(source), int(width), int(layers))
    save(model, arguments.directory, files_of_tokenizer(pathlib.Path(source)))


if __name__ == "__main__":
    main()
