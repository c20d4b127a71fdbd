// A thread that runs an event loop.
#pragma once

#include <pthread.h>
#include <thread>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "base/background_thread.h"

namespace tuft::join {

// Must outlive the connections that it carries.
class IoThread {
 public:
  IoThread() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { io_.run(); });
    ::pthread_setname_np(thread_.native_handle(), "join");
  }
  ~IoThread() { stop(); }
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& io() { return io_; }
  void stop() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::thread thread_;
};

}  // namespace tuft::join
