#include <algorithm>
#include <limits>

#include "loss_graph/operation.h"
#include "loss_graph/parameters.h"

namespace tuft::loss_graph {

std::string_view Call::name() const {
  return operation_.name;
}

int Call::fail(size_t i, std::string_view rule) const {
  return builder_.fail("its argument '" + std::string(parameters_of(operation_.parameters)[i].name) + "' " +
                       std::string(rule));
}

int Call::array(size_t i) const {
  const Value& value = arguments_[i];
  if (value.is(Value::Kind::kArray)) return static_cast<int>(value.integer);
  if (!value.is_number()) return fail(i, "must be a tensor or a number");
  return builder_.fill(Shape::scalar(), value.as_double(), value.number_dtype());
}

int64_t Call::integer(size_t i, int64_t fallback) const {
  return has(i) ? integer(i) : fallback;
}

int64_t Call::integer(size_t i) const {
  if (arguments_[i].is_integer()) return arguments_[i].integer;
  fail(i, "must be an integer that does not depend on the values of a tensor");
  return 0;
}

double Call::number(size_t i, double fallback) const {
  if (!has(i)) return fallback;
  if (arguments_[i].is_number()) return arguments_[i].as_double();
  fail(i, "must be a number that does not depend on the values of a tensor");
  return fallback;
}

bool Call::flag(size_t i, bool fallback) const {
  if (!has(i)) return fallback;
  if (!arguments_[i].is_integer()) fail(i, "must be True or False");
  return arguments_[i].integer != 0;
}

Dtype Call::dtype(size_t i, Dtype fallback) const {
  if (!has(i)) return fallback;
  if (!arguments_[i].is(Value::Kind::kDtype)) fail(i, "must be a dtype");
  return arguments_[i].dtype;
}

std::vector<int64_t> Call::integers(size_t i) const {
  const Value& value = arguments_[i];
  if (value.is_integer()) return {value.integer};
  std::vector<int64_t> out;
  for (const Value& item : value.items) {
    if (item.is_integer()) out.push_back(item.integer);
  }
  if (!value.is(Value::Kind::kList) || out.size() != value.items.size()) fail(i, "must be a list of integers");
  return out;
}

std::vector<int> Call::dims(size_t i, int rank) const {
  std::vector<int> out;
  if (!has(i)) return out;
  for (const int64_t dim : integers(i)) out.push_back(builder_.dimension(dim, rank));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) fail(i, "names a dimension twice");
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Shape Call::shape(size_t i) const {
  return shape(i, integers(i));
}

Shape Call::shape(size_t i, const std::vector<int64_t>& sizes) const {
  Shape shape;
  if (sizes.size() > 2) {
    fail(i, "asks for " + std::to_string(sizes.size()) + " dimensions; an array has at most 2");
    return shape;
  }
  shape.rank = static_cast<int>(sizes.size());
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] < 0) fail(i, "asks for a negative size");
    shape.extents[dim] = std::clamp<int64_t>(sizes[dim], 0, std::numeric_limits<int32_t>::max());
  }
  return shape;
}

}  // namespace tuft::loss_graph
