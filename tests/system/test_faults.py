"""A worker that dies, and a server that is told to stop: the errors are clear, and all other work continues."""
import concurrent.futures
import itertools
import os
import signal
import time

import pytest

from raw_client import PROTOBUF, RawClient, long_pass
from tuft_server import ALICE, BOB, MODEL, TuftServer, alive, configuration, wait_until


@pytest.fixture
def own_server(model_dir, tmp_path):
    with TuftServer(tmp_path / "home", configuration(model_dir)) as running:
        yield running


def kill_worker(server):
    (pid,) = server.worker_pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), 5, "the worker is gone")
    return pid


def restarted(server, old):
    return wait_until(lambda: [pid for pid in server.worker_pids() if pid != old], 60, "a new worker")


def test_a_killed_worker_fails_its_operation_and_is_restarted(own_server):
    client = RawClient(own_server.url, ALICE)
    model = client.model(MODEL)
    running = client.train(model, 1, long_pass(model, 1))
    own_server.wait_until_running("forward_backward")  # the checks below fail if the pass is over
    old = kill_worker(own_server)
    # The server answers while there is no worker.
    began = time.monotonic()
    assert client.get("healthz").status == 200
    assert client.session()
    assert time.monotonic() - began < 2
    failed = client.result(running, protobuf=True)
    assert failed.status == 200, failed
    assert failed.json["category"] == "server"
    assert "worker" in failed.json["error"] and ("kill" in failed.json["error"].lower() or "died" in failed.json["error"])
    restarted(own_server, old)

    def trains_again():
        fresh = RawClient(own_server.url, ALICE)
        submitted = fresh.post("create_model", {"session_id": fresh.session(), "model_seq_id": 0, "base_model": MODEL,
                                                "lora_config": {"rank": 4}, "type": "create_model"})
        made = fresh.result(submitted)
        if "model_id" not in made.json:
            return False
        new = made.json["model_id"]
        return fresh.result(fresh.train(new, 1), protobuf=True).headers["Content-Type"] == PROTOBUF

    wait_until(trains_again, 60, "training on the new worker")


def test_after_a_restart_a_run_goes_on_from_its_newest_checkpoint_or_says_what_is_lost(own_server):
    client = RawClient(own_server.url, ALICE)
    model = client.model(MODEL)
    client.result(client.train(model, 1), protobuf=True)
    client.result(client.optim(model, 2))
    saved = client.result(client.post("save_weights", {"model_id": model, "path": "safe", "seq_id": 3, "type": "save_weights"}))
    assert saved.json["path"].endswith("/weights/safe")
    unsaved = client.model(MODEL)
    client.result(client.train(unsaved, 1), protobuf=True)
    client.result(client.optim(unsaved, 2))
    old = kill_worker(own_server)
    restarted(own_server, old)

    def next_answer(run, numbers):
        """Returns True for a pass that ran, else the error message."""
        answer = client.result(client.train(run, next(numbers)), protobuf=True)
        return answer.headers["Content-Type"] == PROTOBUF or answer.json["error"]

    kept, lost = itertools.count(4), itertools.count(3)
    wait_until(lambda: next_answer(model, kept) is True, 60, "the saved run trains again")
    # The run is never silently started anew: its training is lost, and the first answer says so.
    said = next_answer(unsaved, lost)
    assert "restarted" in said and "trained again" in said
    wait_until(lambda: next_answer(unsaved, lost) is True, 60, "the other one trains again, from its first state")


def test_a_stopped_worker_is_not_ready_and_its_operations_go_on_with_it(own_server):
    client = RawClient(own_server.url, ALICE)
    model = client.model(MODEL)
    (pid,) = own_server.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    running = client.train(model, 1)
    own_server.wait_until_running("forward_backward")
    wait_until(lambda: not client.get("healthz").json["ready"], 60, "a worker that does not answer is noticed")
    waiting = client.optim(model, 2)
    os.kill(pid, signal.SIGCONT)
    for submitted in (running, waiting):
        assert "error" not in client.result(submitted).json
    assert client.get("healthz").json["ready"]
    assert own_server.worker_pids() == [pid]


def test_two_deaths_in_a_row_leave_the_server_answering(own_server):
    first = kill_worker(own_server)
    second_pid = restarted(own_server, first)[0]
    os.kill(second_pid, signal.SIGKILL)
    restarted(own_server, second_pid)
    assert own_server.healthy()


def test_workers_start_although_nobody_reads_the_log(own_server):
    own_server.stop_reading()
    RawClient(own_server.url, ALICE).session()  # the last line that is read
    wait_until(lambda: not own_server.reader.is_alive(), 30, "the pipe is broken")
    first = kill_worker(own_server)
    second = restarted(own_server, first)[0]
    wait_until(lambda: RawClient(own_server.url, ALICE).get("healthz").json["ready"], 30, "the worker serves")
    assert own_server.worker_pids() == [second]


def test_sigterm_with_open_long_polls_ends_in_time(own_server):
    client = RawClient(own_server.url, ALICE)
    model = client.model(MODEL)
    waiting = client.optim(model, 2).json["request_id"]  # 1 never arrives

    def poll(_):
        try:
            return RawClient(own_server.url, ALICE).retrieve(waiting).status
        except OSError:
            return "closed"

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        polls = [pool.submit(poll, i) for i in range(32)]
        own_server.wait_until_polls_wait(32)
        status, seconds = own_server.stop()
        assert status == 0
        assert seconds < 5, own_server.log
        assert {future.result(timeout=5) for future in polls} <= {200, 408, 503, "closed"}


def test_sigterm_in_the_middle_of_a_pass_ends_in_time_and_leaves_no_worker(own_server):
    client = RawClient(own_server.url, ALICE)
    model = client.model(MODEL)
    client.train(model, 1, long_pass(model, 1, 800))
    sampler = client.sampler(base_model=MODEL).json["sampling_session_id"]
    client.sample(sampler, 1, max_tokens=200, num_samples=16)
    workers = own_server.worker_pids()
    assert workers
    own_server.wait_until_running("forward_backward")
    status, seconds = own_server.stop()
    assert status == 0 and seconds < 5, own_server.log
    wait_until(lambda: not any(alive(pid) for pid in workers), 2, "the workers are gone")


def test_sigint_ends_it_too_and_the_address_file_is_gone(own_server):
    own_server.process.send_signal(signal.SIGINT)
    assert own_server.wait_exit(5) == 0
    assert not (own_server.home / "tuft_current_server").exists()
    assert not own_server.error_lines()


def test_a_killed_server_leaves_no_worker_behind(own_server):
    workers = own_server.worker_pids()
    own_server.process.kill()
    own_server.wait_exit(5)
    wait_until(lambda: not any(alive(pid) for pid in workers), 5, "the workers are gone")


def test_one_users_flood_does_not_stop_another(own_server):
    flood = RawClient(own_server.url, ALICE)
    sampler = flood.sampler(base_model=MODEL).json["sampling_session_id"]
    for number in range(300):
        assert flood.sample(sampler, number, max_tokens=32).status in (200, 202, 429)
    bob = RawClient(own_server.url, BOB)
    model = bob.model(MODEL)
    assert bob.result(bob.train(model, 1), protobuf=True).headers["Content-Type"] == PROTOBUF
