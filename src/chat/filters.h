// The filters: {{ value | name(arguments) }}.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

struct FilterEntry {
  std::string_view name;
  Result<Value> (*apply)(Budget& budget, const Value& input, const CallArguments& arguments);
};

// The default of an argument that the template need not give.
inline const Value kNotGiven = None{};

// Returns null if there is no filter of this name.
const FilterEntry* find_filter(std::string_view name);

// The filters of each source file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();

}  // namespace tuft::chat
