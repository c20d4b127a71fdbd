// NewestMean: the mean of about the newest 16 values. The weight of a value falls with each one after it.
#pragma once

#include <algorithm>

namespace tuft::engine {

class NewestMean {
 public:
  void add(double value) {
    count_ = std::min(count_ + 1, kCountMax);
    mean_ += (value - mean_) / count_;
  }
  // Returns whether at least 16 values were added.
  bool is_full() const { return count_ == kCountMax; }
  bool is_empty() const { return count_ == 0; }
  double mean() const { return mean_; }  // 0 while there is no value

 private:
  static constexpr int kCountMax = 16;

  int count_ = 0;
  double mean_ = 0;
};

}  // namespace tuft::engine
