#include "base/json_shape.h"

#include <algorithm>
#include <cstddef>

namespace tuft {

JsonShape json_shape(std::string_view text) {
  JsonShape shape;
  int64_t commas = 0;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '"':
        for (++at; at < text.size() && text[at] != '"'; ++at) {
          if (text[at] == '\\') ++at;
        }
        break;
      case '[':
      case '{':
        ++shape.containers;
        shape.depth = std::max(shape.depth, ++depth);
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
        ++commas;
        break;
      case ':':
        ++shape.members;
        break;
      default:
        break;
    }
  }
  shape.values = commas + shape.containers + 1;
  return shape;
}

}  // namespace tuft
