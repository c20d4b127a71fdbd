// Text for a terminal: what is safe to print, how wide it is, and lines with styles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tuft::terminal {

// Returns the text in one line without anything that a terminal or its reader could take for something else: control
// characters (C0, C1), invisible and bidirectional marks, and bytes that are not UTF-8 become escapes such as "\x1b".
// Applying it twice changes nothing.
std::string visible(std::string_view text);

// Returns the columns that visible(text) takes: two for wide East Asian characters and emoji, none for combining marks.
size_t columns_of(std::string_view text);

// Return visible(text) in exactly `columns`: filled with spaces on the right or left, or cut, with "~" as its last
// character.
std::string left_aligned(std::string_view text, size_t columns);
std::string right_aligned(std::string_view text, size_t columns);
// Returns visible(text) in at most `columns`.
std::string cut(std::string_view text, size_t columns);

enum class Style : uint8_t { kPlain, kBold, kDim, kRed, kYellow, kGreen, kCyan, kReverse };

// A line of output. All text goes through visible(), so that no server can write to the terminal past it.
class Line {
 public:
  Line() = default;
  explicit Line(std::string_view text, Style style = Style::kPlain) { add(text, style); }

  Line& add(std::string_view text, Style style = Style::kPlain);
  // Appends spaces up to `column`, or one if the line is longer already.
  Line& to(size_t column);
  size_t columns() const;

  // Return the line without its newline, cut to `columns` (0: not cut).
  std::string plain(size_t columns = 0) const;
  // With the escape codes of its styles.
  std::string styled(size_t columns = 0) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };
  std::vector<Piece> pieces_;
};
using Lines = std::vector<Line>;

// Returns the lines, each with a newline. Spaces at the ends of lines are removed.
std::string plain_text(const Lines& lines);
std::string styled_text(const Lines& lines);

}  // namespace tuft::terminal
