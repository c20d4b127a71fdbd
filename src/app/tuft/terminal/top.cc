// `tuft top`: a thread reads, this one draws and takes keys.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "app/tuft/terminal/commands.h"
#include "app/tuft/terminal/opening.h"
#include "app/tuft/terminal/screen.h"
#include "app/tuft/terminal/top_view.h"
#include "base/background_thread.h"
#include "base/mutex.h"

namespace tuft::terminal {
namespace {

constexpr Nanos kDrawAtLeast = 250 * kMillisecond;  // so that a signal is noticed

// Reads again and again on a thread of its own. Thread-safe.
class Reader {
 public:
  Reader(HttpClient& client, Nanos interval)
      : client_(client), interval_(interval), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  }
  ~Reader() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    client_.cancel();
    thread_.join();
    ::close(wake_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Becomes readable when there is something new.
  int wake() const { return wake_; }
  TopData newest() {
    uint64_t count = 0;
    while (::read(wake_, &count, sizeof(count)) > 0) {
    }
    const MutexLock lock(mutex_);
    return data_;
  }
  // Reads at once if the view is another one.
  void want(TopView view) {
    const MutexLock lock(mutex_);
    if (view_ == view) return;
    view_ = view;
    changed_.notify_all();
  }

 private:
  void run() {
    TopData data;
    while (true) {
      TopView view = {};
      {
        const MutexLock lock(mutex_);
        if (stopping_) return;
        view = view_;
      }
      data = read_top(client_, view, data);
      const MutexLock lock(mutex_);
      data_ = data;
      const uint64_t one = 1;
      if (::write(wake_, &one, sizeof(one)) < 0) return;
      const Nanos end = system_clock().monotonic() + interval_;
      while (!stopping_ && view_ == view && system_clock().monotonic() < end)
        changed_.wait_until(mutex_, time_point(end));
    }
  }

  HttpClient& client_;
  const Nanos interval_;
  const int wake_;
  Mutex mutex_;
  CondVar changed_;
  TopData data_ TUFT_GUARDED_BY(mutex_);
  TopView view_ TUFT_GUARDED_BY(mutex_) = TopView::kOperations;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

int show_once(HttpClient& client, const std::string& address) {
  const TopData data = read_top(client, TopView::kOperations, {});
  if (!data.problem.empty()) return fail("top", internal_error(data.problem));
  const TopFrame frame{.columns = screen_size().columns, .is_live = false};
  std::fputs(plain_text(top_lines(data, {}, frame, address)).c_str(), stdout);
  return 0;
}

// Returns the problem that ended it; empty: the user did.
std::string show_live(HttpClient& client, const TopOptions& options, const std::string& address) {
  Reader reader(client, static_cast<Nanos>(options.interval * static_cast<double>(kSecond)));
  Screen screen;
  TopState state;
  while (true) {
    const TopData data = reader.newest();
    if (data.is_final) return data.problem;
    const Size size = screen_size();
    screen.show(top_lines(data, state, {.columns = size.columns, .rows = size.rows}, address));
    const Screen::Event event = screen.wait(reader.wake(), kDrawAtLeast);
    if (event.ended || event.key == "q" || event.key == "Q") return {};
    if (!event.key.empty()) press(state, event.key, rows_in(data, state.view));
    reader.want(state.view);
  }
}

}  // namespace

int run_top(const TopOptions& options) {
  const auto client = open_client(options.server);
  if (!client.ok()) return fail("top", client.error());
  const std::string address = address_text(options.server);
  if (options.once) return show_once(**client, address);
  if (!has_terminal() || ::isatty(STDIN_FILENO) != 1) {
    fail("top", invalid_argument("the live view needs a terminal; --once prints one picture"));
    return 2;
  }
  const std::string problem = show_live(**client, options, address);
  return problem.empty() ? 0 : fail("top", internal_error(problem));
}

}  // namespace tuft::terminal
