"""A real S3-compatible server for tests: SeaweedFS's `weed` or moto's `moto_server`, whichever is there, and the few requests
that tests make themselves.

`weed` is built from the Go module github.com/seaweedfs/seaweedfs/weed; moto_server comes with tests/requirements.txt. They are
looked for in PATH, in ~/bin and beside the Python that runs; TUFT_TEST_WEED and TUFT_TEST_MOTO name others."""
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

from tuft_server import free_port, wait_until

KEY, SECRET, BUCKET = "test-id", "test-s3cret", "checkpoints"


def find(variable, program):
    if os.environ.get(variable):
        return os.environ[variable]
    beside = os.pathsep.join([os.environ.get("PATH", ""), str(pathlib.Path.home() / "bin"), str(pathlib.Path(sys.executable).parent)])
    return shutil.which(program, path=beside)


def servers():
    """Returns the servers that can be started, by name."""
    found = {"weed": find("TUFT_TEST_WEED", "weed"), "moto": find("TUFT_TEST_MOTO", "moto_server")}
    return {name: path for name, path in found.items() if path}


MISSING = None if servers() else "neither SeaweedFS (weed) nor moto_server is installed"


class S3Server:
    """Has an empty bucket when start() returns."""

    def __init__(self, directory, kind):
        self.directory, self.kind, self.program = pathlib.Path(directory), kind, servers()[kind]
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self.process = free_port(), None
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def command(self):
        if self.kind == "moto":
            return [self.program, "-H", "127.0.0.1", "-p", str(self.port)]
        identity = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (self.directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        ports = []
        for name in ("master", "volume", "filer"):
            ports += [f"-{name}.port={free_port()}", f"-{name}.port.grpc={free_port()}"]
        return [self.program, "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
                f"-s3.port={self.port}", f"-s3.port.grpc={free_port()}", f"-s3.config={self.directory / 's3.json'}",
                "-volume.max=0", "-master.volumeSizeLimitMB=64", *ports]

    def start(self):
        log = open(self.directory / "log", "w")
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.directory)
        wait_until(lambda: self.process.poll() is None and self.request("PUT", "") in (200, 409), 60, f"{self.kind} answers")
        # SeaweedFS makes a volume for the first object, which takes seconds on a busy machine.
        wait_until(lambda: self.request("PUT", "first", b"x") == 200, 60, f"{self.kind} takes an object")
        self.request("DELETE", "first")
        return self

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def request(self, method, key, body=b"", query=()):
        """Returns the status; the body of the answer is in self.answer."""
        now = datetime.datetime.now(datetime.timezone.utc)
        date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        path = urllib.parse.quote(f"/{BUCKET}/{key}" if key or query else f"/{BUCKET}", safe="/-._~")
        encoded = "&".join(sorted(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(v, safe='')}" for k, v in query))
        payload = hashlib.sha256(body).hexdigest()
        headers = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": payload, "x-amz-date": date}
        names = ";".join(sorted(headers))
        canonical = "\n".join([method, path, encoded, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, payload])
        scope = f"{day}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key_bytes = ("AWS4" + SECRET).encode()
        for part in scope.split("/"):
            key_bytes = hmac.new(key_bytes, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key_bytes, text.encode(), hashlib.sha256).hexdigest()
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope},SignedHeaders={names},Signature={signature}"
        request = urllib.request.Request(self.endpoint + path + ("?" + encoded if encoded else ""), data=body or None,
                                         headers=headers, method=method)
        self.answer = b""
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.answer = answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def keys(self, prefix=""):
        """The names of at most 1,000 objects."""
        assert self.request("GET", "", query=[("list-type", "2"), ("prefix", prefix)]) == 200
        return re.findall(r"<Key>([^<]*)</Key>", self.answer.decode())

    def sizes(self, prefix=""):
        """The bytes of each of at most 1,000 objects."""
        names = self.keys(prefix)
        return dict(zip(names, map(int, re.findall(r"<Size>(\d+)</Size>", self.answer.decode())), strict=True))

    def uploads(self):
        """The number of multipart uploads that have not ended."""
        assert self.request("GET", "", query=[("uploads", "")]) == 200
        return self.answer.decode().count("<UploadId>")

    def section(self, directory, **changes):
        """The section bucket: of a configuration."""
        keys = pathlib.Path(directory) / "bucket-keys"
        keys.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        keys.chmod(0o600)
        return {"endpoint": self.endpoint, "name": BUCKET, "prefix": "tuft/", "credentials_file": str(keys), **changes}


class Gate:
    """A port that leads to another one, until it is closed: then connections break, and new ones are refused. With a folder of
    certificates it ends TLS."""

    def __init__(self, port, certificates=None):
        self.target, self.is_open, self.connections, self.tls = port, True, [], None
        if certificates:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if not self.is_open:
                near.close()
                continue
            try:
                near = self.tls.wrap_socket(near, server_side=True) if self.tls else near
            except OSError:
                continue  # a client that does not trust the certificate
            far = socket.create_connection(("127.0.0.1", self.target))
            self.connections += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.is_open = False
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.connections = []

    def open(self):
        self.is_open = True

    def end(self):
        self.close()
        self.listener.close()
