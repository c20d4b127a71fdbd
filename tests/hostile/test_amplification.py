"""What a request costs the server and its workers, for each route and each field that a client controls. The budgets are
in budgets.py. TUFT_LAB=1, as the lab sets it, attacks with larger bodies, and also with what is known to cost more."""
import json
import os
import urllib.request

import pytest
import zstandard
from tinker.proto import tinker_public_pb2 as pb

import lab_results
from budgets import KNOWN, budget_of
from meter import Cost, Meter
from raw_client import PROTOBUF, RawClient, forward_backward
from shapes import TEXTS, Attack, Description, attacks, protobuf_attacks, query_attacks
from tuft_server import ALICE, MODEL, TuftServer, configuration, init_model

LAB = bool(os.environ.get("TUFT_LAB"))
BODY = 16 << 20 if LAB else 1 << 20
pytestmark = pytest.mark.timeout(7200 if LAB else 300)


def known_reason(name):
    return next((reason for pattern, reason in KNOWN.items() if pattern.search(name)), None)


def left_out(name, decoded=0):
    """Known attacks run in the lab only, and with small bodies, because some would take hours."""
    return known_reason(name) is not None and (not LAB or decoded > 512 << 10)


class Bench:
    """A server, and a client that notes what each attack costs."""

    def __init__(self, server):
        self.server, self.meter, self.rows, self.left_out = server, Meter(server), [], 0
        with urllib.request.urlopen(server.url + "/openapi.json") as answer:
            self.description = Description(json.load(answer), self.known)

    def known(self):
        client = RawClient(self.server.url, ALICE, timeout=300)  # a former one's connection may have been idle too long
        session = client.session()
        model = client.model(MODEL, session)
        sampler = client.sampler(session, base_model=MODEL).json["sampling_session_id"]
        return {"session_id": session, "base_model": MODEL, "model": MODEL, "seq_id": 1 << 20, "model_id": model,
                "run_id": model, "sampling_session_id": sampler, "sampler_id": sampler, "kind": "weights", "name": "a"}

    def run(self, attack):
        if left_out(attack.name, attack.decoded):
            self.left_out += 1
            return
        self.meter.begin()
        answer = RawClient(self.server.url, ALICE, timeout=300).request(
            attack.method.upper(), attack.path, attack.body or None,
            {"Authorization": f"Bearer {ALICE}", **attack.headers})
        assert answer.status < 500, (attack.name, answer)
        self.note(attack.name, attack.route, len(attack.body) or len(attack.path), attack.decoded, answer.status)

    def note(self, name, route, wire, decoded, status):
        cost = self.meter.end()
        cost.kept = 0  # the allocator keeps what one request freed; test_what_repeated_requests_leave_behind tells
        self.rows.append((name, route, wire, decoded, status, cost))

    def check(self, what):
        over, known = [], {}
        for name, route, wire, decoded, status, cost in self.rows:
            excess = budget_of(route).excess(cost, wire, decoded)
            line = f"{name} ({wire} bytes, {decoded} decoded, answer {status}): {cost}; over in {excess}"
            if known_reason(name):
                known.setdefault(known_reason(name), []).extend([line] if excess else [])
            elif excess:
                over.append(line)
        for row in sorted(self.rows, key=lambda one: -one[5].cpu_ns)[:5]:
            print(f"{row[0]} ({row[2]} bytes, answer {row[4]}): {row[5]}")
        for reason, lines in known.items():
            print(f"known, {reason}: {len(lines)} over their budget" if lines else f"no longer over: {reason}")
        print(f"{len(self.rows)} requests, {len(over)} over their budget")
        worst = max(self.rows, key=lambda one: one[5].cpu_ns, default=None)
        if worst:
            known_ones = f"{sum(map(len, known.values()))} known" if LAB else f"{self.left_out} known ones left out"
            lab_results.note("amplification", what, len(self.rows), f"{len(over)} over their budget, {known_ones}; the most: "
                             f"{worst[5]}, {worst[0]}")
        assert not over, "\n".join(over)


@pytest.fixture(scope="module")
def bench(model_dir, tmp_path_factory):
    limits = {"sessions_per_user_max": 100000, "runs_per_user_max": 1000}
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir, limits=limits)) as server:
        yield Bench(server)


@pytest.fixture(autouse=True)
def fresh_rows(bench):
    bench.rows, bench.left_out = [], 0


def test_each_field_of_each_body_costs_at_most_its_budget(bench):
    sizes = {"plain": 64 << 10, "zstd": BODY} | ({"small zstd": 256 << 10} if LAB else {})
    for attack in attacks(bench.description, sizes, thorough=LAB):
        bench.run(attack)
    assert len(bench.rows) > 1000, "openapi.json has lost its fields"
    bench.check("each field of each JSON body")


def test_each_parameter_of_each_route_costs_at_most_its_budget(bench):
    for attack in query_attacks(bench.description):
        bench.run(attack)
    bench.check("each parameter of each route")


def in_worker(bench, name, message, zstd=False):
    """Runs a pass in a run of its own, and notes what it costs server and worker together."""
    if left_out(name):
        bench.left_out += 1
        return
    client = RawClient(bench.server.url, ALICE, timeout=300)
    model = client.model(MODEL)
    body = message(model)
    decoded = len(body)
    headers = {"Content-Encoding": "zstd"} if zstd else {}
    body = zstandard.compress(body) if zstd else body
    bench.meter.begin()
    submitted = client.post_protobuf("forward_backward", body, headers)
    assert submitted.status < 500, (name, submitted)
    if submitted.status in (200, 202):
        submitted = client.result(submitted, protobuf=True)
        assert submitted.headers["Content-Type"] == PROTOBUF or submitted.json.get("category") == "user", (name, submitted)
    bench.note(name, "/api/v1/forward_backward", len(body), decoded, submitted.status)
    client.result(client.post("unload_model", {"model_id": model, "type": "unload_model"}))


def test_each_field_of_the_protobuf_body_costs_at_most_its_budget(bench):
    for zstd in (False, True):
        size, form = (BODY, "zstd") if zstd else (64 << 10, "plain")
        for field, shape, _ in protobuf_attacks("x", 64):
            def message(model, field=field, shape=shape):
                found = protobuf_attacks(model, size)
                return next(body for path, how, body in found if (path, how) == (field, shape))
            in_worker(bench, f"POST /api/v1/forward_backward {field}: {shape}, protobuf {form}", message, zstd)
    bench.check("each field of the protobuf body")


@pytest.mark.parametrize("cells", [1 << 16, 1 << 22, 1 << 26])
def test_a_sparse_tensor_costs_what_its_bytes_and_not_what_its_shape_say(bench, cells):
    def message(model):
        request = forward_backward(model, 1)
        columns = cells // 4
        for name, dtype in (("target_tokens", pb.DTYPE_INT64), ("weights", pb.DTYPE_FLOAT32)):
            request.data[0].loss_fn_inputs[name].CopyFrom(pb.Tensor(
                dtype=dtype, shape=[4, columns], sparse_csr=pb.SparseCsr(crow_indices=bytes(40))))
        return request.SerializeToString()
    in_worker(bench, f"POST /api/v1/forward_backward sparse_csr: {cells} cells", message)
    bench.check("sparse tensors")


def test_a_text_costs_a_tokenizer_at_most_its_budget(tmp_path):
    """The tokenizer normalizes as Qwen's does. The texts are short enough to be encoded, and have too many tokens to run."""
    model = init_model(tmp_path / "model", "--family", "qwen3", "--size", "tiny", "--max-position", "30000")
    file = model / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": {"type": "NFC"}}))
    with TuftServer(tmp_path / "home", configuration(model, model={"max_model_len": 30000})) as server:
        bench, route = Bench(server), "/oai/api/v1/completions"
        for shape, text in TEXTS.items():
            body = json.dumps({"model": MODEL, "prompt": text(128 << 10), "max_tokens": 1}, ensure_ascii=False).encode()
            bench.run(Attack("post", route, route, "prompt", shape, "plain", body, {"Content-Type": "application/json"},
                             len(body)))
            assert bench.rows[-1][4] == 400, bench.rows[-1]
        bench.check("texts for a tokenizer")


def test_what_repeated_requests_leave_behind(bench):
    """Sends the attacks of a route again and again; what stays after the first time must not grow with their number."""
    for attack in attacks(bench.description, {"plain": 16 << 10}):
        if attack.shape not in ("long string", "empty strings") or left_out(attack.name):
            continue
        repeat(bench, attack, 2)
        bench.meter.begin()
        status = repeat(bench, attack, 10)
        cost = bench.meter.end()
        bench.rows.append((f"{attack.name}, 10 times", attack.route, 10 * len(attack.body), 10 * attack.decoded, status,
                           Cost(cpu_ns=cost.cpu_ns, peak=0, kept=cost.kept)))
    bench.check("repeated requests")


def repeat(bench, attack, times):
    client = RawClient(bench.server.url, ALICE)
    for _ in range(times):
        answer = client.request(attack.method.upper(), attack.path, attack.body,
                                {"Authorization": f"Bearer {ALICE}", **attack.headers})
        assert answer.status < 500, (attack.name, answer)
    return answer.status
