// tuft_parked_client HOST PORT KEY SOURCES: holds many open polls in one small process and measures how they are woken.
// Its connections come from SOURCES addresses 127.0.1.x, because one address has ports for 28,000 connections only.
//
// {"op": "park", "ids": [..]}       one connection and one retrieve_future each; answers when all are sent
// {"op": "hold", "seconds": s}      keeps them open; repeats a poll answered 408: {"repolls": n, "cpu_seconds": own}
// {"op": "wake", "path": .., "body": .., "expect": n}  sends one POST and waits for n answers that are not 408:
//                                   {"latencies_us": [since that POST was sent, in order of arrival]}
// One line of JSON in, one out.
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <iostream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace tuft::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kWaitMs = 60'000;

struct Connection {
  int socket = -1;
  std::string request;
  std::string received;
  bool open = false;
};

class Client {
 public:
  Client(std::string host, int port, std::string key, int sources)
      : host_(std::move(host)), port_(port), key_(std::move(key)), sources_(sources), epoll_(::epoll_create1(0)) {}

  json park(const json& asked) {
    for (const auto& id : asked.at("ids")) {
      const std::string body = json({{"request_id", id}, {"allow_metadata_only", false}}).dump();
      Connection connection;
      connection.socket = connect_from(static_cast<int>(connections_.size()) % sources_);
      connection.request = post("/api/v1/retrieve_future", body);
      connection.open = true;
      connections_.push_back(std::move(connection));
      send_all(connections_.back().socket, connections_.back().request);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = connections_.size() - 1;
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_.back().socket, &event);
      if (connections_.size() % 64 == 0) (void)step(0, Clock::now());
    }
    return {{"parked", connections_.size()}};
  }

  json hold(double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    const int64_t repolls = repolls_;
    const double cpu = cpu_seconds();
    while (Clock::now() < end) {
      if (!step(50, Clock::now()).empty()) throw std::runtime_error("a poll was answered that should have waited");
    }
    return {{"repolls", repolls_ - repolls}, {"cpu_seconds", cpu_seconds() - cpu}};
  }

  json wake(const json& asked) {
    if (trigger_ < 0) trigger_ = connect_from(0);
    const std::string request = post(asked.at("path"), asked.at("body"));
    const auto expect = asked.at("expect").get<size_t>();
    std::vector<double> latencies;
    const auto sent = Clock::now();
    send_all(trigger_, request);
    while (latencies.size() < expect) {
      if (Clock::now() - sent > std::chrono::milliseconds(kWaitMs)) throw std::runtime_error("polls were not woken");
      for (const double one : step(100, sent)) latencies.push_back(one);
    }
    char buffer[4096];
    if (::recv(trigger_, buffer, sizeof(buffer), 0) <= 0) throw std::runtime_error("no answer to the waking POST");
    return {{"latencies_us", latencies}};
  }

 private:
  static double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  std::string post(const std::string& path, const std::string& body) const {
    return "POST " + path + " HTTP/1.1\r\nHost: " + host_ + "\r\nX-API-Key: " + key_ +
           "\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  int connect_from(int source) const {
    const int made = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7F000101U + static_cast<uint32_t>(source));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port_));
    ::inet_pton(AF_INET, host_.c_str(), &to.sin_addr);
    const int one = 1;
    ::setsockopt(made, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (made < 0 || ::bind(made, reinterpret_cast<sockaddr*>(&from), sizeof(from)) != 0 ||
        ::connect(made, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
      throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
    }
    return made;
  }

  static void send_all(int socket, const std::string& bytes) {
    if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error(std::string("send: ") + std::strerror(errno));
    }
  }

  // Reads the available answers. Returns the times of final answers, relative to `since`.
  std::vector<double> step(int timeout_ms, Clock::time_point since) {
    epoll_event events[256];
    std::vector<double> final_answers;
    const int count = ::epoll_wait(epoll_, events, 256, timeout_ms);
    for (int i = 0; i < count; ++i) {
      Connection& connection = connections_[events[i].data.u64];
      char buffer[65536];
      const ssize_t size = ::recv(connection.socket, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (size <= 0) throw std::runtime_error("the server closed a parked connection");
      connection.received.append(buffer, static_cast<size_t>(size));
      if (!is_whole(connection.received)) continue;
      if (connection.received.compare(9, 3, "408") == 0) {
        ++repolls_;
        connection.received.clear();
        send_all(connection.socket, connection.request);
        continue;
      }
      final_answers.push_back(std::chrono::duration<double, std::micro>(Clock::now() - since).count());
      ::close(connection.socket);
      connection.open = false;
    }
    return final_answers;
  }

  static bool is_whole(const std::string& received) {
    const size_t head = received.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    std::string lower = received.substr(0, head);
    for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    const size_t length = lower.find("content-length: ");
    if (length == std::string::npos) throw std::runtime_error("an answer without Content-Length");
    return received.size() >= head + 4 + std::stoul(lower.substr(length + 16));
  }

  const std::string host_;
  const int port_;
  const std::string key_;
  const int sources_;
  const int epoll_;
  int trigger_ = -1;
  int64_t repolls_ = 0;
  std::vector<Connection> connections_;
};

json answer(Client& client, const json& asked) {
  const std::string operation = asked.at("op");
  if (operation == "park") return client.park(asked);
  if (operation == "hold") return client.hold(asked.at("seconds"));
  if (operation == "wake") return client.wake(asked);
  return {{"error", "no operation " + operation}};
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: tuft_parked_client HOST PORT KEY SOURCES\n";
    return 2;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  try {
    tuft::bench::Client client(argv[1], std::stoi(argv[2]), argv[3], std::stoi(argv[4]));
    for (std::string line; std::getline(std::cin, line);) {
      nlohmann::json reply;
      try {
        reply = tuft::bench::answer(client, nlohmann::json::parse(line));
      } catch (const std::exception& error) {
        reply = {{"error", error.what()}};
      }
      std::cout << reply.dump() << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
