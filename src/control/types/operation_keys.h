// The share keys of an operation: the ids that its spans, its logs and its calls to the worker carry.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>

#include "control/types/types.h"
#include "telemetry/attribute.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// The keys of an operation as attributes, followed by `more`:
// `log_info(event, text, KeyAttributes(keys, {{"tuft.tokens", n}}))`. Borrows all strings, so use it within one call.
// Attributes beyond kMax are left out.
class KeyAttributes {
 public:
  static constexpr size_t kMax = 24;

  explicit KeyAttributes(const OperationKeys& keys, std::initializer_list<telemetry::Attribute> more = {});

  operator telemetry::Attributes() const {  // NOLINT(google-explicit-constructor)
    return std::span<const telemetry::Attribute>(slots_.data(), size_);
  }

 private:
  void add(const telemetry::Attribute& attribute) {
    if (size_ < kMax) slots_[size_++] = attribute;
  }
  template <size_t... I>
  static std::array<telemetry::Attribute, kMax> empty_slots(std::index_sequence<I...>) {
    return {((void)I, telemetry::Attribute{"", false})...};
  }

  std::array<telemetry::Attribute, kMax> slots_ = empty_slots(std::make_index_sequence<kMax>());
  size_t size_ = 0;
};

// Returns the keys that the worker repeats on its own spans and logs.
worker::v1::CallIds call_ids(const OperationKeys& keys);

}  // namespace tuft::control
