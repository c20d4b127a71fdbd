// Converts the message that Beast parsed to a RequestHead.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "api/routing/dispatcher.h"

namespace tuft::api {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// The views in the result are valid as long as `parser`.
RequestHead parse_head(const RequestParser& parser);

}  // namespace tuft::api
