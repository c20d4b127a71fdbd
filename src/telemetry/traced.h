// Traces a function, a callable or a class with one line of code.
//
//   int Cache::find(Key key) {
//     TUFT_TRACED_FUNCTION();                              // span "find", from here to the return
//     TUFT_TRACED_FUNCTION({"tuft.cache.key", key.id});    // the same with attributes
//     ...
//   }
//
//   class Cache {
//     TUFT_TRACED_CLASS("acme.cache");                     // the tracer of its member functions
//   };
//
//   auto load = traced(tracer, "cache.load", [&](int id) -> Result<Entry> { ... });
//   auto entry = load(7);                                  // one span per call; ERROR if it returns an error or throws
//
// The span is the current one until it ends: spans and log records inside are below it. An exception sets status ERROR
// and is rethrown. Each call decides anew whether to record. Not for coroutines. A call costs about as much as a span,
// and one branch while telemetry is off; do not use it in functions that run per token.
#pragma once

#include <concepts>
#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"
#include "telemetry/telemetry.h"
#include "telemetry/trace.h"

// The tracer of functions outside of classes with TUFT_TRACED_CLASS. A namespace may declare its own.
inline tuft::telemetry::Tracer tuft_traced_tracer() {
  return tuft::telemetry::get_tracer("tuft.traced");
}

namespace tuft::telemetry {

// Data that all calls of one function share. Made at the first call; lives as long as the process.
struct TracedSite {
  TracedSite(std::string_view function, std::source_location at) : name(Name::intern(function)), where(at) {}
  Name name;
  std::source_location where;
};

// A type that holds either an Error or something else, such as Result<T> and Status.
template <typename T>
concept ReturnsError = requires(const T& value) {
  { value.ok() } -> std::convertible_to<bool>;
  { value.error() } -> std::convertible_to<const Error&>;
};

// A span that is current until the end of the scope. TUFT_TRACED_FUNCTION makes one named `traced_function`.
class TracedScope {
 public:
  TracedScope(Tracer tracer, const TracedSite& site, Attributes attributes = {})
      : span_(tracer.start_span(site.name, {.attributes = attributes})), current_(span_.context()) {
    if (!span_.recording()) return;
    exceptions_ = std::uncaught_exceptions();
    span_.set_attributes({{"code.function.name", site.where.function_name()},
                          {"code.file.path", site.where.file_name()},
                          {"code.line.number", site.where.line()}});
  }
  ~TracedScope() {
    if (span_.recording() && std::uncaught_exceptions() > exceptions_)
      span_.record_error(internal_error("an exception left the function", "exception"));
  }
  TracedScope(const TracedScope&) = delete;
  TracedScope& operator=(const TracedScope&) = delete;

  Span& span() { return span_; }

  // `return traced_function.returns(save(file));` records the error of the result, if it has one, on the span.
  template <ReturnsError R>
  R returns(R result) {
    if (!result.ok()) span_.record_error(result.error());
    return result;
  }

 private:
  Span span_;
  ContextScope current_;
  int exceptions_ = 0;
};

// Returns a callable that calls `function` inside a span. To set attributes of one call, wrap a lambda and set them on
// the span inside.
template <typename Function>
auto traced(Tracer tracer, Name name, Function function) {
  return [tracer, name, function = std::move(function)](auto&&... arguments) mutable -> decltype(auto) {
    using R = std::invoke_result_t<Function&, decltype(arguments)...>;
    Span span = tracer.start_span(name);
    const ContextScope current(span.context());
    try {
      if constexpr (ReturnsError<std::remove_cvref_t<R>>) {
        R result = std::invoke(function, std::forward<decltype(arguments)>(arguments)...);
        if (!result.ok()) span.record_error(result.error());
        return static_cast<R>(std::forward<R>(result));
      } else {
        return static_cast<R>(std::invoke(function, std::forward<decltype(arguments)>(arguments)...));
      }
    } catch (const std::exception& problem) {
      span.record_error(internal_error(problem.what(), "exception"));
      throw;
    } catch (...) {
      span.record_error(internal_error("an exception of an unknown type", "exception"));
      throw;
    }
  };
}

}  // namespace tuft::telemetry

#define TUFT_TRACED_CLASS(scope)                          \
  static ::tuft::telemetry::Tracer tuft_traced_tracer() { \
    return ::tuft::telemetry::get_tracer(scope);          \
  }

#define TUFT_TRACED_FUNCTION(...)                                                                           \
  static const ::tuft::telemetry::TracedSite tuft_traced_site(__func__, ::std::source_location::current()); \
  [[maybe_unused]] ::tuft::telemetry::TracedScope traced_function(                                          \
      tuft_traced_tracer(), tuft_traced_site __VA_OPT__(, ) __VA_OPT__({__VA_ARGS__}))
