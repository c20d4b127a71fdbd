"""Workers that keep what they hold while their connection is broken or their server is gone."""
import os
import signal

import pytest
from joining import Trainer, Worker, await_states, certificates, joined_server  # noqa: F401
from link import Link
from raw_client import RawClient, long_pass
from tuft_server import ALICE, MODEL, wait_until


class Cluster:
    """A server with a joined worker, which reaches it over a link."""

    def __init__(self, folder, certificates, arguments=()):
        self.server, port, model = joined_server(folder, certificates)
        self.server.start()
        self.link = Link(port)
        self.worker = Worker(self.link.port, certificates, model, arguments=arguments)
        await_states(self.server, "ready")
        # The next server has the address of this one.
        self.server.arguments[3] = self.server.url.rsplit(":", 1)[1]

    def kill_server(self):
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.wait_exit()
        (self.server.home / "tuft_current_server").unlink()

    def restart_server(self, *trainers):
        self.kill_server()
        self.server.start()
        for trainer in trainers:
            trainer.client.connection.close()  # the next request opens another one

    def end(self):
        self.worker.end()
        self.link.close()
        self.server.stop()


@pytest.fixture
def cluster(tmp_path, certificates):
    made = Cluster(tmp_path, certificates)
    yield made
    made.end()


def begin_long_pass(trainer):
    """Submits a pass that takes seconds."""
    trainer.seq += 1
    return trainer.client.train(trainer.model, trainer.seq, long_pass(trainer.model, trainer.seq))


def undisturbed(folder, certificates, operations):
    made = Cluster(folder, certificates)
    try:
        return operations(Trainer(made.server))
    finally:
        made.end()


def test_a_link_that_breaks_costs_nothing(cluster):
    trainer = Trainer(cluster.server)
    assert [trainer.step(), trainer.step()] == [1, 2]
    trainer.loss()  # leaves a gradient
    cluster.link.cut()
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 3
    assert cluster.server.metric("tuft_training_run_resumes_total", result="kept") == 1
    assert "model.restored" not in cluster.server.log, cluster.server.log


def test_a_drain_goes_on_after_the_link_broke(cluster):
    trainer = Trainer(cluster.server)
    assert trainer.step() == 1
    trainer.loss()  # leaves a gradient, and a drain waits for the end of the step
    cluster.worker.signal(signal.SIGTERM)
    await_states(cluster.server, "draining")
    cluster.link.cut()
    cluster.worker.says("joins again")
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 2
    assert cluster.worker.process.wait(timeout=30) == 0
    assert "worker.drained" in cluster.server.log and "model.restored" not in cluster.server.log, cluster.server.log


def test_a_drain_begins_while_the_link_is_broken(cluster):
    trainer = Trainer(cluster.server)
    assert trainer.step() == 1
    cluster.link.cut(then="refuse")
    cluster.worker.says("joins again")
    cluster.worker.signal(signal.SIGTERM)
    tried = cluster.worker.log.count("trying again")
    wait_until(lambda: cluster.worker.log.count("trying again") >= tried + 2, 30, "the worker goes on trying")
    cluster.link.cut()
    assert cluster.worker.process.wait(timeout=30) == 0
    assert "worker.drained" in cluster.server.log and "model.restored" not in cluster.server.log, cluster.server.log


def test_a_server_that_has_ended_is_not_waited_for(cluster):
    """Perhaps it is stopped together with its workers."""
    trainer = Trainer(cluster.server)
    assert trainer.step() == 1
    cluster.server.stop()
    cluster.worker.says("joins again")
    cluster.worker.signal(signal.SIGTERM)
    assert cluster.worker.process.wait(timeout=10) == 0
    cluster.worker.says("worker.stopping")


def test_a_worker_ends_in_order_when_its_drain_is_over_while_it_joins(tmp_path, certificates):
    cluster = Cluster(tmp_path, certificates, arguments=("--drain-seconds", "8"))
    try:
        trainer = Trainer(cluster.server)
        trainer.loss()  # leaves a gradient, and a drain waits for the end of the step
        cluster.worker.signal(signal.SIGTERM)
        await_states(cluster.server, "draining")
        cluster.link.cut(then="hang")
        assert cluster.worker.process.wait(timeout=30) == 0
        cluster.worker.says("worker.stopping")
    finally:
        cluster.end()


def test_a_pass_goes_on_while_the_link_is_broken(cluster):
    trainer = Trainer(cluster.server)
    running = begin_long_pass(trainer)
    cluster.server.wait_until_running("forward_backward")
    cluster.link.cut()
    answer = trainer.client.result(running)
    assert "metrics" in answer.json, answer
    assert trainer.step() == 1


def test_a_server_that_is_killed_finds_its_runs_at_their_worker(cluster):
    trainer, still = Trainer(cluster.server), Trainer(cluster.server)
    assert [trainer.step(), trainer.step(), still.step()] == [1, 2, 1]
    trainer.loss()
    cluster.restart_server(trainer, still)
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 3
    assert [trainer.step(), still.step()] == [4, 2]
    assert "models.resumed" in cluster.server.log and "model.restored" not in cluster.server.log, cluster.server.log
    assert cluster.worker.log.count("base model loaded") == 1


def test_what_ran_when_the_server_was_killed_finishes_once(cluster, tmp_path, certificates):
    def operations(trainer, disturb=lambda: None):
        trainer.model = trainer.client.model(MODEL, seed=7)
        running = begin_long_pass(trainer)
        disturb()
        answer = trainer.client.result(running)
        assert answer.status == 200 and "metrics" in answer.json, answer
        step = trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]
        return answer.json["metrics"]["loss:sum"], step, trainer.loss()

    def disturb():
        cluster.server.wait_until_running("forward_backward")
        cluster.restart_server(trainer)

    trainer = Trainer(cluster.server)
    found = operations(trainer, disturb)
    assert found == undisturbed(tmp_path / "other", certificates, operations)


def test_what_no_worker_had_begun_fails_and_its_client_is_told(cluster):
    trainer = Trainer(cluster.server)
    running = begin_long_pass(trainer)
    cluster.server.wait_until_running("forward_backward")
    trainer.seq += 1
    waits = trainer.client.optim(trainer.model, trainer.seq)
    cluster.restart_server(trainer)
    assert "metrics" in trainer.client.result(running).json
    assert "before a worker had begun" in trainer.client.result(waits).detail
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 1


def test_a_worker_gives_up_what_it_kept_when_its_time_is_over(tmp_path, certificates):
    server, port, model = joined_server(tmp_path, certificates, keep=1)
    server.start()
    worker = Worker(port, certificates, model)
    try:
        await_states(server, "ready")
        trainer = Trainer(server)
        assert trainer.step() == 1
        trainer.save("one")
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait_exit()
        worker.says("gives up its adapters")
        (server.home / "tuft_current_server").unlink()
        server.start()
        trainer.client = RawClient(server.url, ALICE)
        assert trainer.step() == 2
        assert "model.restored" in server.log
    finally:
        worker.end()
        server.stop()
