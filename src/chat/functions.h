// The functions that every template may call: dict, namespace, raise_exception, range, strftime_now.
#pragma once

#include <deque>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// What functions need of a rendering.
struct FunctionContext {
  Budget& budget;
  Nanos now;
  std::deque<Namespace>& namespaces;  // made by namespace(); values point into it
};

bool is_function(std::string_view name);
// raise_exception's error has the reason "template_raised".
Result<Value> call_function(FunctionContext& context, std::string_view name, const CallArguments& arguments);

// strftime in UTC and the C locale.
Result<std::string> format_time(Nanos now, std::string_view format);

}  // namespace tuft::chat
