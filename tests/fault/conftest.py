import pytest

import tuft_server


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return tuft_server.init_model(tmp_path_factory.mktemp("models") / "tiny", "--family", "qwen3", "--size", "tiny",
                                  "--seed", "7")
