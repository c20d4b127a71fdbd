// Converts the message that Beast parsed to a RequestHead.
#pragma once

#include <cstddef>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "api/routing/dispatcher.h"

namespace tuft::api {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// The most header fields of a request, together with those of its trailer.
inline constexpr size_t kHeaderFieldsMax = 128;
// The most bytes of the head of a chunk, and of a trailer, that may wait for their end. The parser limits neither, and
// nobody is charged for them.
inline constexpr size_t kChunkHeadBytesMax = 4 << 10;

// Returns the number of header fields that were parsed so far, also of a head that is not complete.
size_t field_count(const RequestParser& parser);

// Beast ignores a transfer coding that it does not know: it would parse the body as the next request, or pass a coded
// body on as it is. A proxy in front of the server may disagree (request smuggling).
bool has_unknown_framing(const RequestParser& parser);

// The views in the result are valid as long as `parser`.
RequestHead parse_head(const RequestParser& parser);

}  // namespace tuft::api
