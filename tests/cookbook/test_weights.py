"""Downloads weights with the cookbook's own function. For a training checkpoint it loads the checkpoint into a new run, saves that
as age files for a key of its own, fetches and decrypts them, and deletes what it saved."""
import pytest

import environment
import sdk_program
from tuft_server import MODEL, TuftServer, configuration, init_model

PROGRAM = '''
import json, os, pathlib, sys
url, model, kind, folder = sys.argv[1:]
os.environ |= {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-alice", "NO_PROXY": "127.0.0.1,localhost"}
import tinker
from tinker import types
from tinker_cookbook import weights
tokens = list(b"the answer is tuft")
one = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": tokens[1:]})
with tinker.ServiceClient() as service:
    trainer = service.create_lora_training_client(base_model=model, rank=4)
    trainer.forward_backward([one], "cross_entropy")
    trainer.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    save = trainer.save_weights_external if kind == "external" else trainer.save_state
    path = save("kept").result().path
assert weights.download(tinker_path=path, output_dir=folder) == folder
left = [one.tinker_path for one in tinker.RestClient().list_user_checkpoints().result().checkpoints]
files = sorted(str(file.relative_to(folder)) for file in pathlib.Path(folder).rglob("*") if file.is_file())
print(json.dumps({"path": path, "files": files, "left": left}))
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = init_model(tmp_path_factory.mktemp("model") / "tiny", "--family", "qwen3", "--size", "tiny", "--seed", "7")
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model)) as running:
        yield running


@pytest.mark.parametrize("kind", ["training", "external"])
def test_the_cookbook_downloads_what_was_trained(server, tmp_path, kind):
    folder = tmp_path / "downloaded"
    out = sdk_program.output_of(environment.PYTHON, PROGRAM, tmp_path, server.url, MODEL, kind, str(folder))
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(out["files"])
    assert not [name for name in out["files"] if name.endswith(".age")]
    exports = [path for path in out["left"] if "/external_weights/" in path]
    assert exports == [out["path"]] * (kind == "external"), "the export for the download is deleted"
    run, kept = out["path"].removeprefix("tinker://").split("/", 1)
    saved = server.home / "checkpoints" / run.replace(":", "_") / kept / "adapter_model.safetensors"
    assert (folder / "adapter_model.safetensors").read_bytes() == saved.read_bytes()
