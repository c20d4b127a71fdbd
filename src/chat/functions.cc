#include "chat/functions.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <string>
#include <utility>

#include "chat/text.h"

namespace tuft::chat {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox
constexpr int64_t kMaxRangeNumber = int64_t{1} << 40;

Result<Value> range(FunctionContext&, const CallArguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) return template_error("range expects one to three arguments");
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    const auto* number = &arguments.positional[i];
    TUFT_ASSIGN(numbers[count == 1 ? 1 : i], integer_argument(*number, "an argument of range"));
  }
  for (const int64_t number : numbers) {
    if (number > kMaxRangeNumber || number < -kMaxRangeNumber) return unsupported_here("range of numbers beyond 2^40");
  }
  const Range out{numbers[0], numbers[1], numbers[2]};
  if (out.step == 0) return template_error("range() arg 3 must not be zero");
  if (out.size() > kMaxRange) return template_error("Range too big; it may have 100000 items");
  return Value(out);
}

Result<Dict> dict_of(Budget& budget, const CallArguments& arguments) {
  if (arguments.positional.size() > 1) return template_error("dict expects at most one positional argument");
  Dict out;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* missing = source.as<Undefined>()) return template_error(*missing->why);
    if (source.dict() == nullptr) return unsupported_here("making a dict of a " + std::string(source.type_name()));
    TUFT_TRY(budget.allocate(source.dict()->entries().size() * sizeof(Dict::Entry)));
    out = *source.dict();
  }
  for (const auto& [name, value] : arguments.named) {
    TUFT_ASSIGN(Value key, make_string(budget, name));
    TUFT_TRY(out.insert(budget, std::move(key), value));
  }
  return out;
}

Result<Value> make_dict_value(FunctionContext& context, const CallArguments& arguments) {
  TUFT_ASSIGN(Dict out, dict_of(context.budget, arguments));
  return make_dict(context.budget, std::move(out));
}

Result<Value> make_namespace(FunctionContext& context, const CallArguments& arguments) {
  TUFT_ASSIGN(const Dict attributes, dict_of(context.budget, arguments));
  TUFT_TRY(context.budget.allocate(sizeof(Namespace)));
  Namespace& made = context.namespaces.emplace_back();
  for (const auto& [name, value] : attributes.entries()) {
    if (name.text() == nullptr) return unsupported_here("a namespace with a name that is not a string");
    if (name.text()->starts_with('_')) {
      return template_error("a namespace cannot have names that start with an underscore");
    }
    made.attributes.emplace_back(*name.text(), value);
  }
  return Value(&made);
}

Result<Value> raise_exception(FunctionContext& context, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("raise_exception", arguments, {{"message"}}));
  TUFT_ASSIGN(std::string message, to_text(context.budget, values[0]));
  return Error{ErrorCode::kInvalidArgument, std::move(message), "template_raised"};
}

Result<Value> strftime_now(FunctionContext& context, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("strftime_now", arguments, {{"format"}}));
  TUFT_ASSIGN(const auto format, text_argument(values[0], "the format of strftime_now"));
  TUFT_TRY(context.budget.allocate(format.size()));
  TUFT_ASSIGN(std::string text, format_time(context.now, format));
  return make_string(context.budget, std::move(text));
}

struct Function {
  std::string_view name;
  Result<Value> (*call)(FunctionContext&, const CallArguments&);
};

constexpr Function kFunctions[] = {
    {"dict", make_dict_value}, {"namespace", make_namespace},  {"raise_exception", raise_exception},
    {"range", range},          {"strftime_now", strftime_now},
};

const Function* find_function(std::string_view name) {
  const auto* found = std::ranges::find(kFunctions, name, &Function::name);
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace

bool is_function(std::string_view name) {
  return find_function(name) != nullptr;
}

Result<Value> call_function(FunctionContext& context, std::string_view name, const CallArguments& arguments) {
  return find_function(name)->call(context, arguments);
}

Result<std::string> format_time(Nanos now, std::string_view format) {
  now = std::max<Nanos>(now, 0);
  const std::time_t seconds = now / kSecond;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool has_flag = format[i + 1] == '-' && i + 2 < format.size();
    i += has_flag ? 2 : 1;
    const char directive = format[i];
    if (std::string_view("aAbBdHIjmMpSyY%").find(directive) == std::string_view::npos) {
      return unsupported_here(std::string("the directive '%") + directive + "' of strftime_now");
    }
    const char one[4] = {'%', has_flag ? '-' : directive, has_flag ? directive : '\0', '\0'};
    char text[64];
    out.append(text, std::strftime(text, sizeof text, one, &parts));
  }
  return out;
}

}  // namespace tuft::chat
