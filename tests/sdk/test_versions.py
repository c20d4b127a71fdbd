"""Drives every feature of the oldest and the newest SDK, and compares the outcomes with docs/compatibility.md."""
import pytest

import environments
import matrix


@pytest.fixture
def server(tmp_path):
    with matrix.start(tmp_path) as running:
        yield running


@pytest.mark.parametrize("version", environments.named(["oldest", "newest"]))
def test_every_feature_is_as_the_page_says(server, version):
    if not environments.program(version).exists():
        pytest.skip(f"tests/sdk/environments.py {version} was not run; ./dev test runs it")
    differences = matrix.differences(version, matrix.drive(server, version, seconds=250))
    assert not differences, "\n".join(differences)
