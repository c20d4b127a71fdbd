#include "api/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "api/http/http_connection.h"
#include "api/http/io_thread.h"
#include "api/http/tls.h"
#include "api/routing/console_sessions.h"
#include "api/routing/http_telemetry.h"
#include "base/address_group.h"
#include "base/mutex.h"
#include "control/queues/work_pool.h"
#include "metrics/http.h"
#include "openai/service.h"
#include "telemetry/instrument.h"
#include "telemetry/log.h"
#include "telemetry/request_trace.h"

namespace tuft::api {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Nanos kTickInterval = 500 * kMillisecond;
constexpr int kWorkThreads = 3;  // of each pool
// Costs are bytes of a datum. A user may let as much wait as four bodies of the default limits.request_body_bytes_max.
constexpr control::TenantBounds kWorkBounds = {
    .quantum = 512 << 10, .user_max = int64_t{256} << 20, .all_max = int64_t{2} << 30};
constexpr int kAcceptsAtOnce = 64;
// Limits the bytes of answers that the kernel keeps for a client that does not read, beyond those which are on their
// way. Without it that is up to 4 MB for each connection (tcp_wmem): 200 connections took 765 MiB of the memory that
// the kernel has for the TCP of the whole machine (tcp_mem, 2.2 GiB there).
constexpr int kUnsentBytesMax = 128 << 10;
constexpr auto kAcceptRetry = std::chrono::milliseconds(50);

std::string overloaded_answer(ConnectionCounts::Entry entry) {
  const std::string body =
      entry == ConnectionCounts::Entry::kTooMany
          ? R"({"detail":"the server has as many connections as limits.connections_max allows; try later"})"
          : R"({"detail":"your address has as many connections as limits.connections_per_address_max allows; try later"})";
  return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" + body;
}

// Returns, for instance, "Sun, 06 Nov 1994 08:49:37 GMT", independent of the locale.
std::string http_date() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto now = static_cast<time_t>(system_clock().wall() / kSecond);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  const int size =
      std::snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                    kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return std::string(text, static_cast<size_t>(std::max(size, 0)));
}

bool is_loopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

class BeastServer final : public Server {
 public:
  BeastServer(const Options& options, control::ControlPlane& control)
      : options_(options),
        work_(std::make_shared<control::WorkPool>(kWorkThreads, kWorkBounds)),
        openai_(control.generation(), system_clock(), work_),
        console_([this](std::string_view key) { return dispatcher_.control()->authenticate(key); }, system_clock()),
        dispatcher_(control, options_.limits, options_.metrics, options_.routes, openai_, {*work_, queries_},
                    options_.public_url, options_.console ? &console_ : nullptr, options_.standby),
        connections_(options_.limits),
        metrics_page_(std::make_shared<MetricsPage>()) {
    bind_http_series();
    for (int i = 0; i < std::max(1, options_.io_threads); ++i) {
      threads_.push_back(
          std::make_unique<IoThread>(dispatcher_, options_.long_poll, connections_, metrics_page_, scheme()));
      threads_.back()->date = http_date();
    }
    acceptor_.emplace(*threads_.front()->io);
    accept_retry_.emplace(*threads_.front()->io);
    if (options_.is_first) observe_connections();
  }
  ~BeastServer() override {
    work_->stop();
    queries_.stop();
    if (!options_.is_first) return;
    metrics::http().connections.set_callback({});
    metrics::http().receiving_bytes.set_callback({});
    metrics::http().sending_bytes.set_callback({});
  }

  Status listen();
  uint16_t port() const override { return port_; }
  void run() override;
  void stop(Nanos grace) override;
  void replace_control(std::shared_ptr<control::ControlPlane> control) override {
    dispatcher_.replace_control(std::move(control));
  }
  Status reload_tls() override TUFT_EXCLUDES(tls_mutex_);

 private:
  std::string_view scheme() const { return options_.tls.certificate.empty() ? "http" : "https"; }
  void observe_connections();
  IoThread& next_thread() { return *threads_[next_thread_++ % threads_.size()]; }
  void accept_next();
  void accept_waiting();
  void take(tcp::socket socket, IoThread& thread);
  void turn_away(tcp::socket& socket, ConnectionCounts::Entry entry) const;
  void tick(IoThread& thread);
  void wind_down(IoThread& thread, Nanos grace);

  const Options options_;
  const std::shared_ptr<control::WorkPool> work_;
  control::WorkPool queries_{kWorkThreads, kWorkBounds};
  openai::Service openai_;
  ConsoleSessions console_;
  Dispatcher dispatcher_;
  ConnectionCounts connections_;
  // May outlive the server, because a worker that answers late refers to it.
  const std::shared_ptr<MetricsPage> metrics_page_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  uint16_t port_ = 0;
  Mutex tls_mutex_;
  std::shared_ptr<TlsContext> tls_ TUFT_GUARDED_BY(tls_mutex_);  // null: plain HTTP

  // Confined to the first I/O thread.
  std::optional<tcp::acceptor> acceptor_;
  std::optional<asio::steady_timer> accept_retry_;
  size_t next_thread_ = 0;
};

void BeastServer::observe_connections() {
  metrics::http().connections.set_callback([this](const telemetry::Observable::Observe& observe) {
    const int idle = connections_.idle.load(std::memory_order_relaxed);
    observe(std::max(0, connections_.open() - idle), {{"state", "active"}});
    observe(idle, {{"state", "idle"}});
  });
  metrics::http().receiving_bytes.set_callback(
      [bodies = connections_.bodies](const telemetry::Observable::Observe& observe) {
        observe(static_cast<double>(bodies->total()), {});
      });
  metrics::http().sending_bytes.set_callback(
      [answers = connections_.answers](const telemetry::Observable::Observe& observe) {
        observe(static_cast<double>(answers->total()), {});
      });
}

Status BeastServer::listen() {
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  const auto failure = [&](const error_code& code) {
    return unavailable("cannot listen on " + where + ": " + code.message() +
                       "; choose another host or port, or stop what uses it");
  };
  error_code code;
  tcp::resolver resolver(*threads_.front()->io);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, code);
  if (code) return failure(code);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  if (acceptor_->open(endpoint.protocol(), code); code) return failure(code);
  acceptor_->set_option(tcp::acceptor::reuse_address(true), code);
  if (acceptor_->bind(endpoint, code); code) return failure(code);
  // The connections inherit these.
  acceptor_->set_option(tcp::no_delay(true), code);
  ::setsockopt(acceptor_->native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax, sizeof(kUnsentBytesMax));
  if (acceptor_->listen(4096, code); code) return failure(code);
  if (acceptor_->non_blocking(true, code); code) return failure(code);
  port_ = acceptor_->local_endpoint(code).port();
  return {};
}

// Accepts connections that are there already: a busy thread has few turns to accept one.
void BeastServer::accept_waiting() {
  for (int i = 1; i < kAcceptsAtOnce; ++i) {
    IoThread& thread = next_thread();
    error_code code;
    tcp::socket socket = acceptor_->accept(*thread.io, code);
    if (code) return;
    take(std::move(socket), thread);
  }
}

void BeastServer::accept_next() {
  if (threads_.front()->stopping) return;
  IoThread& thread = next_thread();
  acceptor_->async_accept(*thread.io, [this, &thread](error_code code, tcp::socket socket) {
    if (code == asio::error::operation_aborted || threads_.front()->stopping) return;
    if (!code) {
      take(std::move(socket), thread);
      accept_waiting();
      accept_next();
      return;
    }
    // The process is probably out of file descriptors; retrying at once would spin.
    accept_retry_->expires_after(kAcceptRetry);
    accept_retry_->async_wait([this](error_code retry_code) {
      if (!retry_code) accept_next();
    });
  });
}

Status BeastServer::reload_tls() {
  if (options_.tls.certificate.empty()) return {};
  TUFT_ASSIGN(std::shared_ptr<TlsContext> fresh, make_tls_context(options_.tls));
  MutexLock lock(tls_mutex_);
  tls_.swap(fresh);
  return {};
}

// With TLS the connection is closed without an answer, because a handshake would cost an overloaded server too much.
void BeastServer::turn_away(tcp::socket& socket, ConnectionCounts::Entry entry) const {
  const bool is_full = entry == ConnectionCounts::Entry::kTooMany;
  HttpTelemetry::count_rejected(is_full ? "overloaded" : "address_overloaded");
  error_code ignored;
  if (options_.tls.certificate.empty()) socket.write_some(asio::buffer(overloaded_answer(entry)), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void BeastServer::take(tcp::socket socket, IoThread& thread) {
  error_code code;
  socket.non_blocking(true, code);
  Endpoints endpoints;
  endpoints.scheme = scheme();
  endpoints.server_address = options_.host;
  endpoints.server_port = port_;
  if (const tcp::endpoint peer = socket.remote_endpoint(code); !code) {
    endpoints.client_address = peer.address().to_string();
    endpoints.client_port = peer.port();
    endpoints.client_is_local = is_loopback(peer.address());
    endpoints.client_group = address_group(*peer.data());
  }
  const ConnectionCounts::Entry entry = connections_.enter(endpoints.client_group);
  if (entry != ConnectionCounts::Entry::kTaken) return turn_away(socket, entry);
  std::shared_ptr<TlsContext> tls;
  {
    MutexLock lock(tls_mutex_);
    tls = tls_;
  }
  asio::post(*thread.io, [&thread, socket = std::move(socket), tls, endpoints = std::move(endpoints)]() mutable {
    auto connection = std::make_shared<HttpConnection>(thread, std::move(socket), tls.get(), std::move(endpoints));
    if (thread.stopping) return;
    asio::co_spawn(*thread.io, HttpConnection::serve(std::move(connection)), asio::detached);
  });
}

void BeastServer::tick(IoThread& thread) {
  thread.date = http_date();
  const Nanos now = system_clock().monotonic();
  for (HttpConnection* connection : thread.connections) connection->enforce_deadline(now);
  thread.tick.expires_after(std::chrono::nanoseconds(kTickInterval));
  thread.tick.async_wait([this, &thread](error_code code) {
    if (!code && !thread.stopping) tick(thread);
  });
}

void BeastServer::run() {
  asio::post(*threads_.front()->io, [this] { accept_next(); });
  std::vector<std::thread> others;
  for (const auto& thread : threads_) {
    asio::post(*thread->io, [this, thread = thread.get()] {
      if (!thread->stopping) tick(*thread);
    });
    if (thread == threads_.front()) continue;
    others.emplace_back([io = thread->io] {
      telemetry::trace_set_thread_info("http");
      io->run();
    });
  }
  telemetry::trace_set_thread_info("http");
  threads_.front()->io->run();
  for (std::thread& other : others) other.join();
}

void BeastServer::stop(Nanos grace) {
  for (const auto& thread : threads_) {
    asio::post(*thread->io, [this, thread = thread.get(), grace] { wind_down(*thread, grace); });
  }
}

void BeastServer::wind_down(IoThread& thread, Nanos grace) {
  if (std::exchange(thread.stopping, true)) return;
  if (&thread == threads_.front().get()) {
    error_code ignored;
    acceptor_->close(ignored);
    accept_retry_->cancel();
  }
  for (HttpConnection* connection : thread.connections) connection->wind_down();
  // The loop ends when its last connection has closed; this timer must not keep it alive.
  thread.tick.expires_after(std::chrono::nanoseconds(std::min(grace, kTickInterval / 50)));
  const Nanos end = system_clock().monotonic() + grace;
  const auto wait = std::make_shared<std::function<void(error_code)>>();
  *wait = [this, &thread, end, wait = std::weak_ptr(wait)](error_code) {
    if (thread.connections.empty()) return;
    if (system_clock().monotonic() >= end) {
      work_->close();  // what still waits there is brief from now on
      queries_.close();
      for (HttpConnection* connection : thread.connections) connection->abort();
    }
    thread.tick.expires_after(std::chrono::milliseconds(10));
    thread.tick.async_wait([wait = wait.lock()](error_code code) { (*wait)(code); });
  };
  thread.tick.async_wait([wait](error_code code) { (*wait)(code); });
}

}  // namespace

Result<std::unique_ptr<Server>> Server::create(const Options& options, control::ControlPlane& control) {
  try {
    auto server = std::make_unique<BeastServer>(options, control);
    TUFT_TRY(server->reload_tls());
    TUFT_TRY(server->listen());
    return std::unique_ptr<Server>(std::move(server));
  } catch (const std::exception& exception) {
    return internal_error(std::string("the HTTP server could not be made: ") + exception.what());
  }
}

}  // namespace tuft::api
