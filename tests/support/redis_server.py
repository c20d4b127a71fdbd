"""A real redis-server for one test, on a unix socket in its own directory."""
import shutil
import socket
import subprocess

from tuft_server import wait_until

MISSING = None if shutil.which("redis-server") else "redis-server is not installed"


class RedisServer:
    def __init__(self, directory):
        self.directory, self.socket, self.process = directory, directory / "redis.sock", None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self):
        return f"unix://{self.socket}"

    def start(self):
        # With the default, everysec, Redis answers up to two seconds before it writes while an fsync is running.
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir",
                                         str(self.directory), "--appendonly", "yes", "--appendfsync", "always",
                                         "--save", ""],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, 20, "redis-server answers")
        return self

    def answers(self):
        try:
            return self.command(b"PING\r\n").startswith(b"+PONG")
        except OSError:
            return False

    def command(self, line):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(line)
            return connection.recv(65536)

    def keys(self):
        answer = self.command(b"KEYS *\r\n").split(b"\r\n")
        return sorted(word.decode() for word in answer[2::2] if word)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()
