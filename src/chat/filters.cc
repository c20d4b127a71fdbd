#include "chat/filters.h"

#include <algorithm>

namespace tuft::chat {

const FilterEntry* find_filter(std::string_view name) {
  for (const auto entries : {text_filters(), sequence_filters(), selection_filters()}) {
    const auto found = std::ranges::find(entries, name, &FilterEntry::name);
    if (found != entries.end()) return &*found;
  }
  return nullptr;
}

}  // namespace tuft::chat
