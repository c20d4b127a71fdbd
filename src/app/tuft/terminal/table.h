// Tables that fit the width of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/tuft/terminal/text.h"

namespace tuft::terminal {

struct Column {
  std::string title;
  bool right = false;       // aligned to the right, as numbers are
  size_t columns_max = 40;  // longer cells are cut
  // With too little room the columns with the highest rank are left out, one by one; then the widest columns are cut;
  // then columns of rank 1 are left out. Rank 0 always stays.
  int rank = 0;
};

struct Cell {
  std::string text;
  Style style = Style::kPlain;
};
using Row = std::vector<Cell>;

// Returns a line of titles and one for each row, in at most `columns` (0: any width). Rows have a cell for each column.
Lines table_lines(const std::vector<Column>& columns, const std::vector<Row>& rows, size_t width);

}  // namespace tuft::terminal
