#include "chat/filters.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tuft::chat {

const FilterEntry* find_filter(std::string_view name) {
  static const auto* const by_name = [] {
    auto* entries_by_name = new std::map<std::string_view, const FilterEntry*, std::less<>>();
    for (const auto entries : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
      for (const FilterEntry& entry : entries) entries_by_name->emplace(entry.name, &entry);
    }
    return entries_by_name;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace tuft::chat
