"""A server that is killed and restarted on the same port with the same state, and the ways to kill it."""
import os
import signal
import time

from redis_server import RedisServer
from tuft_server import TuftServer, alive, configuration, wait_until

START_AGAIN_SECONDS = 20


class Lives:
    def __init__(self, mode, model_dir, directory):
        self.home, self.model_dir = directory / "home", model_dir
        self.persistence = {"mode": mode, "namespace": "crash"}
        self.redis = None
        if mode == "REDIS":
            self.redis = RedisServer(directory / "redis").start()
            self.persistence.update(redis_url=self.redis.url, lease_seconds=1)  # a killed server has its lease for so long
        self.server, self.logs = None, []

    def start(self):
        self.prepare()
        self.server.start()
        return self.server.url

    def start_and_kill(self, seconds):
        """Starts the server and kills it after `seconds`, at whatever point it is."""
        url = self.server.url
        self.prepare()
        self.server.url = url
        self.server.spawn()
        time.sleep(seconds)
        self.kill_server()

    def kill_store(self, seconds):
        self.redis.kill()
        time.sleep(seconds)
        self.redis.start()

    def prepare(self):
        port = self.server.url.rsplit(":", 1)[1] if self.server else "0"
        config = configuration(self.model_dir, persistence=self.persistence, limits={
            "runs_per_user_max": 1000, "unnamed_samplers_per_run_max": 1000, "samplers_per_user_max": 150})
        self.server = TuftServer(self.home, config)
        self.server.arguments = ["--host", "127.0.0.1", "--port", port, "--log-level", "warning"]

    def kill_server(self):
        workers = self.server.worker_pids()
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.gone(workers)

    def kill_both(self, worker_first):
        workers = self.server.worker_pids()
        pids = [*workers, self.server.process.pid]
        for pid in pids if worker_first else reversed(pids):
            os.kill(pid, signal.SIGKILL)
        self.gone(workers)

    def gone(self, workers):
        self.server.wait_exit()
        self.logs.append(self.server.log)
        (self.home / "tuft_current_server").unlink(missing_ok=True)
        wait_until(lambda: not any(alive(pid) for pid in workers), 20, "the workers end with their server")

    def kill_worker(self):
        """Returns False if there was no worker to kill."""
        workers = self.server.worker_pids()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        return bool(workers)

    def end(self):
        try:
            if self.server:
                self.server.stop()
        finally:
            if self.redis:
                self.redis.kill()
