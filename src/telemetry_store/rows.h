// One table of a segment while a query reads it. Internal to telemetry_store. For one thread.
//
// A column is loaded when all of it is needed, or when many of its values were asked for one by one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry_store/segment.h"

namespace tuft::telemetry_store::internal {

class Rows {
 public:
  Rows(std::shared_ptr<const Segment> segment, Table table)
      : segment_(std::move(segment)), table_(table), extent_(segment_->extent()), count_(extent_.rows_of(table)) {}

  const Segment& segment() const { return *segment_; }
  Table table() const { return table_; }
  const Extent& extent() const { return extent_; }
  size_t count() const { return count_; }
  // A column could not be read: its values are zero, and what was found in this segment is worth nothing.
  bool failed() const { return failed_; }

  const std::vector<uint64_t>& wide(Column column) { return load(wide_, column); }
  const std::vector<uint32_t>& narrow(Column column) { return load(narrow_, column); }
  const std::vector<uint8_t>& flags() { return load(flags_, Column::kFlags); }

  // One value of a column.
  uint64_t wide(Column column, uint32_t row) { return value(wide_, column, row); }
  uint32_t narrow(Column column, uint32_t row) { return value(narrow_, column, row); }
  uint8_t flags(uint32_t row) { return value(flags_, Column::kFlags, row); }
  Nanos time(uint32_t row) { return static_cast<Nanos>(wide(Column::kTime, row)); }
  Nanos duration(uint32_t row) { return static_cast<Nanos>(wide(Column::kDuration, row)); }
  TraceId trace(uint32_t row) { return {wide(Column::kTraceHigh, row), wide(Column::kTraceLow, row)}; }

  const std::vector<Context>& contexts() {
    if (!contexts_) contexts_ = segment_->contexts();
    return *contexts_;
  }
  const Context& context(uint32_t row) {
    static const Context& nobody = *new Context;
    const uint32_t number = narrow(Column::kContext, row);
    return !failed_ && number < contexts().size() ? contexts()[number] : nobody;
  }
  const Strings& strings() {
    if (!strings_) strings_ = segment_->strings();
    return *strings_;
  }
  // Valid until the next call.
  std::string_view text(Column column, uint32_t row) {
    const uint32_t number = narrow(column, row);
    if (number == 0 || failed_) return {};
    if (strings_ || ++strings_read_ > kSingleMax) return strings().text(number);
    text_ = segment_->string(number);
    return text_;
  }

 private:
  static constexpr size_t kSingleMax = 64;

  template <typename T>
  T value(std::array<std::vector<T>, kColumns>& loaded, Column column, uint32_t row) {
    size_t& singles = singles_[static_cast<size_t>(column)];
    if (singles > kSingleMax) return loaded[static_cast<size_t>(column)][row];
    if (singles == kSingleMax) return load(loaded, column)[row];
    ++singles;
    T out{};
    if (!segment_->value(table_, column, row, out)) failed_ = true;
    return out;
  }

  template <typename T>
  const std::vector<T>& load(std::array<std::vector<T>, kColumns>& loaded, Column column) {
    size_t& singles = singles_[static_cast<size_t>(column)];
    std::vector<T>& values = loaded[static_cast<size_t>(column)];
    if (singles > kSingleMax) return values;
    singles = kSingleMax + 1;
    values = segment_->column<T>(table_, column, count_);
    if (values.size() != count_) {
      failed_ = true;
      values.assign(count_, 0);
    }
    return values;
  }

  const std::shared_ptr<const Segment> segment_;
  const std::shared_ptr<const void> held_ = segment_->hold();
  const Table table_;
  const Extent extent_;
  const size_t count_;
  bool failed_ = false;
  std::array<std::vector<uint64_t>, kColumns> wide_;
  std::array<std::vector<uint32_t>, kColumns> narrow_;
  std::array<std::vector<uint8_t>, kColumns> flags_;
  std::optional<std::vector<Context>> contexts_;
  std::optional<Strings> strings_;
  size_t strings_read_ = 0;
  std::string text_;
  std::array<size_t, kColumns> singles_{};  // values that were read one by one; above kSingleMax: all are loaded
};

}  // namespace tuft::telemetry_store::internal
