#include "actor/supervised_actor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actor/actor_tracer.h"
#include "actor/local_workers.h"
#include "metrics/workers.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::actor {
namespace {

constexpr Nanos kConnectPoll = 10 * kMillisecond;
// A worker that stands by may take a place after a while without an event of its own (WorkerSource::available()).
constexpr Nanos kAbsentPoll = 100 * kMillisecond;
// A worker that lived this long restarts without a delay after its death.
constexpr Nanos kHealthyLife = 30 * kSecond;
// A worker that gave no sign of life during so many health checks in a row is not ready. One answer may be late because
// the machine is busy.
constexpr int kUnansweredMax = 3;

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

}  // namespace

struct SupervisedActorImpl::Life {
  std::unique_ptr<WorkerLife> worker;
  uint64_t incarnation;
  Nanos started;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Question> question;
  telemetry::Span span;  // ends when the worker is ready
  Nanos asked = 0;       // when the newest health check began
  int unanswered = 0;    // health checks, since the newest sign of life
  bool ready = false;
  bool draining = false;
};

SupervisedActorImpl::SupervisedActorImpl(Supervision supervision, std::unique_ptr<WorkerSource> source)
    : spec_(std::move(supervision)),
      rows_(spec_.shared.rows),
      gauges_(spec_.base_model, *rows_),
      source_(std::move(source)) {}

Status SupervisedActorImpl::start() {
  TUFT_TRY(source_->check());
  MutexLock lock(mutex_);
  if (state_ != State::kIdle) return failed_precondition("the worker has been started already");
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return internal_error("cannot create an eventfd");
  state_ = State::kStarting;
  trace_ = telemetry::current_context();
  source_->on_available([this] { wake(); });
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
  source_->on_available({});  // it calls wake(), which uses wake_fd_
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

bool SupervisedActorImpl::up() const {
  MutexLock lock(mutex_);
  return state_ == State::kReady;
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

Error SupervisedActorImpl::died(const std::string& how, Ending ending) const {
  const bool has_joined = spec_.lease > 0;
  const std::string_view next =
      has_joined ? "; it joins again, or another worker takes its place" : "; it is being started again";
  const bool may_come_back = has_joined && ending == Ending::kDied;
  return unavailable(describe(how).append(next), std::string(may_come_back ? kWorkerDisconnected : "worker_died"));
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
  (void)metrics::workers().restarts.with({{"base_model", spec_.base_model}});  // so that it is 0 before the first one
  while (!stopping()) {
    const uint64_t incarnation = ++*spec_.shared.lives;
    const Nanos begin = now();
    {
      MutexLock lock(mutex_);
      incarnation_ = incarnation;
      state_ = State::kStarting;
    }
    await_worker();
    if (stopping()) break;
    if (!live(incarnation)) break;
    if (spec_.lease > 0) continue;  // each worker joins once
    if (now() - begin >= kHealthyLife) delay = spec_.restart_delay;
    pause(delay);
    delay = std::min(delay * 2, spec_.restart_delay_max);
  }
  settle_calls();
}

// Waits until a worker is there, and answers calls meanwhile.
void SupervisedActorImpl::await_worker() {
  while (!stopping() && !source_->available()) {
    gauges_.set_state(WorkerState::kAbsent);
    settle_calls();
    (void)wait_for_wake(-1, kAbsentPoll);
  }
}

// Runs one life from start to end. Returns false if it ended because stop() was called.
bool SupervisedActorImpl::live(uint64_t incarnation) {
  if (!source_->available()) return true;  // another place of the base model took the worker that was there
  auto span = actor_tracer().start_span(
      "worker.start", {.attributes = {{"tuft.base_model", spec_.base_model}, {"tuft.worker.generation", incarnation}},
                       .parent = trace_});
  const telemetry::ContextScope scope(span.context());
  auto worker =
      source_->begin(incarnation, span.context().valid() ? telemetry::to_traceparent(span.context()) : std::string());
  if (!worker.ok()) {
    span.record_error(worker.error());
    former_ = Ending::kDied;
    declare_dead(nullptr, "could not be started (" + worker.error().message + ")", Ending::kDied);
    return !stopping();
  }
  if (*worker == nullptr) return true;
  gauges_.set_state(WorkerState::kStarting);
  note_begin(incarnation, **worker);
  Life life{std::move(worker).value(), incarnation, now(), nullptr, nullptr, std::move(span)};
  rows_->set(life.worker->row(), WorkerState::kStarting);
  telemetry::log_info("worker.started", "worker started",
                      {{"tuft.base_model", spec_.base_model},
                       {"tuft.worker.pid", life.worker->pid()},
                       {"tuft.worker.host", life.worker->host()},
                       {"tuft.worker.generation", incarnation}});
  std::string how = watch_life(life);
  if (life.question) life.question->context.TryCancel();
  const bool wanted = stopping();
  if (!life.ready && !wanted) life.span.record_error(died(how, Ending::kDied));
  life.span.end();
  const Ending ending = wanted ? Ending::kStopped : may_go(life) ? Ending::kLeft : Ending::kDied;
  if (ending == Ending::kStopped) how = "is stopped";
  if (ending == Ending::kLeft) how = "left, as it was told to";
  former_ = ending;
  rows_->set(life.worker->row(), WorkerState::kDead, how);
  life.worker.reset();
  declare_dead(life.connection, how, ending);
  return !wanted;
}

// A worker that takes the place of one that left in order is no restart, nor is one whose connection had ended.
void SupervisedActorImpl::note_begin(uint64_t incarnation, const WorkerLife& worker) {
  if (!former_) return;
  const bool is_back = worker.is_back();
  if (*former_ == Ending::kDied && !is_back) metrics::workers().restarts.add(1, {{"base_model", spec_.base_model}});
  const char* const other = spec_.lease > 0 ? "another worker takes over" : "starting the worker again";
  telemetry::log_info("worker.restarted", is_back ? "the worker is back" : other,
                      {{"tuft.base_model", spec_.base_model}, {"tuft.worker.generation", incarnation}});
}

// Returns how the worker ended.
std::string SupervisedActorImpl::watch_life(Life& life) {
  for (;;) {
    settle_calls();
    const bool starting = !life.ready;
    const Nanos pause = starting ? kConnectPoll : std::min(kSecond, spec_.heartbeat);
    if (wait_for_wake(life.worker->ended_fd(), pause)) return life.worker->reap();
    if (stopping() || may_go(life)) return end_worker(life);
    // On a narrow link, health checks and their answers wait behind large messages, so a part of such a message is a
    // sign of life, too.
    if (!starting) gauges_.gave_sign(life.worker->last_sign());
    std::string failure;
    if (starting ? !start_up(life, failure) : lease_ended(life, failure)) {
      life.worker->kill();
      await_end(life);
      (void)life.worker->reap();
      return failure;
    }
    if (!life.ready) continue;
    note_life_sign(life);
    if (now() >= life.asked + spec_.heartbeat) ask_for_life_sign(life);
  }
}

// Continues the start of the worker. Returns false, and the reason in `failure`, if it will not become ready.
bool SupervisedActorImpl::start_up(Life& life, std::string& failure) {
  const bool may_wait = spec_.lease == 0 || !source_->has_loaded() || now() - life.started <= spec_.lease;
  if (!may_wait) {
    failure = "was not ready within its lease, and another worker is";
    return false;
  }
  if (now() - life.started > spec_.start_timeout) {
    failure = "was not ready within " + std::to_string(spec_.start_timeout / kSecond) + " s and was ended";
    return false;
  }
  if (!life.question) {
    if (auto channel = life.worker->connect()) ask_whether_ready(life, channel);
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

// Returns whether a worker has given no sign of life for longer than its lease, and then what happened in `failure`. If
// this thread was held up, the worker was not asked meanwhile.
bool SupervisedActorImpl::lease_ended(const Life& life, std::string& failure) const {
  if (spec_.lease == 0 || life.unanswered == 0) return false;
  if (now() - gauges_.last_sign() <= spec_.lease) return false;
  failure = "gave no sign of life for " + std::to_string(spec_.lease / kSecond) + " s, its lease";
  return true;
}

void SupervisedActorImpl::ask_whether_ready(Life& life, const std::shared_ptr<grpc::Channel>& channel) {
  life.connection = std::make_shared<Connection>(channel);
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
  gauges_.gave_sign(life.asked);
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    state_ = State::kReady;
    answering_ = true;
    connection_ = life.connection;
    changed_.notify_all();
  }
  show(life, WorkerState::kReady);
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
        if (status.ok()) gauges_.gave_sign(now());
        question->outcome = status.ok() ? Question::Outcome::kAnswered : Question::Outcome::kFailed;
        wake();
        call_done();
      });
}

// The answer to any call is a sign of life. The worker is the same whether it answers or not, so its calls go on.
void SupervisedActorImpl::note_life_sign(Life& life) {
  if (life.question == nullptr || life.question->outcome == Question::Outcome::kOpen) return;
  note_drain(life);
  life.question.reset();
  life.unanswered = gauges_.last_sign() >= life.asked ? 0 : life.unanswered + 1;
  set_answering(life, life.unanswered < kUnansweredMax);
}

void SupervisedActorImpl::note_drain(Life& life) {
  const Question& question = *life.question;
  const Nanos limit = question.response.drain_milliseconds() * kMillisecond;
  if (life.draining || question.outcome != Question::Outcome::kAnswered || limit == 0) return;
  life.draining = true;
  show(life, WorkerState::kDraining);
  telemetry::log_info("worker.draining", describe("was told to end; what it holds is being saved"),
                      {{"tuft.base_model", spec_.base_model},
                       {"tuft.worker.generation", life.incarnation},
                       {"tuft.worker.host", life.worker->host()},
                       {"tuft.seconds", to_seconds(limit)}});
  if (on_draining_) on_draining_(life.incarnation, limit);
}

void SupervisedActorImpl::let_go(uint64_t incarnation) {
  MutexLock lock(mutex_);
  if (stopping_ || state_ != State::kReady || incarnation_ != incarnation) return;
  let_go_ = incarnation;
  wake();  // with the lock: stop() closes wake_fd_
}

bool SupervisedActorImpl::may_go(const Life& life) const {
  MutexLock lock(mutex_);
  return let_go_ == life.incarnation;
}

void SupervisedActorImpl::show(const Life& life, WorkerState state) {
  gauges_.set_state(state);
  rows_->set(life.worker->row(), state);
}

void SupervisedActorImpl::set_answering(const Life& life, bool answering) {
  {
    MutexLock lock(mutex_);
    if (answering_ == answering) return;
    answering_ = answering;
  }
  const WorkerState up = life.draining ? WorkerState::kDraining : WorkerState::kReady;
  show(life, answering ? up : WorkerState::kSilent);
  const telemetry::Attribute keys[] = {{"tuft.base_model", spec_.base_model},
                                       {"tuft.worker.generation", life.incarnation},
                                       {"tuft.worker.pid", life.worker->pid()}};
  const std::string worker = "the worker of base model " + spec_.base_model;
  if (!answering) {
    telemetry::log_error("worker.silent", worker + " does not answer any more; its operations wait",
                         telemetry::Attributes(keys));
    return;
  }
  telemetry::log_info("worker.answers", worker + " answers again", telemetry::Attributes(keys));
  if (on_ready_) on_ready_(life.incarnation);
}

std::string SupervisedActorImpl::end_worker(Life& life) {
  life.worker->ask_to_end();
  const Nanos deadline = now() + spec_.stop_timeout;
  bool ended = false;
  while (!ended && now() < deadline) ended = wait_for_wake(life.worker->ended_fd(), deadline - now());
  if (!ended) life.worker->kill();
  await_end(life);
  return life.worker->reap();
}

// A process that waits for a device or a file system ends late, or never. Calls are answered meanwhile.
void SupervisedActorImpl::await_end(const Life& life) {
  while (!wait_for_wake(life.worker->ended_fd(), kSecond)) settle_calls();
}

void SupervisedActorImpl::declare_dead(const std::shared_ptr<Connection>& connection, const std::string& how,
                                       Ending ending) {
  const bool wanted = ending == Ending::kStopped || stopping();
  // Before those who wait for the worker log what follows from it.
  if (ending == Ending::kLeft) {
    telemetry::log_info("worker.left", describe(how), {{"tuft.base_model", spec_.base_model}});
  } else if (!wanted) {
    telemetry::log_error("worker.died", describe(how), {{"tuft.base_model", spec_.base_model}, {"tuft.reason", how}});
  }
  std::unordered_set<std::shared_ptr<grpc::ClientContext>> calls;
  {
    MutexLock lock(mutex_);
    const Error error = wanted ? not_ready_locked() : died(how, ending);
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
  Supervision supervision = spec;
  const std::shared_ptr<WorkerRows> rows = spec.shared.rows;
  return std::make_unique<SupervisedActorImpl>(std::move(supervision), local_workers(std::move(spec), rows));
}

std::unique_ptr<SupervisedActor> make_joined_actor(Supervision supervision, std::unique_ptr<WorkerSource> source) {
  return std::make_unique<SupervisedActorImpl>(std::move(supervision), std::move(source));
}

}  // namespace tuft::actor
