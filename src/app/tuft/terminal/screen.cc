#include "app/tuft/terminal/screen.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace tuft::terminal {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l", kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H", kEraseLine = "\x1b[K", kEraseBelow = "\x1b[J";
constexpr size_t kSizeMax = 1000;

volatile sig_atomic_t ended = 0, resized = 0, stopped = 0;

void note_signal(int signal) {
  if (signal == SIGWINCH) {
    resized = 1;
  } else if (signal == SIGTSTP) {
    stopped = 1;
  } else {
    ended = 1;
  }
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) ::sigaction(signal, &action, nullptr);
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      ended = 1;  // the terminal is gone
      return;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

size_t number_in(const char* name, size_t fallback) {
  const unsigned long value = std::strtoul(variable(name).c_str(), nullptr, 10);
  return value == 0 || value > kSizeMax ? fallback : value;
}

}  // namespace

Size screen_size() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    return {std::min<size_t>(size.ws_col, kSizeMax), std::min<size_t>(size.ws_row, kSizeMax)};
  }
  return {number_in("COLUMNS", 80), number_in("LINES", 24)};
}

bool has_terminal() {
  return ::isatty(STDOUT_FILENO) == 1 && variable("TERM") != "dumb";
}

bool has_styles() {
  return has_terminal() && variable("NO_COLOR").empty();
}

bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = variable(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

void print(const Lines& lines) {
  const std::string text = has_styles() ? styled_text(lines) : plain_text(lines);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Screen::Screen() {
  catch_signals();
  enter();
}

Screen::~Screen() {
  leave();
}

void Screen::enter() {
  ::tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write_all(kEnter);
}

void Screen::leave() {
  write_all(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Screen::show(const Lines& lines) {
  const Size size = screen_size();
  const bool styles = variable("NO_COLOR").empty();
  std::string picture(kHome);
  const size_t count = std::min(lines.size(), size.rows);
  for (size_t i = 0; i < count; ++i) {
    picture += styles ? lines[i].styled(size.columns) : lines[i].plain(size.columns);
    picture += kEraseLine;
    if (i + 1 < count) picture += "\r\n";
  }
  picture += kEraseBelow;
  write_all(picture);
}

Screen::Event Screen::wait(int wake, Nanos limit) {
  if (unread_.empty()) {
    std::array<pollfd, 2> watched = {{{STDIN_FILENO, POLLIN, 0}, {wake, POLLIN, 0}}};
    const timespec time = {limit / kSecond, limit % kSecond};
    // A signal that comes before ppoll() is seen below after `limit`, which is short.
    if (::ppoll(watched.data(), watched.size(), &time, nullptr) > 0 && watched[0].revents != 0) {
      std::array<char, 64> bytes{};
      const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (count > 0) unread_.assign(bytes.data(), static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) ended = 1;  // the input has ended
    }
  }
  Event event;
  if (stopped != 0) {
    stopped = 0;
    leave();
    ::raise(SIGSTOP);
    enter();
    event.resized = true;
  }
  if (std::exchange(resized, 0) != 0) event.resized = true;
  event.ended = ended != 0;
  if (!unread_.empty()) event.key = take_key(unread_);
  return event;
}

std::string take_key(std::string& input) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kKeys = {{
      {"\x1b[A", "up"},
      {"\x1b[B", "down"},
      {"\x1b[C", "right"},
      {"\x1b[D", "left"},
      {"\x1bOA", "up"},
      {"\x1bOB", "down"},
      {"\x1bOC", "right"},
      {"\x1bOD", "left"},
      {"\x1b[5~", "pageup"},
      {"\x1b[6~", "pagedown"},
      {"\x1b[H", "home"},
      {"\x1bOH", "home"},
      {"\x1b[1~", "home"},
      {"\x1b[Z", "backtab"},
      {"\t", "tab"},
      {"\x1b[7~", "home"},
  }};
  for (const auto& [bytes, name] : kKeys) {
    if (!input.starts_with(bytes)) continue;
    input.erase(0, bytes.size());
    return std::string(name);
  }
  if (input.starts_with('\x1b')) {  // a key that is not known: all its bytes
    size_t end = 1;
    if (end < input.size() && (input[end] == '[' || input[end] == 'O')) ++end;
    while (end < input.size() && (input[end] < '@' || input[end] > '~')) ++end;
    input.erase(0, std::min(end + 1, input.size()));
    return "";
  }
  std::string key = input.substr(0, 1);
  input.erase(0, 1);
  return key;
}

}  // namespace tuft::terminal
