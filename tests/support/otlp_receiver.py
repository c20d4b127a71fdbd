"""An OTLP gRPC collector in the test process: keeps every request, raw and parsed."""
import socket
import threading
from concurrent import futures

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

SERVICES = {
    "traces": ("opentelemetry.proto.collector.trace.v1.TraceService", trace_service_pb2.ExportTraceServiceRequest,
               trace_service_pb2.ExportTraceServiceResponse),
    "metrics": ("opentelemetry.proto.collector.metrics.v1.MetricsService", metrics_service_pb2.ExportMetricsServiceRequest,
                metrics_service_pb2.ExportMetricsServiceResponse),
    "logs": ("opentelemetry.proto.collector.logs.v1.LogsService", logs_service_pb2.ExportLogsServiceRequest,
             logs_service_pb2.ExportLogsServiceResponse),
}


def attributes(pairs):
    """Converts KeyValue pairs to a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


class SpanSeen:
    def __init__(self, span, scope, resource):
        self.name, self.scope, self.resource = span.name, scope, resource
        self.trace_id, self.span_id, self.parent_id = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start, self.end, self.kind, self.status = span.start_time_unix_nano, span.end_time_unix_nano, span.kind, span.status.code
        self.attributes, self.events = attributes(span.attributes), [event.name for event in span.events]
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]

    def __repr__(self):
        return f"{self.name} ({self.span_id} below {self.parent_id or 'nothing'})"


class LogSeen:
    def __init__(self, record, resource):
        self.body, self.severity, self.resource = record.body.string_value, record.severity_text, resource
        self.trace_id, self.span_id = record.trace_id.hex(), record.span_id.hex()
        self.event, self.attributes = record.event_name, attributes(record.attributes)


class OtlpReceiver:
    def __init__(self, port=0):
        self.lock, self.raw = threading.Lock(), {signal: [] for signal in SERVICES}
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = [grpc.method_handlers_generic_handler(name, {"Export": grpc.unary_unary_rpc_method_handler(
            self._receiver(signal, answer))}) for signal, (name, _, answer) in SERVICES.items()]
        self.server.add_generic_rpc_handlers(handlers)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.server.start()

    def _receiver(self, signal, answer):
        def receive(request, _context):
            with self.lock:
                self.raw[signal].append(request)
            return answer().SerializeToString()
        return receive

    def stop(self):
        self.server.stop(1)

    def requests(self, signal):
        with self.lock:
            raw = list(self.raw[signal])
        return [SERVICES[signal][1].FromString(one) for one in raw]

    def all_bytes(self):
        with self.lock:
            return b"".join(one for requests in self.raw.values() for one in requests)

    def spans(self):
        return [SpanSeen(span, scoped.scope.name, attributes(group.resource.attributes))
                for request in self.requests("traces") for group in request.resource_spans
                for scoped in group.scope_spans for span in scoped.spans]

    def logs(self):
        return [LogSeen(record, attributes(group.resource.attributes))
                for request in self.requests("logs") for group in request.resource_logs
                for scoped in group.scope_logs for record in scoped.log_records]

    def metrics(self):
        """Returns (metric, resource) pairs."""
        return [(metric, attributes(group.resource.attributes))
                for request in self.requests("metrics") for group in request.resource_metrics
                for scoped in group.scope_metrics for metric in scoped.metrics]


class HangingCollector:
    """Accepts connections and never answers."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.open, self.stopping = [], False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.stopping:
            try:
                self.open.append(self.socket.accept()[0])
            except OSError:
                return

    def stop(self):
        self.stopping = True
        for connection in [self.socket, *self.open]:
            connection.close()
