#!/usr/bin/env python3
"""The same records through OpenTelemetry's Python SDK, as TuFT uses it: batch processors, OTLP over gRPC. Requires an
interpreter with opentelemetry-sdk and opentelemetry-exporter-otlp-proto-grpc. Speaks the protocol of
recording_runner.h."""
import json
import logging
import sys
import time

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

BURST = 1500
SESSION = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49"


class Recorder:
    def __init__(self, endpoint):
        self.traces = TracerProvider()
        self.traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint), max_queue_size=32768,
                                                          schedule_delay_millis=1000))
        self.metrics = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))])
        self.logs = LoggerProvider()
        self.logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=endpoint),
                                                                   max_queue_size=32768))
        self.tracer = self.traces.get_tracer("tuft.bench")
        meter = self.metrics.get_meter("tuft")
        counter, histogram = meter.create_counter("tuft.futures.created"), meter.create_histogram("tuft.futures.wait_time")
        logger = logging.getLogger("tuft.bench")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(LoggingHandler(logger_provider=self.logs))
        self.operations = {
            "span": self.span,
            "counter": lambda i: counter.add(1, {"operation_type": "sample"}),
            "histogram": lambda i: histogram.record((i % 1000) * 0.001, {"operation_type": "sample"}),
            "log": lambda i: logger.info("operation accepted", extra={"tuft.request_id": SESSION,
                                                                      "tuft.operation_type": "sample",
                                                                      "tuft.seq_id": 3}),
        }

    def span(self, i):
        self.tracer.start_span("hf_model.forward_backward", attributes={
            "tuft.session_id": SESSION, "tuft.training_run_id": SESSION, "tuft.lora_id": SESSION,
            "tuft.backward": True, "tuft.data_count": i, "tuft.num_micro_batches": 1}).end()

    def drain(self):
        self.traces.force_flush(10000)
        self.logs.force_flush(10000)

    def measure(self, operation, count):
        count = min(count, 6000)  # its exporter sends about 10,000 spans a second
        seconds, done = 0.0, 0
        while done < count:
            self.drain()
            begin = time.perf_counter()
            for i in range(BURST):
                operation(done + i)
            seconds += time.perf_counter() - begin
            done += BURST
        return dict(seconds=seconds, operations=done)

    def pace(self, rate, seconds):
        self.drain()
        process, thread = time.process_time(), time.thread_time()
        end, following, done = time.monotonic() + seconds, time.monotonic(), 0
        while time.monotonic() < end:
            for _ in range(int(rate / 100)):
                self.span(done)
                done += 1
            following += 0.01
            time.sleep(max(0.0, following - time.monotonic()))
        recording = time.thread_time() - thread
        self.drain()
        return dict(cpu_seconds=time.process_time() - process, recording_cpu_seconds=recording, operations=done)

    def close(self):
        for provider in (self.traces, self.metrics, self.logs):
            provider.shutdown()
        return {}

    def answer(self, asked):
        operation = asked["op"]
        if operation == "pace":
            return self.pace(asked["rate"], asked["seconds"])
        if operation == "close":
            return self.close()
        if operation not in self.operations:
            return {"error": f"no operation {operation}"}
        return self.measure(self.operations[operation], asked["count"])


def main():
    recorder = Recorder(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(recorder.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
