"""FastDeploy's page on tracing, read from its first line to its last."""

import pathlib

import reader
from back_ends import JAEGER, search_page, start_jaeger, trace_with, traces
from tuft_server import wait_until

ROUTE = "POST /oai/api/v1/chat/completions"
STAGES = ["PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"]
VARIABLES = """export TRACES_ENABLE=true
export FD_SERVICE_NAME=FastDeploy
export FD_HOST_NAME=trace_test
export TRACES_EXPORTER=otlp
export EXPORTER_OTLP_ENDPOINT=http://localhost:4317
export EXPORTER_OTLP_HEADERS="Authentication=Txxxxx"
export OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc
"""
CHAT = """curl -s http://localhost:10610/oai/api/v1/chat/completions -H 'Authorization: Bearer tml-reader' \\
  -H 'Content-Type: application/json' \\
  -d '{"model": "small", "max_tokens": 16, "messages": [{"role": "user", "content": "When does the ferry leave?"}]}'"""
FILE = """import collections, json
spans = [span for line in open("/tmp/otel_trace.json") for resource in json.loads(line)["resourceSpans"]
         for scope in resource["scopeSpans"] for span in scope["spans"]]
print(len(spans), "spans;", *sorted(collections.Counter(span["name"] for span in spans if span["name"].isupper()).items()))
"""


def walk(page):
    page.step("1. Install the dependencies")
    page.say("None: the server and its worker are two programs with everything in them.")
    page.run("tuft --version", expect="tuft")
    page.step("2. Start the Collector and Jaeger")
    page.say(
        "The document starts containers, which cannot run here. `deploy/jaeger/compose.yaml` is our file for that. The same "
        "programs, with the configuration that the containers get:"
    )
    start_jaeger(page)
    serve(page)
    requests(page)
    own_code(page)
    flags(page)


def serve(page):
    page.step("3. Configure the variables, and start the server")
    reader.make_models(page)
    page.say("The server's file has no telemetry block: the variables alone switch tracing on.")
    page.file("tuft_config.yaml", reader.MODELS)
    page.file("tracing.sh", VARIABLES, "sh")
    reader.launch(page, f"bash -c 'source /tmp/reader/tracing.sh && exec {reader.LAUNCH}'")


def requests(page):
    page.step("4. Send requests")
    page.run(CHAT, expect='"finish_reason"')
    page.run(
        CHAT.replace('"max_tokens": 16', '"max_tokens": 16, "stream": true'), head=4, tail=3, expect=r"data: \[DONE\]"
    )
    page.step("4. View the traces in Jaeger")
    trace = trace_with("FastDeploy", STAGES)
    page.see(search_page("FastDeploy"), "search", "The requests in Jaeger's search", [ROUTE], window=(1500, 1000))
    page.say("One request with the five stages on the threads that worked for it:")
    page.see(f"{JAEGER}/trace/{trace}", "trace", "The trace of an OpenAI request", STAGES, window=(1500, 670))
    page.step("4. The file that the Collector writes")
    page.file("spans.py", FILE, "python")
    page.run("python /tmp/reader/spans.py", expect=STAGES)


def own_code(page):
    page.step("Tracing in one's own code: 4.1 to 4.5")
    page.say(
        "[request_trace.cc](../../examples/request_trace.cc) uses every call of the document: "
        "`process_tracing_init`, `trace_set_thread_info`, `trace_req_start`, slices with `.thread_finish`, events and attributes "
        "in two processes that pass the context over ZeroMQ."
    )
    page.run("grep -nE 'process_tracing_init|trace_[a-z_]+\\(' examples/request_trace.cc", head=30)
    page.run(
        "source /tmp/reader/tracing.sh; FD_SERVICE_NAME=own-code build/release/examples/request_trace",
        expect="hello!!!",
    )
    trace = trace_with("own-code", STAGES)
    page.step("Extending: the hierarchy, and the names of stages")
    page.say("Request, thread and slice are the three levels; the engine's thread is in another process.")
    page.see(
        f"{JAEGER}/trace/{trace}",
        "own",
        "The trace of one's own program",
        [*STAGES, "sample Req r1"],
        window=(1500, 520),
    )


def flags(page):
    page.step("The flags in the place of the variables")
    page.stop("tuft")
    reader.launch(page, f"{reader.LAUNCH} --trace-enable --otlp-traces-endpoint http://localhost:4317")
    page.run(CHAT, show=False)
    page.say("The service has the default name now:")
    wait_until(lambda: traces("tuft"), 60, "traces of the service tuft")
    page.run(f"curl -s {JAEGER}/api/services", expect="tuft")
    page.stop("tuft")
    pathlib.Path("/tmp/otel_trace.json").unlink()
