"""The query API and the console's login, with the real SDK: two users, and an operator. Every route of the API below
/api/v1/observe is asked with the other user's ids, and nothing of the other user may be in an answer."""
import gzip
import http.client
import io
import json
import tarfile
import urllib.parse

import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, prompt
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

CAROL, CANARY = "tml-carol", "xylophone"
OBSERVE = "/api/v1/observe/"
# Those that show the server itself, or only the words of metrics.
SHARED = {"whoami", "metrics", "system", "overview"}


def work(server, key, text):
    """Trains two steps, saves and samples. Returns the ids of all that was made."""
    client = service_client(server, key)
    training = client.create_lora_training_client(base_model=MODEL, rank=8)
    for _ in range(2):
        training.forward_backward([datum(text)], "cross_entropy").result()
        training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    saved = training.save_state("kept").result().path
    sampler = training.save_weights_and_get_sampling_client()
    sampler.sample(prompt(text), 1, types.SamplingParams(max_tokens=5, temperature=1.0)).result()
    run = urllib.parse.urlsplit(saved).netloc
    return {"session": client.holder.get_session_id(), "run": run, "path": saved}


class Things:
    """What a user has made, with the clients that keep it alive."""

    def __init__(self, server, key, text):
        self.key, self.raw, self.ids = key, RawClient(server.url, key), work(server, key, text)
        self.ids["trace"] = wait_until(self.find_trace, 20, "the trace of a pass is kept")

    def find_trace(self):
        found = self.ask("traces?from=-1h&operation=forward_backward&name=hf_model.forward_backward&limit=1")
        assert found.status == 200, found
        return found.json["traces"][0]["trace_id"] if found.json["traces"] else None

    def ask(self, what, **kw):
        return self.raw.request("GET", OBSERVE + what, **kw)


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    config = configuration(model_dir, authorized_users={ALICE: "alice", BOB: "bob", CAROL: "carol"},
                           console={"operators": ["carol"]})
    with TuftServer(tmp_path_factory.mktemp("home"), config) as running:
        yield running


@pytest.fixture(scope="module")
def alices(server):
    return Things(server, ALICE, f"a {CANARY} of alice")


@pytest.fixture(scope="module")
def bobs(server):
    return Things(server, BOB, "something of bob")


@pytest.fixture(scope="module")
def operator(server):
    return RawClient(server.url, CAROL)


@pytest.fixture(scope="module")
def routes(operator):
    paths = json.loads(operator.request("GET", "/openapi.json").body)["paths"]
    found = {path: operations["get"] for path, operations in paths.items() if path.startswith(OBSERVE)}
    assert len(found) >= 19
    return found


def known_values(ids):
    return {"trace_id": ids["trace"], "run_id": ids["run"], "session": ids["session"], "run": ids["run"],
            "trace": ids["trace"], "sampler": ids["session"] + ":sample:0", "name": "tuft.futures.created"}


def requests_of(path, operation, ids, user):
    """Yields the route without parameters that need not be there, and with each one that names something of the user."""
    values = {**known_values(ids), "user": user}
    for name, value in values.items():
        path = path.replace("{" + name + "}", value)
    parameters = [one for one in operation.get("parameters", []) if one["in"] == "query"]
    needed = {one["name"]: values[one["name"]] for one in parameters if one["required"]}
    yield path + "?" + urllib.parse.urlencode(needed)
    for one in parameters:
        if one["name"] in values and one["name"] not in needed:
            yield path + "?" + urllib.parse.urlencode({**needed, one["name"]: values[one["name"]]})
    if any(one["name"] == "by" and "enum" in one["schema"] for one in parameters):
        yield path + "?" + urllib.parse.urlencode({**needed, "by": "user"})


def test_no_route_shows_anything_of_another_user(routes, alices, bobs):
    secrets = [alices.ids["session"], alices.ids["run"], alices.ids["trace"], '"alice"', CANARY, ALICE]
    asked = 0
    for path, operation in routes.items():
        for target in requests_of(path, operation, alices.ids, "alice"):
            answer = bobs.raw.request("GET", target)
            assert answer.status in (200, 403, 404), (target, answer)
            # A metric whose series belong to nobody is unknown to a user.
            if "{" not in path and not path.endswith("metrics/query"):
                assert answer.status != 404, (target, answer)
            text = answer.body.decode("utf-8", "replace")
            for secret in secrets:
                assert secret not in text, (target, secret)
            asked += 1
    assert asked >= 40


def test_somebody_elses_id_is_an_unknown_one(routes, alices, bobs):
    for path, operation in routes.items():
        for target in requests_of(path, operation, alices.ids, "alice"):
            never = target.replace(alices.ids["trace"], "f" * 32).replace("alice", "nobody")
            never = never.replace(urllib.parse.quote(alices.ids["session"]), "0" * 8 + alices.ids["session"][8:])
            if never == target:
                continue
            foreign, unknown = bobs.raw.request("GET", target), bobs.raw.request("GET", never)
            assert foreign.status == unknown.status, target
            if foreign.status == 404 or "series" not in target:
                same = [json.dumps(without_times(json.loads(one.body)), sort_keys=True) for one in (foreign, unknown)]
                assert same[0] == same[1], target


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in ("start", "server_time", "step", "newest")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def test_everything_of_ones_own_is_there(alices):
    trace = alices.ask("traces/" + alices.ids["trace"]).json
    names = {span["name"] for span in trace["spans"]}
    assert {"POST /api/v1/forward_backward", "future_store.execute_operation", "hf_model.forward_backward"} <= names
    assert {span["user"] for span in trace["spans"]} == {"alice"}
    assert trace["critical_path"] and trace["explanation"]["parts"], trace["explanation"]
    assert sum(part["share"] for part in trace["explanation"]["parts"]) == pytest.approx(1)
    assert trace["explanation"]["summary"].startswith("It took ")
    perfetto = alices.ask(f"traces/{alices.ids['trace']}/perfetto")
    assert "attachment" in perfetto.headers["Content-Disposition"] and perfetto.json["traceEvents"]
    assert [run["run"] for run in alices.ask("runs").json["runs"]] == [alices.ids["run"]]
    run = alices.ask("runs/" + alices.ids["run"]).json
    assert run["user"] == "alice" and run["alive"] and run["checkpoints"][0]["tinker_path"] == alices.ids["path"]
    session = next(one for one in alices.ask("sessions").json["sessions"] if one["session"] == alices.ids["session"])
    assert session["alive"] and session["runs"] == 1 and 0 < session["busy_share"] <= 1, session
    samplers = alices.ask("samplers").json["samplers"]
    assert samplers and all(one["user"] == "alice" for one in samplers)
    tenants = alices.ask("tenants").json["tenants"]
    assert [one["user"] for one in tenants] == ["alice"] and tenants[0]["tokens"]["train"] > 0
    assert alices.ask("overview").json["users_active"] is None


def test_the_curve_of_a_run(alices):
    steps = wait_until(lambda: alices.ask(f"runs/{alices.ids['run']}/steps").json["steps"], 20, "steps are recorded")
    assert [step["step"] for step in steps if step["step"]] == [1, 2]
    assert steps[0]["loss"] > 0 and steps[0]["learning_rate"] == pytest.approx(1e-3)


def test_an_openai_request_is_its_users_in_server_and_worker(alices, bobs):
    asked = json.dumps({"model": MODEL, "prompt": CANARY, "max_tokens": 5})
    answer = alices.raw.request("POST", "/oai/api/v1/completions", asked, {"Content-Type": "application/json"})
    assert answer.status == 200, answer
    search = "traces?name=oai.proxy_inference&limit=1"
    (trace,) = wait_until(lambda: alices.ask(search).json["traces"], 20, "the request is kept")
    names = wait_until(lambda: {span["name"] for span in alices.ask("traces/" + trace["trace_id"]).json["spans"]}
                       .issuperset({"POST /oai/api/v1/completions", "sampling_controller.run_sample", "PREPROCESS",
                                    "hf_model.sample", "SCHEDULE", "DECODE"}), 20, "the worker's spans are its user's")
    assert names and not bobs.ask(search).json["traces"]


def test_logs_can_be_followed(alices):
    first = alices.ask("logs?limit=1").json
    assert first["logs"] and first["newest"]
    session = alices.raw.session()
    follow = "logs?" + urllib.parse.urlencode({"after": first["newest"], "session": session})
    fresh = wait_until(lambda: alices.ask(follow).json["logs"], 20, "the record of the new session comes")
    assert any(record["event"] == "session.created" for record in fresh)


def test_an_operator_sees_all(operator, alices, bobs):
    def ask(what):
        return operator.request("GET", OBSERVE + what).json
    assert {alices.ids["run"], bobs.ids["run"]} <= {run["run"] for run in ask("runs")["runs"]}
    assert {one["user"] for one in ask("tenants")["tenants"]} == {"alice", "bob", "carol"}
    assert ask("overview")["users_active"] >= 2
    assert ask("traces/" + bobs.ids["trace"])["spans"]
    system = ask("system")
    assert "runs_per_user_max: 256" in system["config"] and system["workers"][0]["metrics"]
    for secret in (ALICE, BOB, CAROL, "sha256:"):
        assert secret not in json.dumps(system)


def test_the_bundle_has_no_secret(operator, alices, bobs):
    answer = operator.request("GET", OBSERVE + "bundle")
    assert answer.status == 200, answer
    assert bobs.ask("bundle").status == 403
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(answer.body))) as archive:
        files = {member.name: archive.extractfile(member).read().decode() for member in archive.getmembers()}
    for name in ("system.json", "config.yaml", "metrics.txt", "logs.jsonl"):
        assert files[f"tuft-bundle/{name}"], name
    assert any("/traces/slow/" in name for name in files)
    for name, text in files.items():
        for secret in (ALICE, BOB, CAROL, CANARY):
            assert secret not in text, name


# ---- the console's sessions


class Browser:
    """Keeps the cookie, as a browser does."""

    def __init__(self, server):
        self.host = urllib.parse.urlsplit(server.url).netloc
        self.cookie = None

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        if cookie := answer.getheader("Set-Cookie"):
            self.cookie = cookie.split(";")[0]
        return answer

    def log_in(self, key):
        answer = self.request("POST", "/console/login", json.dumps({"key": key}), Origin=f"http://{self.host}")
        assert answer.status == 200, answer.text
        return self

    def whoami(self, **headers):
        return self.request("GET", OBSERVE + "whoami", **headers)


@pytest.fixture
def browser(server):
    return Browser(server)


def test_the_cookie_needs_the_header_and_the_own_origin(browser):
    browser.log_in(ALICE)
    assert browser.whoami().status == 401
    assert json.loads(browser.whoami(X_Tuft_Console="1").text)["user"] == "alice"
    assert browser.whoami(X_Tuft_Console="1", Origin=f"http://{browser.host}").status == 200
    assert browser.whoami(X_Tuft_Console="1", Origin="http://evil.example").status == 403
    assert browser.request("GET", "/api/v1/training_runs", X_Tuft_Console="1").status == 200


def test_a_logout_ends_the_session(browser):
    kept = browser.log_in(ALICE).cookie
    assert browser.request("POST", "/console/logout", X_Tuft_Console="1").status == 204
    browser.cookie = kept
    assert browser.whoami(X_Tuft_Console="1").status == 401


def test_refused_logins_are_counted(server, browser):
    before = server.metric("tuft_auth_failures_total")
    answer = browser.request("POST", "/console/login", json.dumps({"key": "tml-wrong"}))
    assert answer.status == 401 and browser.cookie is None
    assert server.metric("tuft_auth_failures_total") == before + 1


def test_a_session_ends_when_its_key_is_revoked(model_dir, tmp_path):
    users = tmp_path / "users.yaml"
    users.write_text("tml-dave: dave\n")
    users.chmod(0o600)
    config = configuration(model_dir, authorized_users_file=str(users))
    with TuftServer(tmp_path / "home", config) as running:
        browser = Browser(running).log_in("tml-dave")
        assert browser.whoami(X_Tuft_Console="1").status == 200
        users.write_text("tml-erin: erin\n")
        wait_until(lambda: browser.whoami(X_Tuft_Console="1").status == 401, 20, "the session of the removed key ends")
        users.write_text("tml-dave: dave\n")
        wait_until(lambda: RawClient(running.url, "tml-dave").get("observe/whoami").status == 200, 20, "the key is back")
        assert browser.whoami(X_Tuft_Console="1").status == 401


def test_the_console_needs_no_key_and_runs_no_foreign_script(browser):
    assert browser.request("GET", "/").getheader("Location").endswith("/console")
    page = browser.request("GET", "/console/traces/anything")
    assert page.status == 200 and page.getheader("Content-Type").startswith("text/html")
    assert "default-src 'none'; script-src 'self'" in page.getheader("Content-Security-Policy")
