import pytest

import workload
from served import model_dir  # noqa: F401


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    """A collector that has received the telemetry of every operation, successful and failed, until the server ended."""
    server, receiver = workload.start_exporting(model_dir, tmp_path_factory.mktemp("home"))
    receiver.run = workload.train_and_sample(server.url)
    workload.fail(server.url)
    workload.look(server.url)
    workload.finish(server, receiver)
    yield receiver
    receiver.stop()
