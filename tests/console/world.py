"""A server under the demo's load: two users, an operator, training and sampling by the real SDK, and failures."""

import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import tuft_server
from tuft_server import MODEL, TuftServer, clean_environment, configuration, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"
ALICE, BOB, OPERATOR = "tml-alice", "tml-bob", "tml-operator"
USERS = {ALICE: "alice", BOB: "bob", OPERATOR: "operator"}
# The spans of operations, which the console lists first.
OPERATION = "future_store.execute_operation|oai.proxy_inference"


class User:
    """Requests of a user, who may have a program of the SDK that keeps its session."""

    def __init__(self, url, key):
        self.url, self.key, self.name = url, key, USERS[key]
        self.program = None

    def run_program(self, steps, rate):
        environment = {**clean_environment(), "TINKER_API_KEY": self.key, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
        command = [PYTHON, pathlib.Path(__file__).with_name("load.py"), "--url", self.url, "--model", MODEL, "--hold"]
        command += ["--steps", str(steps), "--learning-rate", str(rate)]
        self.program = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def wait(self):
        """Waits for the end of the load, and takes over the ids of what it made."""
        made = json.loads(self.program.stdout.readline())
        self.session, self.run = made["session"], made["run"]
        self.state, self.weights = made["state"], made["weights"]
        self.trace = wait_until(lambda: self.traces(name="hf_model.forward_backward"), 30, "a pass is kept")[0]["trace_id"]

    def step(self):
        """Trains one more step, and returns when it is done."""
        self.program.stdin.write("step\n")
        self.program.stdin.flush()
        assert self.program.stdout.readline() == "{}\n"

    def request(self, method, path, body=None):
        """Returns the status and the parsed body of an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-Key": self.key, **({"Content-Type": "application/json"} if data else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def observe(self, path, **query):
        status, answer = self.request("GET", f"/api/v1/observe/{path}?{urllib.parse.urlencode(query)}")
        assert status == 200, (path, status, answer)
        return answer

    def traces(self, **query):
        return self.observe("traces", **query)["traces"]

    def complete(self, model=MODEL, tokens=8, **more):
        body = {"model": model, "prompt": "The harbour master", "max_tokens": tokens, **more}
        return self.request("POST", "/oai/api/v1/completions", body)

    def fail(self):
        """An operation that the server accepts and cannot do, and a request that it refuses."""
        session = self.request("POST", "/api/v1/create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0.25.0",
                                                                  "type": "create_session"})[1]["session_id"]
        sampler = self.request("POST", "/api/v1/create_sampling_session", {
            "session_id": session, "sampling_session_seq_id": 0, "base_model": MODEL,
            "type": "create_sampling_session"})[1]["sampling_session_id"]
        status, _ = self.request("POST", "/api/v1/asample", {
            "sampling_session_id": sampler, "seq_id": 0, "num_samples": 1, "prompt": {"chunks": [
                {"type": "encoded_text", "tokens": [10**6]}]}, "prompt_logprobs": False, "topk_prompt_logprobs": 0,
            "sampling_params": {"max_tokens": 4, "temperature": 1.0, "top_k": -1, "top_p": 1.0}, "type": "sample"})
        assert status in (200, 202), status
        assert self.complete(model="no-such-model")[0] == 404
        wait_until(lambda: self.traces(status="error", name=OPERATION), 30, "the failure is kept")

    def end(self):
        if self.program is None:
            return
        self.program.stdin.close()
        self.program.stdout.close()
        self.program.wait(timeout=60)


class World:
    """Users: alice and bob, who trained and sampled, and the operator, who only looks."""

    def __init__(self, folder, size="tiny", steps=12, **changes):
        os.environ["NO_PROXY"] = "127.0.0.1,localhost"
        model = tuft_server.init_model(folder / "model", "--family", "qwen3", "--size", size, "--seed", "7")
        config = configuration(model, authorized_users=USERS, console={"operators": ["operator"]}, **changes)
        self.server = TuftServer(folder / "home", config).start()
        self.url = self.server.url
        self.operator = User(self.url, OPERATOR)
        self.users = self.alice, self.bob = User(self.url, ALICE), User(self.url, BOB)
        try:
            self.load(steps)
        except BaseException:
            self.stop()
            raise

    def load(self, steps):
        for user, rate in zip(self.users, (2e-3, 5e-4), strict=True):
            user.run_program(steps, rate)
        for user in self.users:
            user.wait()
            user.complete()
            user.fail()

    def stop(self):
        for user in self.users:
            user.end()
        self.server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
