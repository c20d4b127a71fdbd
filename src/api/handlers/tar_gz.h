// A tar archive in memory, compressed with gzip.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::api {

// Appends a file to a tar archive (POSIX ustar). `name` has at most 99 bytes; `wall` is its time.
void append_tar_file(std::string& tar, std::string_view name, std::string_view content, Nanos wall);
// Ends the archive.
void end_tar(std::string& tar);
// kInternal if there is no memory for it.
Result<std::string> gzip(std::string_view bytes);

}  // namespace tuft::api
