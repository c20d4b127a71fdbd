"""Tests limits of the HTTP server and changes of keys with the real server. Each refusal names its limit."""
import http.client
import re
import signal
import socket
import stat
import urllib.parse

import pytest

import tuft_server
from raw_client import RawClient, forward_backward
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

LIMITS = {"header_bytes_max": 4096, "request_timeout_seconds": 1, "idle_timeout_seconds": 1,
          "connections_per_address_max": 8}
BYTE_LIMITS = {"request_body_bytes_max": 2_000_000, "receiving_bytes_max": 3_000_000,
               "queued_bytes_per_user_max": 1 << 20}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def users_file(home):
    path = home / "users.yaml"
    path.write_text("tml-first-key: carol\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def server(model_dir, home, users_file):
    config = configuration(model_dir, limits=LIMITS, authorized_users_file=str(users_file))
    with TuftServer(home / "home", config) as running:
        yield running


@pytest.fixture(scope="module")
def patient_server(model_dir, home):
    with TuftServer(home / "patient", configuration(model_dir, limits=BYTE_LIMITS)) as running:
        yield running


def connect(server):
    parts = urllib.parse.urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def answer(connection):
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    return reply.status, reply.read().decode()


def test_a_slow_client_is_told_which_limit(server):
    for text in (b"GET /api/v1/hea", b"POST /api/v1/create_session HTTP/1.1\r\nX-API-Key: tml-alice\r\n"
                                     b"Content-Length: 10\r\n\r\n{"):
        with connect(server) as slow:
            slow.sendall(text)
            status, body = answer(slow)
            assert status == 408 and "limits.request_timeout_seconds" in body
            assert slow.recv(1) == b""


def test_an_idle_connection_closes(server):
    with connect(server) as idle:
        assert idle.recv(1) == b""


def test_a_long_head_is_told_which_limit(server):
    with connect(server) as client:
        client.sendall(b"GET /api/v1/healthz HTTP/1.1\r\nX-Long: " + b"x" * 5000 + b"\r\n\r\n")
        status, body = answer(client)
        assert status == 431 and "limits.header_bytes_max" in body


def test_too_many_connections_are_told_which_limit(server):
    open_ones = [connect(server) for _ in range(LIMITS["connections_per_address_max"])]
    try:
        def refused():
            with connect(server) as one_more:
                one_more.sendall(b"GET /api/v1/healthz HTTP/1.1\r\n\r\n")
                status, body = answer(one_more)
                return status == 503 and "limits.connections_per_address_max" in body
        wait_until(refused, 10, "a connection over the limit is refused")
    finally:
        for connection in open_ones:
            connection.close()
    wait_until(server.healthy, 10, "closed connections make room")


def test_bodies_that_are_received_have_a_limit_for_each_user_and_for_all(patient_server):
    def begin(client, key, size):
        client.sendall(f"POST /api/v1/forward_backward HTTP/1.1\r\nX-API-Key: {key}\r\nContent-Length: {size}\r\n"
                       "Content-Type: application/x-protobuf\r\nExpect: 100-continue\r\n\r\n".encode())

    with connect(patient_server) as first, connect(patient_server) as second, connect(patient_server) as third:
        begin(first, ALICE, 1_900_000)
        assert b" 100 " in first.recv(100)
        for client, key, size, expected in ((second, ALICE, 200_000, 429), (third, BOB, 1_500_000, 503)):
            begin(client, key, size)
            reply = http.client.HTTPResponse(client)
            reply.begin()
            assert reply.status == expected and int(reply.headers["Retry-After"]) > 0
            assert "limits.receiving_bytes_max" in reply.read().decode()
        first.sendall(b"\xff" * 1_900_000)
        assert answer(first)[0] == 400
        begin(first, ALICE, 1_900_000)
        assert b" 100 " in first.recv(100)


def test_operations_that_wait_have_a_limit_of_bytes(patient_server):
    client = RawClient(patient_server.url, ALICE)
    model = client.model(MODEL)

    def submit(seq_id, size):
        return client.train(model, seq_id, forward_backward(model, seq_id, tokens=[1] * (size // 4)))

    too_large = submit(1, 1_500_000)
    assert too_large.status == 413 and "limits.queued_bytes_per_user_max" in too_large.detail
    # They wait for operation 1, for which half of the room is reserved.
    assert submit(2, 400_000).status in (200, 202)
    refused = submit(3, 400_000)
    assert refused.status == 429 and int(refused.headers["Retry-After"]) > 0
    assert "limits.queued_bytes_per_user_max" in refused.detail
    first = submit(1, 400_000)
    client.result(first, protobuf=True)
    third = submit(3, 400_000)
    client.result(third, protobuf=True)


def test_the_log_says_how_many_files_may_be_open(server):
    assert re.search(r"tuft\.open_files_max\D+\d+", server.log)


def status_of(server, key):
    return RawClient(server.url, key).post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0",
                                                              "type": "create_session"}).status


def test_keys_change_without_a_restart(server, users_file):
    assert status_of(server, "tml-first-key") == 200
    assert status_of(server, ALICE) == 200
    made = tuft_server.tuft("hash-key", "--new")
    key = re.search(r"tml-[0-9a-f]{64}", made.stdout).group()
    hashed = re.search(r"sha256:[0-9a-f]+:[0-9a-f]{64}", made.stdout).group()
    users_file.write_text(f"{hashed}: carol\n")  # noticed without a signal
    wait_until(lambda: status_of(server, key) == 200, 10, "the new key opens")
    assert status_of(server, "tml-first-key") == 403
    assert status_of(server, hashed) == 403, "a hash was accepted as a key"
    assert status_of(server, ALICE) == 200

    users_file.write_text("- tml-broken\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "keys.reload_failed" in server.log or "the former keys stay" in server.log, 10, "an error")
    assert status_of(server, key) == 200
    assert "tml-broken" not in server.log

    users_file.write_text("tml-broken: &all [*all]\n")  # an alias that contains itself
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "nested more than" in server.log, 10, "an error")
    assert status_of(server, key) == 200
    assert "tml-broken" not in server.log

    users_file.write_text("tml-third-key: carol\n")
    users_file.chmod(users_file.stat().st_mode | stat.S_IRGRP)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status_of(server, "tml-third-key") == 200, 10, "the file is read again")
    assert status_of(server, key) == 403
    wait_until(lambda: "can be read by others" in server.log, 10, "a warning")

    users_file.unlink()
    wait_until(lambda: status_of(server, "tml-third-key") == 403, 10, "without the file its keys open nothing")
    wait_until(lambda: "keys.file_gone" in server.log or "is not there any more" in server.log, 10, "a warning")
    assert status_of(server, ALICE) == 200
    users_file.write_text("tml-third-key: carol\n")
    wait_until(lambda: status_of(server, "tml-third-key") == 200, 10, "the file is back")


def test_hash_key_reads_a_key_and_refuses_short_ones():
    import subprocess
    run = subprocess.run([tuft_server.BIN / "tuft", "hash-key"], input="tml-" + "a" * 40 + "\n", text=True,
                         capture_output=True)
    assert run.returncode == 0 and run.stdout.startswith("sha256:")
    run = subprocess.run([tuft_server.BIN / "tuft", "hash-key"], input=BOB + "\n", text=True, capture_output=True)
    assert run.returncode == 1 and BOB not in run.stderr
