// Looks for stop strings in the bytes of a growing text, wherever the borders of its tokens fall.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tuft::engine {

class StopText {
 public:
  // `strings` are not empty and outlive this.
  explicit StopText(const std::vector<std::string>& strings);

  // Appends; true when one of the strings now stands in the text.
  bool append(std::string_view bytes);

 private:
  const std::vector<std::string>* strings_;
  size_t longest_ = 0;
  std::string tail_;  // as much of the end as the beginning of a match can lie in
};

}  // namespace tuft::engine
