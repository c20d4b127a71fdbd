"""Small data for the tests. The tokens are the bytes of a text (the tiny model's tokenizer is byte-level)."""
import numpy as np
from tinker import types

VOCABULARY = 256  # the bytes; special tokens are above them


def tokens_of(text):
    return list(text.encode())


def datum(text, weights=None):
    """A datum that predicts each byte of `text` from the bytes before it."""
    tokens = tokens_of(text)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1) if weights is None else weights})


def rl_datum(tokens, logprobs, advantages):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": logprobs, "advantages": advantages})


def logprobs_of(output):
    """Returns one array per datum."""
    return [np.asarray(one["logprobs"].tolist(), np.float32) for one in output.loss_fn_outputs]


def prompt(text):
    return types.ModelInput.from_ints(tokens_of(text))
