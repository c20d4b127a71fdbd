// Traces one request through two threads of a front end and, over ZeroMQ, the engine in another process:
//
//   sample Req r1
//   +- http(host:.. | pid:..)          PREPROCESS
//   +- scheduler(host:.. | pid:..)     SCHEDULE      links to PREPROCESS
//   +- engine [TP 0] (host:.. | ..)    PREFILL       links to SCHEDULE
//                                      DECODE        links to PREFILL, events "token"
//                                      POSTPROCESS   links to DECODE
//
//   TRACES_ENABLE=true TRACES_EXPORTER=console ./request_trace
//   TRACES_ENABLE=true EXPORTER_OTLP_ENDPOINT=http://localhost:4317 FD_SERVICE_NAME=demo ./request_trace
#include "tuft/telemetry/request_trace.h"

#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <zmq.hpp>

using namespace tuft::telemetry;

namespace {

// The message between the processes: the request, and its trace context as a short text.
struct Message {
  std::string rid;
  std::string trace;
  std::string body;
};

void send(zmq::socket_t& socket, const Message& message) {
  socket.send(zmq::buffer(message.rid), zmq::send_flags::sndmore);
  socket.send(zmq::buffer(message.trace), zmq::send_flags::sndmore);
  socket.send(zmq::buffer(message.body), zmq::send_flags::none);
}

std::string receive_part(zmq::socket_t& socket) {
  zmq::message_t part;
  if (!socket.recv(part, zmq::recv_flags::none)) return {};
  return part.to_string();
}

Message receive(zmq::socket_t& socket) {
  Message message;
  message.rid = receive_part(socket);
  message.trace = receive_part(socket);
  message.body = receive_part(socket);
  return message;
}

// ---- the engine's process

void run_engine(const std::string& address) {
  if (!process_tracing_init().ok()) return;
  trace_set_thread_info("engine", /*tp_rank=*/0);
  zmq::context_t zmq;
  zmq::socket_t socket(zmq, zmq::socket_type::rep);
  socket.connect(address);
  const Message request = receive(socket);
  const std::string& rid = request.rid;

  trace_set_proc_propagate_context(rid, request.trace);

  trace_slice_start(TraceSpanName::PREFILL, rid);
  trace_slice_add_attr(rid, {{"tokens", request.body.size()}});
  trace_slice_end(TraceSpanName::PREFILL, rid);

  trace_slice_start(TraceSpanName::DECODE, rid);
  std::string answer;
  for (int position = 0; position < 3; ++position) {
    answer += '!';
    trace_event("token", rid, 0, {{"position", position}});
  }
  trace_slice_end(TraceSpanName::DECODE, rid, {.attributes = {{"tokens", answer.size()}}});

  trace_slice_start(TraceSpanName::POSTPROCESS, rid);
  answer = request.body + answer;
  // The thread's last slice: it ends the thread's span, and this process removes the request.
  trace_slice_end(TraceSpanName::POSTPROCESS, rid, {.thread_finish = true});

  send(socket, {rid, "", answer});
  process_tracing_shutdown();
}

// ---- the front end's process

// Runs on the scheduler's thread: waits for the engine and returns its answer.
std::string schedule(zmq::socket_t& socket, const std::string& rid, std::string prompt, const TraceProcContext& trace) {
  trace_set_thread_info("scheduler");
  trace_set_proc_propagate_context(rid, trace);
  trace_slice_start(TraceSpanName::SCHEDULE, rid);
  Message request{rid, trace_get_proc_propagate_context(rid).to_json(), std::move(prompt)};
  trace_slice_end(TraceSpanName::SCHEDULE, rid, {.thread_finish = true});
  send(socket, request);
  return receive(socket).body;
}

bool run_front_end(const std::string& address) {
  if (!process_tracing_init().ok()) return false;
  trace_set_thread_info("http");
  zmq::context_t zmq;
  zmq::socket_t socket(zmq, zmq::socket_type::req);
  socket.bind(address);
  const std::string rid = "r1";

  trace_req_start(rid, {}, 0, "sample");
  trace_slice_start(TraceSpanName::PREPROCESS, rid);
  const std::string prompt = "hello";
  const TraceProcContext trace = trace_get_proc_propagate_context(rid);
  trace_slice_end(TraceSpanName::PREPROCESS, rid, {.thread_finish = true});

  // Only one thread at a time may use a socket; the future passes it there and back.
  const std::string answer = std::async(std::launch::async, [&] { return schedule(socket, rid, prompt, trace); }).get();

  trace_req_finish(rid, 0, {{"finish_reason", "length"}, {"tokens", answer.size() - prompt.size()}});
  std::printf("%s -> %s\n", prompt.c_str(), answer.c_str());
  process_tracing_shutdown();
  return answer == "hello!!!";
}

}  // namespace

int main() {
  std::string folder = "/tmp/request_trace.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const std::string address = "ipc://" + folder + "/engine";
  // Must come before other threads start. Each process starts its own telemetry.
  const pid_t engine = ::fork();
  if (engine < 0) return 1;
  if (engine == 0) {
    run_engine(address);
    return 0;
  }
  const bool good = run_front_end(address);
  int status = 0;
  ::waitpid(engine, &status, 0);
  ::unlink((folder + "/engine").c_str());
  ::rmdir(folder.c_str());
  return good && status == 0 ? 0 : 1;
}
