"""Tests what asample can be asked since SDK 0.26, as JSON: the SDK of these tests does not know all of it."""
import itertools
import math

import pytest

from raw_client import RawClient
from tuft_server import ALICE, MODEL

PROMPT = [40 + index * 7 % 60 for index in range(140)]  # more than two blocks of the KV cache
numbers = itertools.count()


@pytest.fixture(scope="module")
def session(server):
    return RawClient(server.url, ALICE).sampler(base_model=MODEL).json["sampling_session_id"]


def submit(raw, session, params=None, **fields):
    return raw.post("asample", {
        "sampling_session_id": session, "seq_id": next(numbers), "num_samples": 1, "prompt": {"chunks": [
            {"type": "encoded_text", "tokens": PROMPT}]}, "type": "sample",
        "sampling_params": {"max_tokens": 1, "seed": 3, "temperature": 1.0, **(params or {})}, **fields})


def sample(raw, session, params=None, **fields):
    answer = raw.result(submit(raw, session, params, **fields))
    assert answer.status == 200 and "sequences" in answer.json, answer
    return answer.json


def test_an_empty_list_of_stops_switches_off_the_end_tokens_too(raw, session):
    params = {"max_tokens": 64, "temperature": 3.0}
    ended = sample(raw, session, params, num_samples=64)["sequences"]
    assert {"stop", "length"} == {one["stop_reason"] for one in ended}, "with this seed some samples end early"
    endless = sample(raw, session, {**params, "stop": []}, num_samples=64)["sequences"]
    assert [(one["stop_reason"], len(one["tokens"])) for one in endless] == [("length", 64)] * 64
    for short, long in zip(ended, endless):
        assert long["tokens"][:len(short["tokens"])] == short["tokens"]
    as_none = sample(raw, session, {**params, "stop": None}, num_samples=64)["sequences"]
    assert as_none == ended


def test_the_last_n_of_a_prompt_are_scored_as_in_the_whole(raw, session):
    whole = sample(raw, session, prompt_logprobs=True, topk_prompt_logprobs=3)
    last = sample(raw, session, prompt_logprobs=True, topk_prompt_logprobs=3, prompt_logprobs_last_n=5)
    assert last["prompt_logprobs"][-5:] == pytest.approx(whole["prompt_logprobs"][-5:], abs=1e-5)
    assert last["prompt_logprobs"][:-5] == [None] * (len(PROMPT) - 5) == last["topk_prompt_logprobs"][:-5]
    assert [[token for token, _ in row] for row in last["topk_prompt_logprobs"][-5:]] == [
        [token for token, _ in row] for row in whole["topk_prompt_logprobs"][-5:]]
    assert last["prompt_cache_hit_tokens"] > 0 == whole["prompt_cache_hit_tokens"]


def test_targets_get_the_logprobs_of_their_tokens(raw, session):
    """The next token of the prompt is a target whose log-probability is known."""
    known = sample(raw, session, prompt_logprobs=True)["prompt_logprobs"]
    rows = len(PROMPT) - 1
    dense = sample(raw, session, target_prompt_logprobs={
        "data": [cell for token in PROMPT[1:] for cell in (token, -1)], "dtype": "int64", "shape": [rows, 2]})
    found = dense["target_prompt_logprobs"]
    assert (found["dtype"], found["shape"]) == ("float32", [rows, 2])
    assert found["data"][::2] == pytest.approx(known[1:], abs=1e-5)
    assert found["data"][1::2] == [0] * rows
    sparse = {"data": [PROMPT[-1], 7], "dtype": "int64", "shape": [rows, 9], "sparse_crow_indices": [0] * rows + [2],
              "sparse_col_indices": [4, 8]}
    answer = sample(raw, session, target_prompt_logprobs=sparse)
    found = answer["target_prompt_logprobs"]
    assert {key: found[key] for key in ("shape", "sparse_crow_indices", "sparse_col_indices")} == {
        key: sparse[key] for key in ("shape", "sparse_crow_indices", "sparse_col_indices")}
    assert found["data"][0] == pytest.approx(known[-1], abs=1e-5)
    assert answer["prompt_cache_hit_tokens"] > 0, "only the last position had to be computed"


def test_alternatives_are_drawn_for_each_position(raw, session):
    ask = dict(prompt_alt_tokens_k=4, topk_prompt_logprobs=128)
    first, second = (sample(raw, session, **ask) for _ in range(2))
    drawn = first["prompt_alt_tokens"]
    assert drawn == second["prompt_alt_tokens"], "a seed repeats the draws"
    assert drawn["tokens"]["shape"] == drawn["logprobs"]["shape"] == [len(PROMPT) - 1, 4]
    cells = list(zip(drawn["tokens"]["data"], drawn["logprobs"]["data"]))
    known = 0
    for index, (token, logprob) in enumerate(cells):
        top = dict(map(tuple, first["topk_prompt_logprobs"][1 + index // 4]))
        if token in top:
            known += 1
            assert logprob == pytest.approx(top[token], abs=1e-4)
    assert known > len(cells) / 4
    assert len({token for token, _ in cells}) > 20
    greedy = sample(raw, session, {"temperature": 0.0}, **ask)
    best = [row[0][0] for row in greedy["topk_prompt_logprobs"][1:]]
    assert greedy["prompt_alt_tokens"]["tokens"]["data"] == [token for token in best for _ in range(4)]


def test_sampled_tokens_come_with_the_most_likely_ones(raw, session):
    one = sample(raw, session, {"max_tokens": 6}, topk_sample_logprobs=3)["sequences"][0]
    assert len(one["topk_logprobs"]) == len(one["tokens"])
    for token, logprob, top in zip(one["tokens"], one["logprobs"], one["topk_logprobs"]):
        assert len(top) == 3 and top[0][1] >= max(logprob, top[1][1], top[2][1])
        assert dict(map(tuple, top)).get(token, logprob) == pytest.approx(logprob, abs=1e-6)
        assert math.isfinite(logprob)
    greedy = sample(raw, session, {"max_tokens": 6, "temperature": 0.0}, topk_sample_logprobs=1)["sequences"][0]
    assert [top[0][0] for top in greedy["topk_logprobs"]] == greedy["tokens"]


@pytest.mark.parametrize("fields, named", [
    ({"best_of": 3}, "best_of"), ({"base_model": MODEL}, "base_model"), ({"num_samples": None}, "num_samples"),
    ({"prompt_logprobs_last_n": 5}, "prompt_logprobs_last_n"),
    ({"prompt_logprobs": True, "prompt_logprobs_last_n": len(PROMPT)}, "prompt_logprobs_last_n"),
    ({"topk_sample_logprobs": 129}, "topk_sample_logprobs"), ({"prompt_alt_tokens_k": 129}, "prompt_alt_tokens_k"),
    ({"target_prompt_logprobs": {"data": [1], "dtype": "int64", "shape": [1, 1]}}, "target_prompt_logprobs.shape"),
])
def test_what_cannot_be_obeyed_is_named(raw, session, fields, named):
    answer = submit(raw, session, **fields)
    assert answer.status == 400 and named in answer.detail, answer
    assert submit(raw, session, {"min_p": 0.1}).status == 400


def test_a_target_outside_of_the_vocabulary_fails_the_sample(raw, session):
    rows = len(PROMPT) - 1
    answer = raw.result(submit(raw, session, target_prompt_logprobs={
        "data": [10_000_000] * rows, "dtype": "int64", "shape": [rows, 1]}))
    assert answer.json["category"] == "user" and "vocabulary" in answer.json["error"]
