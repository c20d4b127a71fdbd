#include "actor/supervised_actor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "metrics/workers.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::actor {
namespace {

constexpr size_t kUnixPathMax = 107;  // sockaddr_un
constexpr Nanos kSocketPoll = 10 * kMillisecond;
// A worker that lived this long restarts without a delay after its death.
constexpr Nanos kHealthyLife = 30 * kSecond;
// A worker that left so many health checks in a row unanswered is not ready. One may be late because the machine is
// busy.
constexpr int kUnansweredMax = 3;

telemetry::Tracer tracer() {
  static const telemetry::Tracer of_actor = telemetry::get_tracer("tuft.actor");
  return of_actor;
}

Nanos now() {
  return system_clock().monotonic();
}

// A health check in progress. Shared with the gRPC thread that receives the answer.
struct Question {
  enum class Outcome : uint8_t { kOpen, kAnswered, kFailed };
  grpc::ClientContext context;
  worker::v1::DescribeRequest request;
  worker::v1::DescribeResponse response;
  std::string failure;  // written before outcome
  std::atomic<Outcome> outcome{Outcome::kOpen};
};

std::shared_ptr<grpc::Channel> open_channel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(rpc::kMessageBytesMax);
  arguments.SetMaxSendMessageSize(rpc::kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // an operation that may have run must not run again
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
  // The first channel of the process is never closed. When the last channel closes, gRPC 1.51 stops the threads that
  // run callbacks and joins a poller that may sleep for ten more seconds. When the next channel starts the threads
  // again, this sometimes aborts.
  // "used": the pointer is kept, too, so that leak checkers find the channel.
  [[gnu::used]] static const auto* const kept = new std::shared_ptr<grpc::Channel>(channel);
  return channel;
}

}  // namespace

struct SupervisedActorImpl::Life {
  ChildProcess process;
  uint64_t incarnation;
  std::string socket;
  Nanos started;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Question> question;
  telemetry::Span span;  // ends when the worker is ready
  Nanos asked = 0;       // when the newest health check began
  int unanswered = 0;    // health checks, since the newest answer
  bool ready = false;
};

SupervisedActorImpl::SupervisedActorImpl(WorkerSpec spec) : spec_(std::move(spec)), gauges_(spec_.base_model) {}

std::filesystem::path SupervisedActorImpl::socket_path(uint64_t incarnation) const {
  return spec_.socket_directory / ("worker-" + std::to_string(incarnation) + ".sock");
}

Status SupervisedActorImpl::start() {
  if (access(spec_.executable.c_str(), X_OK) != 0) {
    return not_found("the worker program " + spec_.executable.string() + " does not exist or is not executable",
                     "no_worker");
  }
  const size_t length = socket_path(std::numeric_limits<uint32_t>::max()).native().size();
  if (length > kUnixPathMax) {
    return invalid_argument("the socket directory " + spec_.socket_directory.string() +
                            " is too long for a unix socket; choose a directory of at most " +
                            std::to_string(spec_.socket_directory.native().size() + kUnixPathMax - length) + " bytes");
  }
  MutexLock lock(mutex_);
  if (state_ != State::kIdle) return failed_precondition("the worker has been started already");
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return internal_error("cannot create an eventfd");
  state_ = State::kStarting;
  trace_ = telemetry::current_context();
  watcher_ = std::thread([this] { watch(); });
  return {};
}

void SupervisedActorImpl::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (watcher_.joinable()) {
    wake();
    watcher_.join();
  }
  MutexLock lock(mutex_);
  while (in_flight_ > 0) changed_.wait(mutex_);
  state_ = State::kStopped;
  changed_.notify_all();
  if (wake_fd_ >= 0) close(wake_fd_);
  wake_fd_ = -1;
}

Status SupervisedActorImpl::wait_ready(Nanos timeout) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout);
  MutexLock lock(mutex_);
  while (state_ == State::kStarting && death_.empty()) {
    if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout && state_ == State::kStarting) {
      return Error{ErrorCode::kDeadlineExceeded,
                   "the worker of base model " + spec_.base_model + " was not ready in time", "worker_starting"};
    }
  }
  if (state_ == State::kReady) return {};
  if (!death_.empty()) return unavailable(death_ + "; its messages are above", "worker_died");
  return not_ready_locked();
}

bool SupervisedActorImpl::ready() const {
  MutexLock lock(mutex_);
  return state_ == State::kReady && answering_;
}

uint64_t SupervisedActorImpl::incarnation() const {
  MutexLock lock(mutex_);
  return incarnation_;
}

bool SupervisedActorImpl::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

std::string SupervisedActorImpl::describe(const std::string& how) const {
  return "the worker of base model " + spec_.base_model + " " + how;
}

Error SupervisedActorImpl::died(const std::string& how) const {
  return unavailable(describe(how) + "; it is being started again", "worker_died");
}

Error SupervisedActorImpl::not_ready_locked() const {
  if (stopping_ || state_ == State::kIdle || state_ == State::kStopped) {
    return unavailable("the worker of base model " + spec_.base_model + " is stopped", "worker_stopped");
  }
  if (last_death_) return *last_death_;
  return unavailable("the worker of base model " + spec_.base_model + " is starting; try again later",
                     "worker_starting");
}

void SupervisedActorImpl::wake() const {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

// Waits for wake(), the end of the process or the timeout. Returns true if the process has ended.
bool SupervisedActorImpl::wait_for_wake(int ended_fd, Nanos timeout) {
  pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {ended_fd, POLLIN, 0}};
  const Nanos milliseconds = std::clamp<Nanos>((timeout + kMillisecond - 1) / kMillisecond, 0, 1000);
  (void)poll(fds, ended_fd < 0 ? 1 : 2, static_cast<int>(milliseconds));
  if ((fds[0].revents & POLLIN) != 0) {
    uint64_t count = 0;
    (void)!read(wake_fd_, &count, sizeof(count));
  }
  return fds[1].revents != 0;
}

void SupervisedActorImpl::watch() {
  Nanos delay = spec_.restart_delay;
  const auto restarts = metrics::workers().restarts.with({{"base_model", spec_.base_model}});
  for (uint64_t incarnation = 1; !stopping(); ++incarnation) {
    const Nanos begin = now();
    {
      MutexLock lock(mutex_);
      incarnation_ = incarnation;
      state_ = State::kStarting;
    }
    gauges_.set_state(WorkerState::kStarting);
    if (incarnation > 1) {
      restarts.add(1);
      telemetry::log_info("worker.restarted", "starting the worker again",
                          {{"tuft.base_model", spec_.base_model}, {"tuft.worker.generation", incarnation}});
    }
    if (!live(incarnation)) break;
    if (now() - begin >= kHealthyLife) delay = spec_.restart_delay;
    pause(delay);
    delay = std::min(delay * 2, spec_.restart_delay_max);
  }
  settle_calls();
}

// Runs one life from start to end. Returns false if it ended because stop() was called.
bool SupervisedActorImpl::live(uint64_t incarnation) {
  const std::string socket = socket_path(incarnation).string();
  auto span = tracer().start_span(
      "worker.start", {.attributes = {{"tuft.base_model", spec_.base_model}, {"tuft.worker.generation", incarnation}},
                       .parent = trace_});
  const telemetry::ContextScope scope(span.context());
  std::vector<std::string> arguments = spec_.arguments;
  arguments.insert(arguments.end(), {"--socket", socket, "--parent-pid", std::to_string(getpid())});
  if (span.context().valid()) {
    arguments.insert(arguments.end(), {"--traceparent", telemetry::to_traceparent(span.context())});
  }
  auto process = ChildProcess::start(spec_.executable, arguments);
  if (!process.ok()) {
    span.record_error(process.error());
    declare_dead(nullptr, "could not be started (" + process.error().message + ")");
    return !stopping();
  }
  Life life{std::move(process).value(), incarnation, socket, now(), nullptr, nullptr, std::move(span)};
  telemetry::log_info("worker.started", "worker started",
                      {{"tuft.base_model", spec_.base_model},
                       {"tuft.worker.pid", life.process.pid()},
                       {"tuft.worker.generation", incarnation}});
  std::string how = watch_life(life);
  if (life.question) life.question->context.TryCancel();
  std::error_code ignored;
  std::filesystem::remove(socket, ignored);
  const bool wanted = stopping();
  if (!life.ready && !wanted) life.span.record_error(died(how));
  life.span.end();
  declare_dead(life.connection, wanted ? "is stopped" : how);
  return !wanted;
}

// Returns how the process ended.
std::string SupervisedActorImpl::watch_life(Life& life) {
  for (;;) {
    settle_calls();
    const bool starting = !life.ready;
    const Nanos pause = starting ? kSocketPoll : std::min(kSecond, spec_.heartbeat);
    if (wait_for_wake(life.process.ended_fd(), pause)) return life.process.reap();
    if (stopping()) return end_process(life);
    std::string failure;
    if (starting && !start_up(life, failure)) {
      life.process.signal(SIGKILL);
      (void)life.process.reap();
      return failure;
    }
    if (!life.ready) continue;
    note_life_sign(life);
    if (now() >= life.asked + spec_.heartbeat) ask_for_life_sign(life);
  }
}

// Continues the start of the worker. Returns false, and the reason in `failure`, if it will not become ready.
bool SupervisedActorImpl::start_up(Life& life, std::string& failure) {
  if (now() - life.started > spec_.start_timeout) {
    failure = "was not ready within " + std::to_string(spec_.start_timeout / kSecond) + " s and was ended";
    return false;
  }
  if (!life.question) {
    // A connection attempt that fails is repeated only after 100 ms or more, so wait until the socket exists.
    if (access(life.socket.c_str(), F_OK) == 0) ask_whether_ready(life);
    return true;
  }
  switch (life.question->outcome) {
    case Question::Outcome::kOpen:
      return true;
    case Question::Outcome::kAnswered:
      become_ready(life);
      return true;
    case Question::Outcome::kFailed:
      break;
  }
  failure = "did not answer the first health check (" + life.question->failure + ")";
  return false;
}

void SupervisedActorImpl::ask_whether_ready(Life& life) {
  life.connection = std::make_shared<Connection>(open_channel(life.socket));
  life.question = std::make_shared<Question>();
  life.question->context.set_wait_for_ready(true);
  life.question->context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::nanoseconds(std::max(kSecond, life.started + spec_.start_timeout - now())));
  {
    MutexLock lock(mutex_);
    ++in_flight_;
  }
  life.connection->stub->async()->Describe(
      &life.question->context, &life.question->request, &life.question->response,
      [this, question = life.question, connection = life.connection](const grpc::Status& status) {
        question->failure = status.error_message();
        question->outcome = status.ok() ? Question::Outcome::kAnswered : Question::Outcome::kFailed;
        wake();
        call_done();
      });
}

void SupervisedActorImpl::become_ready(Life& life) {
  life.ready = true;
  life.asked = now();
  life.question.reset();
  life.span.end();
  gauges_.answered(life.asked);
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    state_ = State::kReady;
    answering_ = true;
    connection_ = life.connection;
    changed_.notify_all();
  }
  gauges_.set_state(WorkerState::kReady);
  const double seconds = to_seconds(now() - life.started);
  metrics::workers().startup_duration.record(seconds, {{"base_model", spec_.base_model}, {"phase", "ready"}});
  telemetry::log_info("worker.ready", "worker ready",
                      {{"tuft.base_model", spec_.base_model},
                       {"tuft.worker.generation", life.incarnation},
                       {"tuft.worker.startup_seconds", seconds}});
  if (on_ready_) on_ready_(life.incarnation);
}

void SupervisedActorImpl::ask_for_life_sign(Life& life) {
  if (life.question != nullptr) return;
  life.asked = now();
  life.question = std::make_shared<Question>();
  life.question->context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(spec_.heartbeat));
  {
    MutexLock lock(mutex_);
    ++in_flight_;
  }
  life.connection->stub->async()->Describe(
      &life.question->context, &life.question->request, &life.question->response,
      [this, question = life.question, connection = life.connection](const grpc::Status& status) {
        if (status.ok()) gauges_.answered(now());
        question->outcome = status.ok() ? Question::Outcome::kAnswered : Question::Outcome::kFailed;
        wake();
        call_done();
      });
}

// The answer to any call is a sign of life. The worker is the same whether it answers or not, so its calls go on.
void SupervisedActorImpl::note_life_sign(Life& life) {
  if (life.question == nullptr || life.question->outcome == Question::Outcome::kOpen) return;
  life.question.reset();
  life.unanswered = gauges_.last_answer() >= life.asked ? 0 : life.unanswered + 1;
  set_answering(life, life.unanswered < kUnansweredMax);
}

void SupervisedActorImpl::set_answering(const Life& life, bool answering) {
  {
    MutexLock lock(mutex_);
    if (answering_ == answering) return;
    answering_ = answering;
  }
  gauges_.set_state(answering ? WorkerState::kReady : WorkerState::kSilent);
  const telemetry::Attribute keys[] = {{"tuft.base_model", spec_.base_model},
                                       {"tuft.worker.generation", life.incarnation},
                                       {"tuft.worker.pid", life.process.pid()}};
  const std::string worker = "the worker of base model " + spec_.base_model;
  if (!answering) {
    telemetry::log_error("worker.silent", worker + " does not answer any more; its operations wait",
                         telemetry::Attributes(keys));
    return;
  }
  telemetry::log_info("worker.answers", worker + " answers again", telemetry::Attributes(keys));
  if (on_ready_) on_ready_(life.incarnation);
}

std::string SupervisedActorImpl::end_process(Life& life) {
  life.process.signal(SIGTERM);
  const Nanos deadline = now() + spec_.stop_timeout;
  bool ended = false;
  while (!ended && now() < deadline) ended = wait_for_wake(life.process.ended_fd(), deadline - now());
  if (!ended) life.process.signal(SIGKILL);
  return life.process.reap();
}

void SupervisedActorImpl::declare_dead(const std::shared_ptr<Connection>& connection, const std::string& how) {
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    wanted = stopping_;
  }
  // Before those who wait for the worker log what follows from it.
  if (!wanted) {
    telemetry::log_error("worker.died", "the worker of base model " + spec_.base_model + " " + how,
                         {{"tuft.base_model", spec_.base_model}, {"tuft.reason", how}});
  }
  std::unordered_set<std::shared_ptr<grpc::ClientContext>> calls;
  {
    MutexLock lock(mutex_);
    const Error error = wanted ? not_ready_locked() : died(how);
    state_ = State::kDead;
    connection_.reset();
    last_death_ = error;
    if (!wanted) death_ = describe(how);
    if (connection) {
      connection->death = error;
      calls = connection->calls;
    }
    changed_.notify_all();
  }
  // Without the lock, because a call may end within TryCancel().
  for (const auto& call : calls) call->TryCancel();
  gauges_.set_state(WorkerState::kDead);
  settle_calls();
}

// Waits between two lives and answers calls meanwhile.
void SupervisedActorImpl::pause(Nanos delay) {
  const Nanos deadline = now() + delay;
  while (!stopping() && now() < deadline) {
    settle_calls();
    (void)wait_for_wake(-1, deadline - now());
  }
}

std::unique_ptr<SupervisedActor> make_supervised_actor(WorkerSpec spec) {
  return std::make_unique<SupervisedActorImpl>(std::move(spec));
}

}  // namespace tuft::actor
