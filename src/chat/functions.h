// The functions that every template may call: dict, namespace, raise_exception, range, strftime_now.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// The part of a rendering that functions use.
struct FunctionContext {
  Budget& budget;
  Nanos now;
  std::deque<Namespace>& namespaces;  // the results of namespace(); values point into it
};

bool is_function(std::string_view name);
// Requires is_function(name). An error of raise_exception has the reason "template_raised".
Result<Value> call_function(FunctionContext& context, std::string_view name, const CallArguments& arguments);

// Formats a time in UTC and the C locale. Returns kUnimplemented for a directive that no published template uses.
Result<std::string> format_time(Nanos now, std::string_view format);

}  // namespace tuft::chat
