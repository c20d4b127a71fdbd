"""deploy/slurm/tuft-workers.sbatch on real nodes of Slurm, with a real server."""
import pathlib

import pytest
import slurm_nodes
from conftest import await_counts, left, row, train_with_the_sdk
from joining import Trainer, rows
from tuft_server import BIN, wait_until

SBATCH = pathlib.Path(__file__).resolve().parents[2] / "deploy/slurm/tuft-workers.sbatch"
MISSING = slurm_nodes.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SECONDS = 120


@pytest.fixture
def slurm(tmp_path):
    folder = tmp_path / "slurm"
    folder.mkdir()
    running = slurm_nodes.Slurm(folder)
    try:
        yield running.start()
    finally:
        running.stop()


def submit(slurm, flags, *options):
    """Returns the id of the array."""
    return slurm.call("sbatch", "--parsable", *options, SBATCH, *flags, cwd=slurm.folder,
                      env={"TUFT_WORKER": str(BIN / "tuft-worker")})


def test_a_worker_comes_back_on_another_node(served, slurm):
    server, flags = served
    array = submit(slurm, flags, "--array=1-2", "--cpus-per-task=1")
    await_counts(server, SECONDS, ready=1, standby=1)
    assert train_with_the_sdk(server) == 1
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    assert trainer.step() == 2
    lost, other = row(server, "ready"), row(server, "standby")
    assert lost["launcher"].keys() == {"slurm.job.id", "slurm.task.id", "slurm.node.name"}
    assert {one["launcher"]["slurm.task.id"] for one in (lost, other)} == {"1", "2"}
    assert "--threads\0001\0" in pathlib.Path(f"/proc/{lost['pid']}/cmdline").read_text()
    slurm.kill_node(lost["launcher"]["slurm.node.name"], lost["pid"])
    await_counts(server, SECONDS, dead=1, ready=1)
    assert row(server, "ready")["pid"] == other["pid"]
    wait_until(lambda: trainer.step() == 2, 30, "the run is restored from its checkpoint")
    await_counts(server, SECONDS, dead=1, ready=1, standby=1)
    back = row(server, "standby")["launcher"]
    assert back["slurm.task.id"] == lost["launcher"]["slurm.task.id"]
    assert back["slurm.node.name"] not in [one["launcher"]["slurm.node.name"] for one in (lost, other)]
    # The task that serves drains, and the run goes on where it was.
    slurm.call("scancel", f"{array}_{other['launcher']['slurm.task.id']}")
    await_counts(server, 60, dead=2, ready=1)
    assert left(server, other["pid"]) and server.log.count("worker.died") == 1, rows(server)
    assert trainer.step() == 3
