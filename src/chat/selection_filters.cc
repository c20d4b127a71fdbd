// Filters that apply another filter, a test or an attribute to every item, and `default`.
#include <optional>
#include <string>
#include <utility>

#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/tests.h"

namespace tuft::chat {
namespace {

// The arguments behind the first `count`.
CallArguments rest_of(const CallArguments& arguments, size_t count) {
  return {Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count), arguments.positional.end()),
          arguments.named};
}

// What happens to one item of `map`.
class Mapping {
 public:
  static Result<Mapping> make(const CallArguments& arguments) {
    Mapping out;
    if (!arguments.positional.empty()) {
      TUFT_ASSIGN(const auto name, text_argument(arguments.positional[0], "map: the filter's name"));
      out.filter_ = find_filter(name);
      if (out.filter_ == nullptr) return unsupported_here("a filter that map names");
      out.arguments_ = rest_of(arguments, 1);
      return out;
    }
    TUFT_ASSIGN(Values values, bind("map", arguments, {{"attribute"}, {"default", Value(None{})}}));
    out.attribute_ = values[0];
    out.fallback_ = values[1];
    return out;
  }

  Result<Value> apply(Budget& budget, const Value& item) const {
    if (filter_ != nullptr) return filter_->apply(budget, item, arguments_);
    TUFT_ASSIGN(Value found, get_path(budget, item, attribute_));
    return found.is<Undefined>() && !fallback_.is<None>() ? fallback_ : found;
  }

 private:
  const FilterEntry* filter_ = nullptr;
  CallArguments arguments_;
  Value attribute_;
  Value fallback_;
};

Result<Value> map(Budget& budget, const Value& input, const CallArguments& arguments) {
  if (!input.truthy()) return make_iterator(budget, {});
  TUFT_ASSIGN(const Mapping mapping, Mapping::make(arguments));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Values out;
  for (const Value& item : items) {
    auto mapped = mapping.apply(budget, item);
    // As Python's generators: the items before it can still be taken.
    if (!mapped.ok()) return make_iterator(budget, std::move(out), mapped.error());
    out.push_back(std::move(*mapped));
  }
  return make_iterator(budget, std::move(out));
}

// What one item of `select` and its like is asked.
class Question {
 public:
  static Result<Question> make(const CallArguments& arguments, bool by_attribute) {
    Question out;
    const size_t offset = by_attribute ? 1 : 0;
    if (arguments.positional.size() < offset) return template_error("Missing parameter for attribute name");
    if (by_attribute) out.attribute_ = arguments.positional[0];
    if (arguments.positional.size() == offset) return out;
    TUFT_ASSIGN(const auto name, text_argument(arguments.positional[offset], "the name of a test"));
    out.test_ = find_test(name);
    if (out.test_ == nullptr) return unsupported_here("a test that select names");
    out.arguments_ = rest_of(arguments, offset + 1);
    return out;
  }

  Result<bool> ask(Budget& budget, const Value& item) const {
    Value subject = item;
    if (attribute_) {
      TUFT_ASSIGN(subject, get_path(budget, item, *attribute_));
    }
    if (test_ == nullptr) return subject.truthy();
    return test_->apply(budget, subject, arguments_);
  }

 private:
  std::optional<Value> attribute_;
  const TestEntry* test_ = nullptr;
  CallArguments arguments_;
};

template <bool kKeep, bool kByAttribute>
Result<Value> select(Budget& budget, const Value& input, const CallArguments& arguments) {
  if (!input.truthy()) return make_iterator(budget, {});
  TUFT_ASSIGN(const Question question, Question::make(arguments, kByAttribute));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Values out;
  for (const Value& item : items) {
    TUFT_TRY(budget.step());
    const auto answer = question.ask(budget, item);
    if (!answer.ok()) return make_iterator(budget, std::move(out), answer.error());
    if (*answer == kKeep) out.push_back(item);
  }
  return make_iterator(budget, std::move(out));
}

Result<Value> fallback(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("default", arguments, {{"default_value", string_value("")}, {"boolean", Value(false)}}));
  const bool replace = input.is<Undefined>() || (values[1].truthy() && !input.truthy());
  return replace ? values[0] : input;
}

constexpr FilterEntry kFilters[] = {
    {"d", fallback},
    {"default", fallback},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kFilters;
}

}  // namespace tuft::chat
