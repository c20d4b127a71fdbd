#include "store/testing/redis_server.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tuft::store {
namespace {

// Returns the first bytes of the answer; nothing if there is none.
std::string ask(const std::string& path, const std::string& words) {
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const std::string line = words + "\r\n";
  std::string answer;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(connection, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size())) {
    char bytes[256];
    const ssize_t count = ::recv(connection, bytes, sizeof(bytes), 0);
    if (count > 0) answer.assign(bytes, static_cast<size_t>(count));
  }
  ::close(connection);
  return answer;
}

// The server is up if it answers +PONG or an error.
bool answers(const std::string& path) {
  const std::string answer = ask(path, "PING");
  return !answer.empty() && !answer.starts_with("-LOADING");
}

}  // namespace

std::string RedisServer::why_missing() {
  for (const char* path : {"/usr/bin/redis-server", "/usr/local/bin/redis-server"}) {
    if (::access(path, X_OK) == 0) return "";
  }
  return "redis-server is not installed";
}

RedisServer::RedisServer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
  start();
}

RedisServer::~RedisServer() {
  kill();
}

void RedisServer::start() {
  std::vector<std::string> words{"redis-server"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  words.insert(words.end(), {"--port", "0", "--unixsocket", socket(), "--dir", directory_.path(), "--appendonly", "yes",
                             "--save", "", "--daemonize", "no"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, 1);
    ::dup2(nowhere, 2);
    ::execvp("redis-server", argv.data());
    ::_exit(127);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!answers(socket())) {
    ASSERT_EQ(::waitpid(pid_, nullptr, WNOHANG), 0) << "redis-server ended";
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "redis-server does not answer";
    std::this_thread::yield();
  }
}

std::string RedisServer::command(const std::string& words) const {
  return ask(socket(), words);
}

void RedisServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void RedisServer::pause(bool stopped) {
  ::kill(pid_, stopped ? SIGSTOP : SIGCONT);
}

}  // namespace tuft::store
