// The tests: {% if value is name(arguments) %}.
#pragma once

#include <string_view>

#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

struct TestEntry {
  std::string_view name;
  Result<bool> (*apply)(Budget& budget, const Value& input, const CallArguments& arguments);
};

// Returns null if there is no test of this name.
const TestEntry* find_test(std::string_view name);

}  // namespace tuft::chat
