"""Tests the OpenAI-compatible API with the real OpenAI client."""
import openai
import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, tokens_of
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, init_model, wait_until

HELLO = [{"role": "user", "content": "hello"}]


def client(server, key=ALICE):
    return openai.OpenAI(base_url=server.url + "/oai/api/v1", api_key=key, max_retries=0)


@pytest.fixture
def oai(server):
    return client(server)


@pytest.fixture
def oai_bob(server):
    return client(server, BOB)


@pytest.fixture(scope="module")
def checkpoint(server):
    """One of alice's sampler checkpoints, trained to reproduce a text, and the text."""
    text = "count: alpha beta gamma"
    training = service_client(server).create_lora_training_client(base_model=MODEL, rank=16, seed=1)
    for _ in range(60):
        training.forward_backward([datum(text)], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=5e-3))
    stepped.result()
    return training.save_weights_for_sampler(name="counting").result().path, text


def streamed(stream):
    """Returns text, logprobs and finish reason by choice, and the usage, of a stream of chunks."""
    texts, logprobs, reasons, usage = {}, {}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (text or "")
            if choice.logprobs is not None:
                logprobs.setdefault(choice.index, []).extend(choice.logprobs.content or [])
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    return texts, logprobs, reasons, usage


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_streaming_a_chat_gives_what_not_streaming_gives(oai, temperature):
    ask = dict(model=MODEL, messages=HELLO, seed=3, max_completion_tokens=24, n=2, temperature=temperature, logprobs=True,
               top_logprobs=2)
    whole = oai.chat.completions.create(**ask)
    texts, logprobs, reasons, usage = streamed(
        oai.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask))
    assert [texts[i] for i in range(2)] == [choice.message.content for choice in whole.choices]
    assert [reasons[i] for i in range(2)] == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage
    for choice in whole.choices:
        assert [entry.logprob for entry in logprobs.get(choice.index, [])] == [
            entry.logprob for entry in choice.logprobs.content]
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.choices[0].message.role == "assistant"


def test_a_checkpoint_answers_with_what_it_learned_and_stops_where_it_is_told(oai, checkpoint):
    path, text = checkpoint
    ask = dict(model=path, prompt="count: ", temperature=0, max_tokens=16)
    answer = oai.completions.create(**ask)
    assert answer.model == path
    assert answer.choices[0].text == text[len("count: "):]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len("count: ") and answer.usage.completion_tokens == 16
    for stop in ("beta", ["nothing", " b"]):
        stopped = oai.completions.create(stop=stop, **ask).choices[0]
        assert stopped.text == ("alpha " if stop == "beta" else "alpha")
        assert stopped.finish_reason == "stop"
        texts, _, reasons, _ = streamed(oai.completions.create(stop=stop, stream=True, **ask))
        assert texts == {0: stopped.text} and reasons == {0: "stop"}
    base = oai.completions.create(**{**ask, "model": MODEL}).choices[0].text
    assert base != answer.choices[0].text


def test_a_newer_checkpoint_under_a_name_answers_with_its_own_weights(server, oai):
    training = service_client(server).create_lora_training_client(base_model=MODEL, rank=16, seed=2)

    def learn(text):
        for _ in range(60):
            training.forward_backward([datum(text)], "cross_entropy")
            training.optim_step(types.AdamParams(learning_rate=5e-3)).result()
        path = training.save_weights_for_sampler(name="newest").result().path
        return oai.completions.create(model=path, prompt="say ", temperature=0, max_tokens=3).choices[0].text

    assert learn("say one") == "one"
    assert learn("say two") == "two"


def test_prompts_come_as_text_and_as_tokens(oai):
    ask = dict(model=MODEL, temperature=0, max_tokens=4)
    texts = [choice.text for choice in oai.completions.create(prompt=["one", "two"], **ask).choices]
    tokens = [choice.text for choice in
              oai.completions.create(prompt=[tokens_of("one"), tokens_of("two")], **ask).choices]
    assert texts == tokens
    assert oai.completions.create(prompt=tokens_of("one"), **ask).choices[0].text == texts[0]
    assert len(oai.completions.create(prompt=["one", "two"], n=2, **ask).choices) == 4


def test_echo_scores_the_prompt(server, oai):
    scored = oai.completions.create(model=MODEL, prompt="abcd", max_tokens=0, echo=True, logprobs=2).choices[0]
    assert scored.text == "abcd"
    assert scored.logprobs.tokens == ["a", "b", "c", "d"]
    assert scored.logprobs.token_logprobs[0] is None
    sampler = service_client(server).create_sampling_client(base_model=MODEL)
    expected = sampler.compute_logprobs(types.ModelInput.from_ints(tokens_of("abcd"))).result()
    assert scored.logprobs.token_logprobs[1:] == pytest.approx(expected[1:], abs=1e-4)
    assert scored.logprobs.text_offset == [0, 1, 2, 3]


def test_models_are_those_that_the_user_may_name(oai, oai_bob, checkpoint):
    path, _ = checkpoint
    listed = {model.id: model for model in oai.models.list()}
    assert {MODEL, path} <= set(listed)
    assert listed[path].owned_by == "alice" and listed[path].parent == MODEL
    assert path not in {model.id for model in oai_bob.models.list()}
    assert oai.models.retrieve(MODEL).id == MODEL
    assert oai.models.retrieve(path).id == path


def test_a_private_checkpoint_is_nobody_elses_and_a_public_one_is_everybodys(server, oai_bob, checkpoint):
    path, text = checkpoint
    ask = dict(prompt="count: ", temperature=0, max_tokens=5)
    with pytest.raises(openai.NotFoundError) as foreign:
        oai_bob.completions.create(model=path, **ask)
    with pytest.raises(openai.NotFoundError) as unknown:
        oai_bob.completions.create(model=path + "x", **ask)
    assert foreign.value.body == unknown.value.body
    rest = service_client(server).create_rest_client()
    rest.publish_checkpoint_from_tinker_path(path).result()
    try:
        assert oai_bob.completions.create(model=path, **ask).choices[0].text == "alpha"
    finally:
        rest.unpublish_checkpoint_from_tinker_path(path).result()
    with pytest.raises(openai.NotFoundError):
        oai_bob.completions.create(model=path, **ask)


def test_keys_come_as_bearer_first(server):
    with pytest.raises(openai.AuthenticationError):
        client(server, "tml-nobody").models.list()
    with pytest.raises(openai.AuthenticationError):
        client(server, "tml-nobody").models.list(extra_headers={"X-API-Key": ALICE})
    bare = client(server)
    assert list(bare.models.list(extra_headers={"Authorization": openai.Omit(), "X-API-Key": ALICE}))
    with pytest.raises(openai.AuthenticationError):
        bare.models.list(extra_headers={"Authorization": openai.Omit()})


def test_what_cannot_be_served_is_refused_by_name(oai):
    for field, value in {"logit_bias": {"1": 5}, "presence_penalty": 1, "response_format": {"type": "json_object"},
                         "tools": [{"type": "function", "function": {"name": "f"}}]}.items():
        with pytest.raises(openai.BadRequestError) as refused:
            oai.chat.completions.create(model=MODEL, messages=HELLO, **{field: value})
        assert refused.value.param == field
    with pytest.raises(openai.BadRequestError) as refused:
        oai.completions.create(model=MODEL, prompt="a" * 400)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        oai.completions.create(model=MODEL, prompt=[100_000])
    with pytest.raises(openai.NotFoundError):
        oai.chat.completions.create(model="nobody", messages=HELLO)


def test_a_client_that_goes_away_ends_its_generation(tmp_path):
    """The metrics show it: the request ends as cancelled. Its own end would come after many seconds."""
    model = init_model(tmp_path / "model", "--family", "qwen3", "--size", "tiny", "--max-position", "30000")
    with TuftServer(tmp_path / "home", configuration(model, model={"max_model_len": 30000})) as server:
        stream = client(server).completions.create(model=MODEL, prompt="go on", max_tokens=29000, n=16, temperature=0,
                                                    stream=True)
        next(iter(stream))
        stream.close()
        wait_until(lambda: server.metric("tuft_openai_requests_total", status="cancelled") == 1, 30,
                   "the request ends as cancelled")
        assert server.metric("tuft_openai_requests_total", status="ok") == 0
