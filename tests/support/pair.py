"""Two servers with one Redis, one of which leads, and workers that join whichever does."""
import contextlib
import json
import os
import signal
import socket
import threading
import time
import urllib.request

import joining
import tuft_server
from redis_server import RedisServer
from tuft_server import TuftServer, alive, configuration, wait_until

TAKEOVER_SECONDS = 20  # a limit for slow machines; what it takes is measured


class Pair:
    """Servers 0 and 1. Each is started again with its own home and ports; Redis and the checkpoints are those of both."""

    def __init__(self, directory, certificates, model_dir, lease_seconds=3, keep=60, **changes):
        self.directory, self.certificates, self.model_dir = directory, certificates, model_dir
        self.redis = RedisServer(directory / "redis").start()
        self.ports, self.join_ports = ([tuft_server.free_port() for _ in range(2)] for _ in range(2))
        self.persistence = {"mode": "REDIS", "namespace": "pair", "lease_seconds": lease_seconds}
        self.keep = keep  # how long workers keep their adapters without a connection
        self.changes = changes
        self.redis_urls = [self.redis.url] * 2  # of each server
        (directory / "token").write_text(joining.TOKEN + "\n")
        os.chmod(directory / "token", 0o600)
        self.servers, self.workers, self.logs = [None, None], [], []

    def config(self, number):
        join = {"port": self.join_ports[number], "certificate": str(self.certificates / "server.pem"),
                "private_key": str(self.certificates / "server.key"), "token_file": str(self.directory / "token"),
                "lease_seconds": joining.LEASE, "keep_seconds": self.keep}
        return configuration(self.model_dir, model={"worker": "joined"}, join=join, persistence={**self.persistence, "redis_url": self.redis_urls[number]},
                             checkpoint_dir=str(self.directory / "checkpoints"), console={"operators": ["alice"]}, **self.changes)

    def url(self, number):
        return f"http://127.0.0.1:{self.ports[number]}"

    def spawn(self, number, *arguments):
        server = self.servers[number] = TuftServer(self.directory / f"home{number}", self.config(number))
        server.arguments = ["--host", "127.0.0.1", "--port", str(self.ports[number]), *arguments]
        server.url = self.url(number)
        return server.spawn()

    def join_worker(self, order=(0, 1), **options):
        first, second = (self.join_ports[number] for number in order)
        self.workers.append(joining.Worker(f"{first},localhost:{second}", self.certificates, self.model_dir, **options))
        return self.workers[-1]

    def role(self, number):
        """Returns "leader", "standby", or None."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url(number) + "/api/v1/healthz", timeout=2) as answer:
                return json.load(answer)["role"]
        return None

    def ready(self, number):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url(number) + "/api/v1/healthz", timeout=2) as answer:
                return json.load(answer)["ready"]
        return False

    def await_role(self, number, role):
        def has_role():
            assert self.servers[number].process.poll() is None, self.servers[number].log
            return self.role(number) == role

        wait_until(has_role, tuft_server.START_SECONDS, f"server {number} is the {role}")

    def start(self):
        self.spawn(0)
        self.await_role(0, "leader")
        self.spawn(1)
        self.await_role(1, "standby")
        return self

    def kill(self, number):
        server = self.servers[number]
        os.kill(server.process.pid, signal.SIGKILL)
        self.gone(number)

    def gone(self, number):
        server = self.servers[number]
        status = server.wait_exit()
        self.logs.append(server.log)
        (server.home / "tuft_current_server").unlink(missing_ok=True)
        return status

    def await_takeover(self, number, began=None):
        """Waits until the server leads. Returns the seconds since `began`."""
        began = began or time.monotonic()
        wait_until(lambda: self.role(number) == "leader", TAKEOVER_SECONDS, f"server {number} takes over")
        return time.monotonic() - began

    def end(self):
        for worker in self.workers:
            worker.end()
        for server in self.servers:
            if server is not None and server.process is not None and alive(server.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.process.pid, signal.SIGCONT)
                server.stop()
        self.redis.kill()


class Line:
    """Copies between each connection to a listening socket and the one that `connect` makes; None: it is refused."""

    def __init__(self, listener, connect):
        self.listener, self.connect, self.open = listener, connect, []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):
            server = self.connect()
            if server is None:
                return
            with server:
                self.open += [client, server]
                back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
                back.start()
                self._copy(client, server)
                back.join()

    @staticmethod
    def _copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Ends all connections and takes no more."""
        for one in (self.listener, *self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Switch(Line):
    """A port that leads to whichever server leads, as a load balancer that asks healthz?role=leader."""

    def __init__(self, pair):
        self.pair = pair
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        super().__init__(listener, self._leader)

    def _leader(self):
        leader = next((number for number in (0, 1) if self.pair.role(number) == "leader"), None)
        return None if leader is None else socket.create_connection(("127.0.0.1", self.pair.ports[leader]))


class RedisLine(Line):
    """A socket that leads to Redis until it is cut."""

    def __init__(self, redis, path):
        self.redis, self.url = redis, f"unix://{path}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        super().__init__(listener, self._redis)

    def _redis(self):
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self.redis.socket))
        return server
