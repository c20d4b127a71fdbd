// The picture of `tuft top`, without a terminal: from answers of the server and the state of the keys to lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/tuft/terminal/api.h"
#include "app/tuft/terminal/json.h"
#include "app/tuft/terminal/text.h"

namespace tuft::terminal {

enum class TopView : uint8_t { kOperations, kUsers, kSessions, kRuns };
inline constexpr size_t kTopViews = 4;

// What one refresh has read; null: not yet, or refused.
struct TopData {
  Json whoami, overview, system;
  // Series of the last minute, one value for each operation.
  Json counts, errors, p50, p95;
  // Series of the last minute by base model, in steps of 10 s: tokens per second, and requests in the engine. Operators
  // only.
  Json trained, sampled, running, waiting;
  Json rows;                            // the list of the view, except for the operations
  TopView view = TopView::kOperations;  // that `rows` belong to
  std::string problem;                  // of the last refresh; the rest is of the one before. Empty: none
  bool is_final = false;                // the problem does not go away by itself: the key is refused
};

// Asks the server. Blocks. What cannot be read becomes null; if the server does not answer, `before` comes back with
// its problem.
TopData read_top(Api& api, TopView view, const TopData& before);

// What the keys have changed.
struct TopState {
  TopView view = TopView::kOperations;
  size_t sort_column = 0;
  bool reversed = false;
  size_t scrolled = 0;  // rows
};

// Returns how many rows the view has.
size_t rows_in(const TopData& data, TopView view);

// Takes a key: "tab", "backtab", "left", "right", "up", "down", "pageup", "pagedown", "home", or a character: "r"
// reverses the order, "1" to "4" choose a view. `rows` limits scrolling. Returns false for a key without a meaning.
bool press(TopState& state, std::string_view key, size_t rows);

struct TopFrame {
  size_t columns = 80, rows = 24;
  bool is_live = true;  // false: without the help for keys, and as many rows as there are (--once)
};
Lines top_lines(const TopData& data, const TopState& state, const TopFrame& frame, const std::string& address);

}  // namespace tuft::terminal
