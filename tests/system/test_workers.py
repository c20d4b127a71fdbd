"""Several workers that serve one base model at the same time: real programs, joined and started by the server."""
import signal

import pytest
from joining import Trainer, Worker, await_states, certificates, joined_server, states  # noqa: F401
from prometheus_client.parser import text_string_to_metric_families
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until


@pytest.fixture
def pair(tmp_path, certificates):
    """A server for whose base model two workers serve, and two that have joined."""
    server, port, model = joined_server(tmp_path, certificates, workers=2)
    workers = []

    def join_worker():
        workers.append(Worker(port, certificates, model))
        return workers[-1]

    server.start()
    join_worker()
    await_states(server, "ready")
    join_worker()
    await_states(server, "ready", "ready")
    yield server, workers, join_worker
    for worker in workers:
        worker.end()
    server.stop()


def moves(server, reason):
    return server.metric("tuft_training_run_moves_total", reason=reason)


def metric_samples(server):
    page = RawClient(server.url, ALICE).request("GET", "/metrics").body.decode()
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def passes_of(server, number):
    """Returns the training passes and sampling steps of a worker."""
    return server.metric("tuft_scheduler_step_duration_seconds_count", worker=f"{MODEL}#{number}")


def test_runs_spread_and_both_workers_train(pair):
    server, _, _ = pair
    trainers = [Trainer(server) for _ in range(4)]
    assert [trainer.step() for trainer in trainers] == [1] * 4
    assert all(passes_of(server, number) > 0 for number in (1, 2))


def test_a_lost_workers_runs_go_on_at_the_other(pair):
    server, workers, _ = pair
    trainers = [Trainer(server) for _ in range(2)]
    for trainer in trainers:
        assert trainer.step() == 1
        trainer.save("one")
    workers[0].signal(signal.SIGKILL)
    await_states(server, "dead", "ready")
    # One of them was there. It was saved, so nothing is lost, and no client sees an error.
    assert [trainer.step() for trainer in trainers] == [2, 2]
    assert moves(server, "lost") == 1


def test_a_worker_that_ends_gives_its_runs_to_the_other(pair):
    server, workers, _ = pair
    trainers = [Trainer(server) for _ in range(2)]
    before = []
    for trainer in trainers:
        assert [trainer.step(), trainer.step()] == [1, 2]
        before.append(trainer.loss())
        trainer.send("optim_step", adam_params={"learning_rate": 0.0}, type="optim_step")
    workers[1].signal(signal.SIGTERM)
    assert [trainer.loss() for trainer in trainers] == pytest.approx(before, rel=1e-6)
    for trainer in trainers:
        trainer.send("optim_step", adam_params={"learning_rate": 0.0}, type="optim_step")
    assert workers[1].process.wait(timeout=20) == 0
    await_states(server, "ready", "dead")
    assert [trainer.step() for trainer in trainers] == [5, 5]
    assert moves(server, "drained") == 1 and moves(server, "lost") == 0


def test_a_worker_that_joins_later_gets_its_part(pair):
    server, workers, join_worker = pair
    workers[1].signal(signal.SIGTERM)
    await_states(server, "ready", "dead")
    trainers = [Trainer(server) for _ in range(4)]
    assert [trainer.step() for trainer in trainers] == [1] * 4
    before = [trainer.loss() for trainer in trainers]
    for trainer in trainers:
        trainer.send("optim_step", adam_params={"learning_rate": 0.0}, type="optim_step")
    join_worker()
    await_states(server, "ready", "dead", "ready")
    wait_until(lambda: moves(server, "balanced") == 2, 30, "two runs move")
    assert [trainer.loss() for trainer in trainers] == pytest.approx(before, rel=1e-6)


def test_samples_go_on_when_a_worker_is_gone(pair):
    server, workers, _ = pair
    client = RawClient(server.url, ALICE)
    samplers = [client.sampler(base_model=MODEL).json["sampling_session_id"] for _ in range(8)]
    for sampler in samplers:
        assert client.result(client.sample(sampler, 1)).json["sequences"]
    assert all(passes_of(server, number) > 0 for number in (1, 2))
    workers[0].signal(signal.SIGKILL)
    await_states(server, "dead", "ready")
    for sampler in samplers:
        assert client.result(client.sample(sampler, 2)).json["sequences"]


def test_a_server_starts_several_workers_of_a_model(model_dir, tmp_path):
    with TuftServer(tmp_path / "home", configuration(model_dir, model={"workers": 2, "threads": 1},
                                                     console={"operators": ["alice"]})) as server:
        assert states(server) == ["ready", "ready"]
        trainers = [Trainer(server) for _ in range(2)]
        assert [trainer.step() for trainer in trainers] == [1, 1]
        names = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in metric_samples(server)]
        assert len(names) == len(set(names)), "a series appears twice"
        rows = RawClient(server.url, ALICE).get("observe/system").json["workers"]
        engines = {row["base_model"]: len([key for key in row["metrics"] if key.startswith("tuft_worker_busy")])
                   for row in rows}
        assert engines == {f"{MODEL}#1": 1, f"{MODEL}#2": 1}
