#include "app/tuft/terminal/table.h"

#include <algorithm>
#include <numeric>

namespace tuft::terminal {
namespace {

constexpr size_t kGap = 2;     // spaces between columns
constexpr size_t kNarrow = 8;  // no column is made narrower than this

std::vector<size_t> natural_widths(const std::vector<Column>& columns, const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    size_t width = 0;
    for (const Row& row : rows) width = std::max(width, columns_of(row[i].text));
    widths.push_back(std::max(columns_of(columns[i].title), std::min(width, columns[i].columns_max)));
  }
  return widths;
}

size_t total_of(const std::vector<size_t>& kept, const std::vector<size_t>& widths) {
  size_t sum = kept.empty() ? 0 : kGap * (kept.size() - 1);
  for (const size_t i : kept) sum += widths[i];
  return sum;
}

// Leaves out columns with a rank above `rank` until the rest fits. Of equal ranks the last goes first.
void leave_out(const std::vector<Column>& columns, const std::vector<size_t>& widths, size_t width, int rank,
               std::vector<size_t>& kept) {
  while (total_of(kept, widths) > width) {
    const auto worst = std::max_element(kept.begin(), kept.end(),
                                        [&columns](size_t a, size_t b) { return columns[a].rank <= columns[b].rank; });
    if (worst == kept.end() || columns[*worst].rank <= rank) return;
    kept.erase(worst);
  }
}

// Makes the widest columns narrower, down to kNarrow.
void narrow(const std::vector<size_t>& kept, size_t width, std::vector<size_t>& widths) {
  while (total_of(kept, widths) > width) {
    const auto widest =
        std::max_element(kept.begin(), kept.end(), [&widths](size_t a, size_t b) { return widths[a] < widths[b]; });
    if (widest == kept.end() || widths[*widest] <= kNarrow) return;
    --widths[*widest];
  }
}

}  // namespace

Lines table_lines(const std::vector<Column>& columns, const std::vector<Row>& rows, size_t width) {
  std::vector<size_t> widths = natural_widths(columns, rows);
  std::vector<size_t> kept(columns.size());
  std::iota(kept.begin(), kept.end(), 0);
  if (width > 0) {
    leave_out(columns, widths, width, 1, kept);
    const std::vector<size_t> natural = widths;
    narrow(kept, width, widths);
    if (total_of(kept, widths) > width) {
      widths = natural;
      leave_out(columns, widths, width, 0, kept);
      narrow(kept, width, widths);
    }
  }
  const auto aligned = [&](size_t i, const std::string& text) {
    return columns[i].right ? right_aligned(text, widths[i]) : left_aligned(text, widths[i]);
  };
  Lines lines;
  Line titles;
  for (const size_t i : kept) {
    if (i != kept.front()) titles.add(std::string(kGap, ' '));
    titles.add(aligned(i, columns[i].title), Style::kBold);
  }
  lines.push_back(std::move(titles));
  for (const Row& row : rows) {
    Line line;
    for (const size_t i : kept) {
      if (i != kept.front()) line.add(std::string(kGap, ' '));
      line.add(aligned(i, row[i].text), row[i].style);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tuft::terminal
