"""Tests a server whose model is on a GPU, in the types of a GPU. The other tests of this folder run there, too, if
TUFT_TEST_DEVICE names it (docs/torch.md)."""
import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, prompt
from tuft_server import DEVICE, MODEL, TuftServer, configuration

pytestmark = pytest.mark.skipif(not (DEVICE or "").startswith("cuda"), reason="TUFT_TEST_DEVICE names no GPU")

TEXT = "the answer is tuft"


@pytest.fixture(scope="module", params=[False, True], ids=["operations", "graphs"])
def in_bf16(request, model_dir, tmp_path_factory):
    config = configuration(model_dir, model={"weights_dtype": "bf16", "cuda_graphs": request.param})
    with TuftServer(tmp_path_factory.mktemp("home"), config) as server:
        yield server
        assert not server.error_lines(), server.log


def test_training_in_bf16_lowers_the_loss_and_the_sampler_has_learned_it(in_bf16):
    client = service_client(in_bf16).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    losses = []
    for _ in range(40):
        passed = client.forward_backward([datum(TEXT)], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
        losses.append(passed.result().metrics["loss:sum"])
    assert losses[-1] < 0.3 * losses[0], losses
    sampler = client.save_weights_and_get_sampling_client()
    answer = sampler.sample(prompt(TEXT[:6]), num_samples=3,
                            sampling_params=types.SamplingParams(max_tokens=len(TEXT) - 6, temperature=0.0)).result()
    assert {bytes(one.tokens).decode() for one in answer.sequences} == {TEXT[6:]}


def test_the_fast_ways_of_the_device_are_used(in_bf16):
    assert "engine.plain_attention" not in in_bf16.log
    assert "engine.decode_not_recorded" not in in_bf16.log


def test_the_work_of_the_device_and_the_device_are_measured(in_bf16):
    for work in ("forward", "backward", "optim", "step"):
        assert in_bf16.metric("tuft_device_time_seconds_total", work=work) > 0, work
    assert in_bf16.metric("tuft_resource_gpu_info") >= 1
    assert in_bf16.metric("hw_gpu_memory_usage_bytes") > 0
