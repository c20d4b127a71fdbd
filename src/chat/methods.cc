#include "chat/methods.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "chat/operators.h"

namespace tuft::chat {
namespace {

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kSequenceMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"changed", "cycle"};
// They would change what they are called on; the sandbox hides them.
constexpr std::string_view kHiddenOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kHiddenOfList[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

template <size_t kSize>
bool has(const std::string_view (&names)[kSize], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

Value method_of(const Value& object, std::string_view name) {
  return Value(std::make_shared<const Callable>(Callable{Callable::Kind::kMethod, std::string(name), object, nullptr}));
}

Value hidden(const Value& object, std::string_view name) {
  return undefined("access to attribute '" + std::string(name) + "' of '" + std::string(object.type_name()) +
                   "' object is unsafe.");
}

Result<Value> call_dict_method(Budget& budget, const Value& object, std::string_view name,
                               const CallArguments& arguments) {
  const DictRef& dict = *object.as<DictRef>();
  if (name == "get") {
    TUFT_ASSIGN(const Values values, bind("get", arguments, {{"key"}, {"default", Value(None{})}}));
    TUFT_ASSIGN(const Value* found, dict->find(budget, values[0]));
    return found == nullptr ? values[1] : *found;
  }
  TUFT_TRY(bind(name, arguments, {}));
  if (name == "copy") return object;
  using enum DictView::Part;
  return Value(DictView{dict, name == "keys" ? kKeys : name == "values" ? kValues : kItems});
}

Result<Value> call_sequence_method(Budget& budget, const Value& object, std::string_view name,
                                   const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind(name, arguments, {{"value"}}));
  const Values& items = *object.sequence();
  int64_t times = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    TUFT_ASSIGN(const bool same, equals(budget, items[i], values[0]));
    if (same && name == "index") return Value(static_cast<int64_t>(i));
    times += same ? 1 : 0;
  }
  if (name == "index") return template_error("the value is not in the list");
  return Value(times);
}

Result<Value> call_loop_method(Budget& budget, Loop& loop, std::string_view name, const CallArguments& arguments) {
  if (!arguments.named.empty()) return template_error("loop." + std::string(name) + " takes no named arguments");
  if (name == "cycle") {
    if (arguments.positional.empty()) return template_error("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  if (!loop.runs) return template_error("loop.changed behind the end of the loop");
  TUFT_ASSIGN(Value now, make_tuple(budget, arguments.positional));
  if (loop.last_changed) {
    TUFT_ASSIGN(const bool same, equals(budget, *loop.last_changed, now));
    if (same) return Value(false);
  }
  if (now.depth() >= kMaxValueDepth) return template_error("loop.changed of a value that is too deep");
  loop.depth = std::max(loop.depth, now.depth() + 1);
  loop.last_changed = std::move(now);
  return Value(true);
}

}  // namespace

bool is_method(std::string_view name) {
  return is_text_method(name) || has(kDictMethods, name) || has(kSequenceMethods, name) || has(kLoopMethods, name) ||
         has(kHiddenOfDict, name) || has(kHiddenOfList, name);
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) {
    return is_text_method(name) ? std::optional<Value>(method_of(object, name)) : std::nullopt;
  }
  if (object.dict() != nullptr) {
    if (has(kDictMethods, name)) return method_of(object, name);
    return has(kHiddenOfDict, name) ? std::optional<Value>(hidden(object, name)) : std::nullopt;
  }
  if (object.sequence() == nullptr) return std::nullopt;
  if (has(kSequenceMethods, name) || (object.is<List>() && name == "copy")) return method_of(object, name);
  return object.is<List>() && has(kHiddenOfList, name) ? std::optional<Value>(hidden(object, name)) : std::nullopt;
}

Result<Value> call_method(Budget& budget, const Value& object, std::string_view name, const CallArguments& arguments) {
  if (const auto* text = object.text()) return call_text_method(budget, *text, name, arguments);
  if (object.dict() != nullptr) return call_dict_method(budget, object, name, arguments);
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) return call_loop_method(budget, **loop, name, arguments);
  if (name != "copy") return call_sequence_method(budget, object, name, arguments);
  TUFT_TRY(bind(name, arguments, {}));
  return object;
}

}  // namespace tuft::chat
