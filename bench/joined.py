"""A server whose workers join over TLS on this machine, and such workers."""
import os
import shutil
import subprocess
import sys
import time

import measure
import server

TOKEN = "a token of sufficient length"
LEASE = 3
START_SECONDS = 60


def certificates(options):
    """Makes an authority and a certificate of the server, which are valid for two days."""
    if shutil.which("openssl") is None:
        raise measure.Skip("openssl is not installed")
    sys.path.insert(0, str(measure.ROOT / "tests" / "support"))
    from certificates import make_certificates
    directory = options.scratch / "join-certificates"
    shutil.rmtree(directory, ignore_errors=True)
    return make_certificates(directory)


class Server(server.Server):
    """A server for whose base model `workers` serve at the same time, once they have joined."""

    def __init__(self, options, name, directory, workers=1, size="tiny", metrics=False):
        self.options, self.certificates, self.size, self.workers = options, directory, size, workers
        self.port, self.token_file, self.joined = server.free_port(), directory / f"token-{name}", []
        self.token_file.write_text(TOKEN + "\n")
        os.chmod(self.token_file, 0o600)
        join = dict(port=self.port, certificate=directory / "server.pem", private_key=directory / "server.key",
                    token_file=self.token_file, lease_seconds=LEASE)
        super().__init__(options, name, model_size=size, model=dict(worker="joined", workers=workers), metrics=metrics,
                         settings="join:\n" + "".join(f"  {key}: {value}\n" for key, value in join.items()))

    def join_worker(self, program=None, environment=None):
        """Starts a worker and waits until it serves or stands by. Returns its process. `program` takes the place of
        tuft-worker."""
        log = (self.home / f"worker-{len(self.joined)}.log").open("w")
        command = [program or self.options.programs / "tuft-worker", "--join", f"localhost:{self.port}", "--join-token-file",
                   self.token_file, "--join-ca", self.certificates / "ca.pem", "--model-name", "bench", "--model-path",
                   server.base_model(self.options, self.size), "--threads", "1"]
        self.joined.append(subprocess.Popen([str(part) for part in command], stdout=log, stderr=log,
                                            env={**os.environ, **(environment or {})}))
        log.close()
        deadline = time.monotonic() + START_SECONDS
        while len(self.present()) < len(self.joined):
            if time.monotonic() > deadline or self.joined[-1].poll() is not None:
                raise RuntimeError(f"a worker did not join; see {log.name}")
            time.sleep(0.02)
        return self.joined[-1]

    def present(self):
        rows = self.get("/api/v1/observe/workers")["workers"]
        return [row["state"] for row in rows if row["state"] in ("ready", "standby")]

    def close(self):
        for worker in getattr(self, "joined", []):
            worker.kill()
            worker.wait()
        super().close()
