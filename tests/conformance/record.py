#!/usr/bin/env python3
"""Records what a Tinker SDK and the server say to each other, for test_recordings.py to send again.

  PYTHONPATH=tests/support .venv/bin/python tests/conformance/record.py [--python OTHER_VENV/bin/python] [PART...]

The SDK is that of --python (this one by default); the parts are those of scenario.py. Each part runs against a fresh server
through a proxy that keeps every exchange, and becomes recordings/<SDK version>-<part>.jsonl. Read the difference before
committing it: a changed answer is a changed promise."""
import argparse
import http.client
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.parse

import tuft_server
from exchanges import SENT, Names, content_type, kept_request, readable, without_chance
from scenario import PARTS
from tuft_server import ALICE, TuftServer, configuration

HERE = pathlib.Path(__file__).resolve().parent
# They are sent at intervals, and their contents depend on the machine and on the time.
LEFT_OUT = ("/api/v1/telemetry", "/api/v1/session_heartbeat", "/api/v1/retrieve_futures")


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, url):
        super().__init__(("127.0.0.1", 0), Passing)
        self.target, self.lock, self.kept, self.names, self.drawn = urllib.parse.urlsplit(url), threading.Lock(), [], Names(), set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def keep(self, handler, body, answer, content):
        """Exchanges are kept in the order of their answers, so everything that an answer depends on precedes it."""
        if handler.path in LEFT_OUT or answer.status == 408:
            return
        with self.lock:
            found = readable(content, answer.headers, handler.headers.get("X-Tinker-Request-Type"))
            self.names.learn(found)
            request = json.loads(body) if body and content_type(handler.headers) == "application/json" else {}
            params = request.get("sampling_params", {})
            if handler.path.endswith("/asample") and params.get("seed") is None and params.get("temperature") != 0:
                self.drawn.add(found.get("request_id"))
            if request.get("request_id") in self.drawn and "sequences" in found:
                found = without_chance(found)
            exchange = {"method": handler.command, "path": self.names.hide(handler.path),
                        "headers": {name: handler.headers[name] for name in SENT if handler.headers[name]},
                        "request": kept_request(body, handler.headers, self.names), "status": answer.status,
                        "type": content_type(answer.headers), "answer": self.names.hide_json(found)}
            self.kept.append(exchange)


class Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(proxy.target.hostname, proxy.target.port, timeout=120)
        connection.request(self.command, self.path, body or None, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        proxy.keep(self, body, answer, content)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = pass_on


def record(python, version, part, directory):
    model = tuft_server.init_model(directory / "tiny", "--family", "qwen3", "--size", "tiny", "--seed", "7")
    with TuftServer(directory / "home", configuration(model)) as server:
        proxy = Proxy(server.url)
        subprocess.run([python, HERE / "scenario.py", proxy.url, ALICE, part], check=True, timeout=120,
                       env={**os.environ, "NO_PROXY": "127.0.0.1,localhost", "HF_HUB_OFFLINE": "1"})
        proxy.shutdown()
    lines = [json.dumps(exchange, separators=(",", ":"), sort_keys=True) for exchange in proxy.kept]
    (HERE / "recordings" / f"{version}-{part}.jsonl").write_text("".join(line + "\n" for line in lines))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    chosen = arguments.parse_args()
    version = subprocess.run([chosen.python, "-c", "import tinker; print(tinker.__version__)"], check=True,
                             capture_output=True, text=True).stdout.strip()
    for part in chosen.parts or PARTS:
        with tempfile.TemporaryDirectory() as directory:
            record(chosen.python, version, part, pathlib.Path(directory))


if __name__ == "__main__":
    main()
