"""Tests the MCP server with the official client: the newest revision and the handshake of older ones."""
import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import sys

import httpx2
import pytest
import tinker
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

import tuft_server
from conftest import service_client
from examples_of_data import datum
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/mcp.md").read_text()
ROOT_KEY = "tml-root"
TOOLS = ["find_traces", "get_trace", "search_logs", "list_metrics", "query_metric", "list_runs", "run_curve", "list_tenants",
         "server_status"]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    changes = {"console": {"operators": ["root"]}, "authorized_users": {**tuft_server.USERS, ROOT_KEY: "root"}}
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir, **changes)) as running:
        yield running


@pytest.fixture(scope="module")
def run_id(server):
    training = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    for _ in range(3):
        training.forward_backward([datum("what alice trains on")], "cross_entropy")
        training.optim_step(tinker.types.AdamParams(learning_rate=1e-3)).result()
    run = training.get_info().model_id
    wait_until(lambda: len(call(server, "find_traces", run=run)["traces"]) >= 6, 30, "the traces of the run are in the store")
    return run


@contextlib.asynccontextmanager
async def connected(server, key, mode="auto", header="bearer"):
    headers = {"Authorization": f"Bearer {key}"} if header == "bearer" else {"X-API-Key": key}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        async with Client(streamable_http_client(server.url + "/mcp", http_client=http), mode=mode) as client:
            yield client


def result_of(server, tool, key=ALICE, mode="auto", header="bearer", arguments=None):
    async def ask():
        async with connected(server, key, mode, header) as client:
            # The client checks the answer against the tool's output schema, if it has the list of tools.
            await client.list_tools()
            return await client.call_tool(tool, arguments or {})
    return asyncio.run(ask())


def call(server, tool, key=ALICE, mode="auto", **arguments):
    result = result_of(server, tool, key, mode, arguments=arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def refusal(server, tool, key=ALICE, **arguments):
    result = result_of(server, tool, key, arguments=arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


@pytest.mark.parametrize("mode", ["auto", "2026-07-28", "legacy"])
def test_the_official_client_finds_and_calls_the_tools(server, run_id, mode):
    async def look():
        async with connected(server, ALICE, mode) as client:
            listed = await client.list_tools()
            status = await client.call_tool("server_status", {})
            return listed.tools, status.structured_content
    tools, status = asyncio.run(look())
    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.annotations.read_only_hint and tool.input_schema["additionalProperties"] is False for tool in tools)
    assert status["ready"] and status["models"][0]["base_model"] == MODEL
    assert status["you"] == {"user": "alice", "operator": False}
    assert status["telemetry_store"]["on_disk"] and "spans" not in status["telemetry_store"]
    assert call(server, "server_status", key=ROOT_KEY, mode=mode)["telemetry_store"]["spans"] > 0


def test_a_slow_trace_is_explained(server, run_id):
    found = call(server, "find_traces", run=run_id, name="future_store.execute_operation", operation="forward_backward", limit=1)
    assert found["next_cursor"]
    trace = call(server, "get_trace", trace_id=found["traces"][0]["trace_id"])
    assert trace["explanation"]["summary"] and trace["explanation"]["parts"]
    assert "training_controller.run_forward_backward" in {span["name"] for span in trace["spans"]}
    names = [piece["name"] for piece in trace["critical_path"]]
    assert names and sum(piece["duration_ms"] for piece in trace["critical_path"]) <= trace["duration_ms"] * 1.01 + 1
    short = call(server, "get_trace", trace_id=found["traces"][0]["trace_id"], spans_max=1, attributes=False)
    assert len(short["spans"]) == 1 and short["spans_total"] == trace["spans_total"]


def test_pages_of_traces_follow_each_other(server, run_id):
    first = call(server, "find_traces", run=run_id, limit=4)
    second = call(server, "find_traces", run=run_id, limit=4, cursor=first["next_cursor"])
    ids = [trace["trace_id"] for page in (first, second) for trace in page["traces"]]
    assert len(ids) == len(set(ids)) > 4


def test_logs_metrics_and_runs(server, run_id):
    logs = call(server, "search_logs", key=ROOT_KEY, event="server.ready")["logs"]
    assert logs[0]["level"] == "info" and "serving tiny" in logs[0]["text"]
    listed = call(server, "list_metrics", key=ROOT_KEY, text="tuft.training.tokens")["metrics"]
    assert any(metric["name"] == "tuft.training.tokens" and metric["type"] == "counter" for metric in listed)

    def increase():
        answer = call(server, "query_metric", key=ROOT_KEY, name="tuft.training.tokens", fn="increase", by=["base_model"],
                      points=5)
        return sum(point or 0 for series in answer["series"] for point in series["points"])

    wait_until(lambda: increase() > 0, 40, "the trained tokens are counted")
    assert run_id in {run["run"] for run in call(server, "list_runs")["runs"]}


def test_the_curve_of_a_run(server, run_id):
    wait_until(lambda: len(call(server, "run_curve", run=run_id)["steps"]) == 3, 30, "the steps are in the store")
    curve = call(server, "run_curve", run=run_id)
    assert [step["step"] for step in curve["steps"]] == [1, 2, 3]
    assert all(step["loss"] > 0 and step["learning_rate"] == 1e-3 for step in curve["steps"]), curve["steps"]
    assert [step["step"] for step in call(server, "run_curve", run=run_id, after=2)["steps"]] == [3]


def test_a_user_sees_nothing_of_another(server, run_id):
    trace_id = call(server, "find_traces", run=run_id)["traces"][0]["trace_id"]
    assert call(server, "find_traces", key=BOB, run=run_id)["traces"] == []
    assert call(server, "find_traces", key=BOB, user="alice")["traces"] == []
    assert call(server, "list_runs", key=BOB)["runs"] == []
    assert [user["user"] for user in call(server, "list_tenants", key=BOB)["users"]] == ["bob"]
    foreign, unknown = refusal(server, "get_trace", BOB, trace_id=trace_id), refusal(server, "get_trace", BOB, trace_id="1" * 32)
    assert foreign.replace(trace_id, "") == unknown.replace("1" * 32, "")
    foreign, unknown = refusal(server, "run_curve", BOB, run=run_id), refusal(server, "run_curve", BOB, run="nobody's")
    assert foreign.replace(run_id, "") == unknown.replace("nobody's", "")
    assert {"alice", "bob"} <= {user["user"] for user in call(server, "list_tenants", key=ROOT_KEY)["users"]}
    assert call(server, "find_traces", key=ROOT_KEY, run=run_id, user="alice")["traces"]


def test_wrong_arguments_are_errors_that_a_model_can_read(server):
    assert "there is no argument 'sesion'" in refusal(server, "find_traces", sesion="x")
    assert "between 1 and 100" in refusal(server, "find_traces", limit=1000)
    assert "32 digits" in refusal(server, "get_trace", trace_id="../../etc")
    assert "no metric of this name" in refusal(server, "query_metric", ROOT_KEY, name="tuft.nothing", fn="last")


def post(server, body, key=ALICE, **headers):
    standard = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    text = body if isinstance(body, str) else json.dumps(body)
    sent = {**standard, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return RawClient(server.url, key).request("POST", "/mcp", text, {k: v for k, v in sent.items() if v is not None})


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}


def test_requests_need_a_key(server):
    assert post(server, LIST).status == 200
    assert post(server, LIST, key=None).status == 401
    assert post(server, LIST, key="tml-wrong").status in (401, 403)
    assert post(server, LIST, key=None, Authorization=f"Bearer {ALICE}").status == 200
    assert call(server, "server_status", key=BOB)["you"]["user"] == "bob"
    assert result_of(server, "server_status", BOB, header="x-api-key").structured_content["you"]["user"] == "bob"


def test_pages_of_other_sites_are_refused(server):
    assert post(server, LIST, Origin="https://evil.example").status == 403
    assert post(server, LIST, Origin="null").status == 403
    assert post(server, LIST, Origin=server.url).status == 200


def test_there_is_no_stream_and_no_session(server):
    answer = RawClient(server.url, ALICE).request("GET", "/mcp", headers={"Accept": "text/event-stream"})
    assert answer.status == 405 and answer.headers["Allow"] == "POST"
    assert RawClient(server.url, ALICE).request("DELETE", "/mcp").status == 405
    assert post(server, LIST).headers.get("Mcp-Session-Id") is None


def test_the_transport_follows_the_specification(server):
    assert post(server, "{").json["error"]["code"] == -32700
    batch = post(server, [LIST])
    assert batch.status == 400 and batch.json["error"]["code"] == -32600
    assert post(server, LIST, Mcp_Method="tools/call").json["error"]["code"] == -32020
    assert post(server, LIST, Mcp_Method=None).status == 400
    unknown = post(server, {**LIST, "method": "prompts/list"}, Mcp_Method="prompts/list")
    assert unknown.status == 404 and unknown.json["error"]["code"] == -32601
    other = {**LIST, "params": {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "1999-01-01"}}}
    refused = post(server, other, MCP_Protocol_Version="1999-01-01")
    assert refused.status == 400 and refused.json["error"]["data"]["supported"] == ["2026-07-28"]
    noted = post(server, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}})
    assert noted.status == 202 and noted.body == b""
    assert post(server, LIST, Content_Type="text/plain").status == 415
    assert post(server, json.dumps(LIST) + " " * 70_000).status == 413


def test_the_example_of_the_page_runs(server, tmp_path):
    example = re.search(r"(?ms)^```python\n(.*?)^```$", PAGE).group(1)
    assert "http://127.0.0.1:10610" in example and "tml-alice" in example
    (tmp_path / "example.py").write_text(example.replace("http://127.0.0.1:10610", server.url))
    run = subprocess.run([sys.executable, tmp_path / "example.py"], capture_output=True, text=True, timeout=60)
    assert run.stdout == "True\n", run.stderr


def test_the_page_lists_the_tools():
    assert re.findall(r"(?m)^\| `(\w+)` \|", PAGE) and sorted(re.findall(r"(?m)^\| `(\w+)` \|", PAGE)) == sorted(TOOLS)
