// Other views of an array, parts of it, and several put together.
#include <algorithm>
#include <array>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

// reshape and view: one size may be -1.
Value lower_reshape(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  std::vector<int64_t> sizes = call.integers(1);
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = 1;
    const int64_t rest = call.shape(1, sizes).count();
    const int64_t count = builder.shape(a).count();
    if (rest == 0 || count % rest != 0) {
      return Value::array(call.fail(1, "does not fit " + std::to_string(count) + " elements"));
    }
    *open = count / rest;
  }
  return Value::array(builder.reshape(a, call.shape(1, sizes)));
}

Value lower_flatten(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  if (shape.rank == 2 && call.name() == "flatten") {
    const int first = builder.dimension(call.integer(1, 0), 2);
    if (first == builder.dimension(call.integer(2, -1), 2)) return Value::array(a);
  }
  return Value::array(builder.reshape(a, Shape::of(shape.count())));
}

Value lower_squeeze(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  const std::vector<int> dims = call.dims(1, shape.rank);
  std::vector<int64_t> kept;
  for (int dim = 0; dim < shape.rank; ++dim) {
    const bool named = !call.has(1) || std::find(dims.begin(), dims.end(), dim) != dims.end();
    if (!named || shape.extent(dim) != 1) kept.push_back(shape.extent(dim));
  }
  return Value::array(builder.reshape(a, call.shape(0, kept)));
}

int unsqueezed(PlanBuilder& builder, int a, int64_t dim) {
  const Shape shape = builder.shape(a);
  if (shape.rank == 2) return builder.fail("its result has three dimensions; an array has at most 2");
  const int at = builder.dimension(dim, shape.rank + 1);
  if (shape.rank == 0) return builder.reshape(a, Shape::of(1));
  return builder.reshape(a, at == 0 ? Shape::of(1, shape.cols()) : Shape::of(shape.cols(), 1));
}

Value lower_unsqueeze(PlanBuilder& builder, const Call& call) {
  return Value::array(unsqueezed(builder, call.array(0), call.integer(1)));
}

Value lower_t(PlanBuilder& builder, const Call& call) {
  return Value::array(transposed(builder, call.array(0)));
}

// transpose(input, dim0, dim1) and permute(input, dims)
Value lower_permute(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const int rank = builder.shape(a).rank;
  std::vector<int> dims;
  if (call.name() == "transpose") {
    const int first = builder.dimension(call.integer(1), rank);
    const int second = builder.dimension(call.integer(2), rank);
    return Value::array(first == second ? a : transposed(builder, a));
  }
  for (const int64_t dim : call.integers(1)) dims.push_back(builder.dimension(dim, rank));
  std::vector<int> sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int>(dims.size()) != rank || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Value::array(call.fail(1, "must name each dimension once"));
  }
  return Value::array(dims == sorted ? a : transposed(builder, a));
}

Value lower_flip(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  const std::vector<int> dims = call.dims(1, shape.rank);
  const auto flips = [&](int dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); };
  const bool rows = shape.rank == 2 && flips(0);
  const bool cols = shape.rank > 0 && flips(shape.rank - 1);
  const int64_t begin = (rows ? (shape.rows() - 1) * shape.cols() : 0) + (cols ? shape.cols() - 1 : 0);
  if (shape.count() == 0) return Value::array(a);
  return Value::array(builder.copy(a, shape, begin, rows ? -shape.cols() : shape.cols(), cols ? -1 : 1));
}

int expanded(PlanBuilder& builder, int a, const Shape& to) {
  const Shape from = builder.shape(a);
  const bool fits = from.rank <= to.rank && (from.rows() == to.rows() || from.rows() == 1) &&
                    (from.cols() == to.cols() || from.cols() == 1);
  if (!fits) return builder.fail("an array of shape " + from.text() + " cannot be expanded to " + to.text());
  return builder.copy(a, to, 0, from.rows() == 1 ? 0 : from.cols(), from.cols() == 1 ? 0 : 1);
}

// expand and broadcast_to: -1 keeps a size.
Value lower_expand(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  std::vector<int64_t> sizes = call.integers(1);
  const auto added = static_cast<int64_t>(sizes.size()) - shape.rank;
  for (size_t i = 0; i < sizes.size() && sizes.size() <= 2; ++i) {
    const int64_t dim = static_cast<int64_t>(i) - added;
    if (sizes[i] == -1 && dim >= 0 && dim < shape.rank) sizes[i] = shape.extent(static_cast<int>(dim));
  }
  return Value::array(expanded(builder, a, call.shape(1, sizes)));
}

Value lower_expand_as(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape to = builder.shape(call.array(1));
  return Value::array(expanded(builder, a, to));
}

std::vector<int> arrays_of(PlanBuilder& builder, const Call& call) {
  std::vector<int> out;
  for (const Value& item : call.value(0).items) {
    if (!item.is(Value::Kind::kArray)) {
      call.fail(0, "must be a list of tensors");
      return {};
    }
    out.push_back(static_cast<int>(item.integer));
  }
  if (out.empty()) builder.fail("it gets no tensors");
  return out;
}

Value lower_cat(PlanBuilder& builder, const Call& call) {
  const std::vector<int> parts = arrays_of(builder, call);
  if (parts.empty()) return Value::array(builder.fail("it gets no tensors"));
  const int dim = builder.dimension(call.integer(1, 0), builder.shape(parts.front()).rank);
  return Value::array(builder.concat(parts, dim));
}

Value lower_stack(PlanBuilder& builder, const Call& call) {
  std::vector<int> parts = arrays_of(builder, call);
  if (parts.empty()) return Value::array(builder.fail("it gets no tensors"));
  const Shape shape = builder.shape(parts.front());
  const int dim = builder.dimension(call.integer(1, 0), shape.rank + 1);
  for (int& part : parts) {
    if (!(builder.shape(part) == shape)) return Value::array(builder.fail("the tensors have different shapes"));
    part = unsqueezed(builder, part, dim);
  }
  return Value::array(builder.concat(parts, dim));
}

// gather(input, dim, index) and take_along_dim(input, indices, dim)
Value lower_gather(PlanBuilder& builder, const Call& call) {
  const bool along = call.name() == "take_along_dim";
  const int a = call.array(0);
  const int index = call.array(along ? 1 : 2);
  const Shape from = builder.shape(a);
  const Shape shape = builder.shape(index);
  const int dim = builder.dimension(call.integer(along ? 2 : 1), from.rank);
  if (from.rank == 0 || shape.rank != from.rank) {
    return Value::array(builder.fail("the index must have as many dimensions as the input, and at least one"));
  }
  for (int other = 0; other < from.rank; ++other) {
    if (other == dim || (along ? shape.extent(other) == from.extent(other) : shape.extent(other) <= from.extent(other)))
      continue;
    return Value::array(builder.fail("the index is larger than the input in another dimension"));
  }
  return Value::array(builder.gather(a, dim, index, shape));
}

int taken(PlanBuilder& builder, int a, int dim, int index) {
  const Shape from = builder.shape(a);
  const int64_t count = builder.shape(index).count();
  if (builder.shape(index).rank > 1 || from.rank == 0) {
    return builder.fail("the index must be one-dimensional; for others use torch.gather");
  }
  if (from.rank == 1) return builder.gather(a, 0, index, Shape::of(count));
  return builder.gather(a, dim, index, dim == 0 ? Shape::of(count, from.cols()) : Shape::of(from.rows(), count));
}

Value lower_index_select(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const int dim = builder.dimension(call.integer(1), builder.shape(a).rank);
  return Value::array(taken(builder, a, dim, call.array(2)));
}

// Elements begin, begin + step, ... of one dimension.
struct Part {
  int64_t begin = 0;
  int64_t step = 1;
  int64_t count = 0;
  bool dropped = false;  // one element, whose dimension goes
};

int part_of(PlanBuilder& builder, int a, const Part& rows, const Part& cols) {
  const Shape shape = builder.shape(a);
  const int64_t width = shape.rank == 2 ? shape.cols() : 0;
  std::vector<int64_t> left;
  if (shape.rank == 2 && !rows.dropped) left.push_back(rows.count);
  if (!cols.dropped) left.push_back(cols.count);
  Shape out{static_cast<int>(left.size()), {1, 1}};
  std::copy(left.begin(), left.end(), out.extents.begin());
  const int64_t begin = rows.begin * width + cols.begin;
  // A row that remains alone lies along the columns of the result.
  const bool column = shape.rank == 2 && cols.dropped;
  const int64_t row_stride = rows.step * width;
  return builder.copy(a, out, out.count() == 0 ? 0 : begin, column ? 0 : row_stride, column ? row_stride : cols.step);
}

Part one_of(PlanBuilder& builder, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent) {
    builder.fail("index " + std::to_string(index) + " lies outside of a dimension of " + std::to_string(extent));
    return {0, 1, 1, true};
  }
  return {index < 0 ? index + extent : index, 1, 1, true};
}

int64_t bound_of(PlanBuilder& builder, const Value& value, int64_t extent, int64_t fallback) {
  if (!value.is_given()) return fallback;
  if (!value.is_integer()) {
    builder.fail("the bounds of a slice must be integers that do not depend on the values of a tensor");
    return fallback;
  }
  const int64_t bound = value.integer < 0 ? std::max(value.integer, -extent) + extent : value.integer;
  return std::clamp<int64_t>(bound, 0, extent);
}

Part slice_of(PlanBuilder& builder, const Value& slice, int64_t extent) {
  Part part;
  part.begin = bound_of(builder, slice.items[0], extent, 0);
  const int64_t end = bound_of(builder, slice.items[1], extent, extent);
  if (slice.items[2].is_given()) part.step = slice.items[2].integer;
  if (!(slice.items[2].is_integer() || !slice.items[2].is_given()) || part.step < 1) {
    builder.fail("the step of a slice must be a positive integer; to go backwards use torch.flip");
    part.step = 1;
  }
  part.step = std::min(part.step, std::max<int64_t>(1, extent));
  const int64_t span = std::max<int64_t>(0, end - part.begin);
  part.count = span / part.step + (span % part.step == 0 ? 0 : 1);
  return part;
}

Part whole_of(int64_t extent) {
  return {0, 1, extent, false};
}

// select(input, dim, index), narrow(input, dim, start, length)
Value lower_select(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  if (shape.rank == 0) return Value::array(builder.fail("a tensor without dimensions has no parts"));
  const int dim = builder.dimension(call.integer(1), shape.rank);
  Part part = whole_of(0);
  if (call.name() == "select") {
    part = one_of(builder, call.integer(2), shape.extent(dim));
  } else {
    const int64_t start = call.integer(2);
    const int64_t length = call.integer(3);
    const int64_t begin = start < 0 ? start + shape.extent(dim) : start;
    if (begin < 0 || length < 0 || begin > shape.extent(dim) - length) {
      return Value::array(builder.fail("the part lies outside of a dimension of " + std::to_string(shape.extent(dim))));
    }
    part = {begin, 1, length, false};
  }
  if (shape.rank == 1) return Value::array(part_of(builder, a, {}, part));
  const Part other = whole_of(shape.extent(1 - dim));
  return Value::array(dim == 0 ? part_of(builder, a, part, other) : part_of(builder, a, other, part));
}

// The difference of neighbours.
Value lower_diff(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  if (shape.rank == 0 || call.integer(1, 1) != 1) {
    return Value::array(builder.fail("it takes a tensor with dimensions, and n must be 1"));
  }
  const int dim = builder.dimension(call.integer(2, -1), shape.rank);
  const int64_t count = std::max<int64_t>(0, shape.extent(dim) - 1);
  const Part before{0, 1, count, false};
  const Part after{count == 0 ? 0 : 1, 1, count, false};
  const auto cut = [&](const Part& part) {
    if (shape.rank == 1) return part_of(builder, a, {}, part);
    const Part other = whole_of(shape.extent(1 - dim));
    return dim == 0 ? part_of(builder, a, part, other) : part_of(builder, a, other, part);
  };
  const int later = cut(after);
  return Value::array(builder.binary("sub", later, cut(before)));
}

// Element (r, c) stays where c - r <= diagonal (tril) or c - r >= diagonal (triu).
Value lower_triangle(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  if (shape.rank != 2) return Value::array(builder.fail("it takes a tensor of two dimensions"));
  const int rows = builder.reshape(builder.range(shape.rows(), 0, 1, Dtype::kInt), Shape::of(shape.rows(), 1));
  const int cols = builder.range(shape.cols(), 0, 1, Dtype::kInt);
  const int diagonal = builder.fill(Shape::scalar(), static_cast<double>(call.integer(1, 0)), Dtype::kInt);
  const int stays = builder.binary(call.name() == "tril" ? "le" : "ge", builder.binary("sub", cols, rows), diagonal);
  const int zero = builder.fill(Shape::scalar(), 0, builder.dtype(a));
  return Value::array(builder.where(stays, a, zero));
}

constexpr std::array kShapeOperations = std::to_array<Operation>({
    {"reshape", kTensor, "input shape...", lower_reshape},
    {"view", kMethod, "input shape...", lower_reshape},
    {"flatten", kTensor, "input start_dim? end_dim?", lower_flatten},
    {"ravel", kTensor, "input", lower_flatten},
    {"squeeze", kTensor, "input dim?", lower_squeeze},
    {"unsqueeze", kTensor, "input dim", lower_unsqueeze},
    {"t", kTensor, "input", lower_t},
    {"transpose", kTensor, "input dim0 dim1", lower_permute},
    {"permute", kTensor, "input dims...", lower_permute},
    {"flip", kTensor, "input dims...", lower_flip},
    {"expand", kMethod, "input shape...", lower_expand},
    {"broadcast_to", kTensor, "input shape...", lower_expand},
    {"expand_as", kMethod, "input other", lower_expand_as},
    {"cat", kTorch, "tensors dim?", lower_cat},
    {"concat", kTorch, "tensors dim?", lower_cat},
    {"concatenate", kTorch, "tensors dim?", lower_cat},
    {"stack", kTorch, "tensors dim?", lower_stack},
    {"gather", kTensor, "input dim index", lower_gather},
    {"take_along_dim", kTensor, "input indices dim", lower_gather},
    {"index_select", kTensor, "input dim index", lower_index_select},
    {"select", kTensor, "input dim index", lower_select},
    {"narrow", kTensor, "input dim start length", lower_select},
    {"diff", kTensor, "input n? dim?", lower_diff},
    {"tril", kTensor, "input diagonal?", lower_triangle},
    {"triu", kTensor, "input diagonal?", lower_triangle},
});

// The parts that an index of several items asks for. `shape.rank` parts, and where None adds a dimension.
struct Selection {
  std::vector<Part> parts;
  std::vector<size_t> added;  // positions in the result
  size_t kept = 0;            // dimensions of the result so far
};

void select(PlanBuilder& builder, const Shape& shape, const Value& item, size_t items_after, Selection& out) {
  const auto extent = [&] { return shape.extent(static_cast<int>(out.parts.size())); };
  const auto left = static_cast<size_t>(shape.rank) - out.parts.size();
  if (item.is(Value::Kind::kNone)) {
    out.added.push_back(out.kept++);
    return;
  }
  if (item.is(Value::Kind::kEllipsis)) {
    for (size_t i = items_after; i < left; ++i, ++out.kept) out.parts.push_back(whole_of(extent()));
    return;
  }
  if (left == 0) {
    builder.fail("the index has more items than the tensor has dimensions");
  } else if (item.is(Value::Kind::kInt)) {
    out.parts.push_back(one_of(builder, item.integer, extent()));
  } else if (item.is(Value::Kind::kSlice)) {
    out.parts.push_back(slice_of(builder, item, extent()));
    ++out.kept;
  } else {
    builder.fail(
        "an index must be an integer, a slice, None, ... or one integer tensor alone; a mask of bools would "
        "make a size that depends on values: use torch.where, or multiply by the mask");
  }
}

int get_part(PlanBuilder& builder, int a, const std::vector<Value>& items) {
  const Shape shape = builder.shape(a);
  Selection selection;
  const auto takes_dim = [](const Value& item) {
    return !item.is(Value::Kind::kNone) && !item.is(Value::Kind::kEllipsis);
  };
  for (size_t i = 0; i < items.size() && builder.ok(); ++i) {
    const auto after = std::count_if(items.begin() + static_cast<std::ptrdiff_t>(i) + 1, items.end(), takes_dim);
    select(builder, shape, items[i], static_cast<size_t>(after), selection);
  }
  if (!builder.ok()) return a;
  while (selection.parts.size() < static_cast<size_t>(shape.rank)) {
    selection.parts.push_back(whole_of(shape.extent(static_cast<int>(selection.parts.size()))));
    ++selection.kept;
  }
  int out = a;
  if (shape.rank == 1) out = part_of(builder, a, {}, selection.parts[0]);
  if (shape.rank == 2) out = part_of(builder, a, selection.parts[0], selection.parts[1]);
  for (const size_t at : selection.added) out = unsqueezed(builder, out, static_cast<int64_t>(at));
  return out;
}

Value item_of_list(PlanBuilder& builder, const Value& list, const Value& index) {
  const auto size = static_cast<int64_t>(list.items.size());
  if (index.is(Value::Kind::kInt)) {
    const Part part = one_of(builder, index.integer, size);
    return builder.ok() ? list.items[static_cast<size_t>(part.begin)] : Value::none();
  }
  if (index.is(Value::Kind::kSlice)) {
    const Part part = slice_of(builder, index, size);
    std::vector<Value> items;
    for (int64_t i = 0; i < part.count; ++i)
      items.push_back(list.items[static_cast<size_t>(part.begin + i * part.step)]);
    return Value::list(std::move(items));
  }
  builder.fail("a tuple is indexed by an integer or a slice");
  return Value::none();
}

}  // namespace

int transposed(PlanBuilder& builder, int a) {
  const Shape shape = builder.shape(a);
  if (shape.rank < 2) return a;
  return builder.copy(a, Shape::of(shape.cols(), shape.rows()), 0, 1, shape.cols());
}

Value get_item(PlanBuilder& builder, const Value& object, const Value& index) {
  if (object.is(Value::Kind::kList)) return item_of_list(builder, object, index);
  if (!object.is(Value::Kind::kArray)) return Value::array(builder.fail("only a tensor or a tuple can be indexed"));
  const int a = static_cast<int>(object.integer);
  if (index.is(Value::Kind::kArray) && builder.dtype(static_cast<int>(index.integer)) == Dtype::kInt) {
    return Value::array(taken(builder, a, 0, static_cast<int>(index.integer)));
  }
  if (!index.is(Value::Kind::kList)) return Value::array(get_part(builder, a, {index}));
  if (!index.is_tuple()) {
    return Value::array(builder.fail("a list cannot be an index; use an integer tensor, or slices"));
  }
  return Value::array(get_part(builder, a, index.items));
}

std::span<const Operation> shape_operations() {
  return kShapeOperations;
}

}  // namespace tuft::loss_graph
