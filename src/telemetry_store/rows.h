// One table of a segment while a query reads it: loads each column when it is first needed. Internal to
// telemetry_store. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
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
  Nanos time(uint32_t row) { return static_cast<Nanos>(wide(Column::kTime)[row]); }
  Nanos duration(uint32_t row) { return static_cast<Nanos>(wide(Column::kDuration)[row]); }
  TraceId trace(uint32_t row) { return {wide(Column::kTraceHigh)[row], wide(Column::kTraceLow)[row]}; }

  const std::vector<Context>& contexts() {
    if (!contexts_) contexts_ = segment_->contexts();
    return *contexts_;
  }
  const Context& context(uint32_t row) {
    static const Context& nobody = *new Context;
    const uint32_t number = narrow(Column::kContext)[row];
    return number < contexts().size() ? contexts()[number] : nobody;
  }
  const Strings& strings() {
    if (!strings_) strings_ = segment_->strings();
    return *strings_;
  }
  std::string_view text(Column column, uint32_t row) { return strings().text(narrow(column)[row]); }

 private:
  template <typename T>
  const std::vector<T>& load(std::map<Column, std::vector<T>>& loaded, Column column) {
    const auto [found, added] = loaded.try_emplace(column);
    if (!added) return found->second;
    found->second = segment_->column<T>(table_, column, count_);
    if (found->second.size() != count_) {
      failed_ = true;
      found->second.assign(count_, 0);
    }
    return found->second;
  }

  const std::shared_ptr<const Segment> segment_;
  const Table table_;
  const Extent extent_;
  const size_t count_;
  bool failed_ = false;
  std::map<Column, std::vector<uint64_t>> wide_;
  std::map<Column, std::vector<uint32_t>> narrow_;
  std::map<Column, std::vector<uint8_t>> flags_;
  std::optional<std::vector<Context>> contexts_;
  std::optional<Strings> strings_;
};

}  // namespace tuft::telemetry_store::internal
