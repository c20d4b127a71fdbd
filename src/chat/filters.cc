#include "chat/filters.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tuft::chat {

const FilterEntry* find_filter(std::string_view name) {
  static const auto* const kByName = [] {
    auto* by_name = new std::map<std::string_view, const FilterEntry*, std::less<>>();
    for (const auto entries : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
      for (const FilterEntry& entry : entries) by_name->emplace(entry.name, &entry);
    }
    return by_name;
  }();
  const auto found = kByName->find(name);
  return found == kByName->end() ? nullptr : found->second;
}

}  // namespace tuft::chat
