// The files of the web console, which are part of the program. The build makes the list (cmake/Console.cmake); without
// the console it is empty.
#pragma once

#include <span>
#include <string_view>

namespace tuft::api {

struct ConsoleAsset {
  std::string_view path;  // below /console/: "index.html", "assets/index-1a2b3c.js"
  std::string_view content_type;
  std::string_view etag;  // quoted
  std::string_view bytes;
  std::string_view gzip;       // the same compressed; empty: it is not
  bool name_has_hash = false;  // another content has another name
};

// Static storage.
std::span<const ConsoleAsset> console_assets();

}  // namespace tuft::api
