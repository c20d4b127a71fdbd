// Measures a JSON text without parsing it, so that a parser's memory can be judged before it is used.
#pragma once

#include <cstdint>
#include <string_view>

namespace tuft {

struct JsonShape {
  int64_t containers = 0;  // objects and lists
  int64_t members = 0;     // of objects
  int64_t values = 0;      // an upper bound of all values
  int depth = 0;           // of nested containers
};

// One pass without memory of its own. The result is meaningful only for text that a parser accepts.
JsonShape json_shape(std::string_view text);

}  // namespace tuft
