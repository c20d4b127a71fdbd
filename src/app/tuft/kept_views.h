// The views of a server that stands by: the newest one, and former ones that requests still use.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/control_plane.h"

namespace tuft::app {

// A client that reads its answer slowly keeps the view that the answer is made from, and each view holds as many
// records as the store. So only kMost may be there. All of them accept the same API keys.
//
// Not thread-safe: one lock orders the changes of the keys and the new views.
class KeptViews {
 public:
  using View = std::shared_ptr<control::ControlPlane>;
  static constexpr size_t kMost = 8;

  bool has_room() const { return views_.size() < kMost; }
  // Gives the view the keys. Requires has_room().
  void add(View view) {
    view->replace_api_keys(keys_);
    views_.push_back(std::move(view));
  }
  // Replaces the keys, the user by each, in the views that are there and for those that come.
  void set_keys(std::map<std::string, std::string> keys) {
    keys_ = std::move(keys);
    for (const View& view : views_) view->replace_api_keys(keys_);
  }
  // Takes out the former views that nobody else has.
  std::vector<View> take_unused() {
    std::vector<View> used, unused;
    for (View& view : views_) {
      const bool is_unused = &view != &views_.back() && view.use_count() == 1;
      (is_unused ? unused : used).push_back(std::move(view));
    }
    views_ = std::move(used);
    return unused;
  }

 private:
  std::map<std::string, std::string> keys_;
  std::vector<View> views_;  // the newest is the last
};

}  // namespace tuft::app
