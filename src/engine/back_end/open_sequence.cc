#include "engine/back_end/open_sequence.h"

namespace tuft::engine {

std::vector<WantedRow> wanted_rows(std::span<const Feed> feeds) {
  std::vector<WantedRow> wanted;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto count = static_cast<int>(feeds[i].tokens.size());
    for (int row = count - feeds[i].logits; row < count; ++row) wanted.push_back({i, row});
  }
  return wanted;
}

}  // namespace tuft::engine
