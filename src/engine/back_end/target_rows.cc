#include "engine/back_end/target_rows.h"

#include <algorithm>

namespace tuft::engine {

TargetRows::TargetRows(const Pack& pack) : targets(pack.targets) {
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!rows.empty() && rows.back() == targets[i].row) continue;
    rows.push_back(targets[i].row);
    first.push_back(i);
  }
  first.push_back(targets.size());
  const auto is_one = [](const Segment& segment) { return segment.temperature == 1.0F; };
  if (std::all_of(pack.segments.begin(), pack.segments.end(), is_one)) return;
  auto segment = pack.segments.begin();
  for (const int row : rows) {
    while (row >= segment->end) ++segment;
    inverse_temperatures.push_back(1.0F / segment->temperature);
  }
}

std::vector<int> TargetRows::active(std::span<const float> gradient) const {
  std::vector<int> indices;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto some = gradient.subspan(first[i], first[i + 1] - first[i]);
    const bool any = std::any_of(some.begin(), some.end(), [](float value) { return value != 0.0F; });
    if (any) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

}  // namespace tuft::engine
