// StopText: finds stop strings in the bytes of a growing text, also across token boundaries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tuft::engine {

class StopText {
 public:
  // `strings` must hold no empty string and must outlive this.
  explicit StopText(const std::vector<std::string>& strings);

  // Appends bytes. Returns true if the text now contains one of the strings.
  bool append(std::string_view bytes);

 private:
  const std::vector<std::string>* strings_;
  size_t longest_ = 0;
  std::string tail_;  // the end of the text, in which a match can begin
};

}  // namespace tuft::engine
