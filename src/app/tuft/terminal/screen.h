// The terminal itself: its size, its keys, and pictures that replace each other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <termios.h>

#include "app/tuft/terminal/text.h"
#include "base/clock.h"

namespace tuft::terminal {

struct Size {
  size_t columns = 80, rows = 24;
};
// Returns the size of the terminal of the standard output, else of $COLUMNS and $LINES, else 80 x 24.
Size screen_size();

// True if the standard output is a terminal that understands escape codes.
bool has_terminal();
// True if styles may be used: a terminal, and no $NO_COLOR.
bool has_styles();
// True if the locale of the environment is UTF-8.
bool has_utf8();

// Prints lines, with styles where the standard output shows them.
void print(const Lines& lines);

// Takes over the terminal: the alternate screen, without echo and cursor. The destructor, and a stop by ctrl-z, restore
// what was there. At most one exists at a time; used by one thread, which gets the signals SIGINT, SIGTERM, SIGHUP,
// SIGWINCH and SIGTSTP of the process.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Replaces the picture; lines are cut at the right edge, and more lines than the screen has are left out.
  void show(const Lines& lines);

  struct Event {
    std::string key;       // as TopState takes it; "" if none was pressed
    bool resized = false;  // or continued after a stop: draw again
    bool ended = false;    // a signal asks for the end
  };
  // Waits until something happens, `wake` (a file descriptor, or -1) becomes readable, or `limit` is over.
  Event wait(int wake, Nanos limit);

 private:
  void enter();
  void leave();

  termios before_ = {};
  std::string unread_;
};

// Takes the first key off `input`, bytes that a terminal has sent. Returns "" if they are no known key.
std::string take_key(std::string& input);

}  // namespace tuft::terminal
