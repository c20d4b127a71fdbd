#include "engine/sample/stop_text.h"

#include <algorithm>

namespace tuft::engine {

StopText::StopText(const std::vector<std::string>& strings) : strings_(&strings) {
  for (const std::string& string : strings) longest_ = std::max(longest_, string.size());
}

bool StopText::append(std::string_view bytes) {
  if (longest_ == 0) return false;
  const size_t known = tail_.size();
  tail_.append(bytes);
  for (const std::string& string : *strings_) {
    // A match that does not end in the new bytes would have been found before.
    if (tail_.find(string, known - std::min(known, string.size() - 1)) != std::string::npos) return true;
  }
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return false;
}

}  // namespace tuft::engine
