// From a parsed HTTP message to the RequestHead that the rest of the edge knows.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "api/dispatcher.h"

namespace tuft::api {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Its views live as long as the parser.
RequestHead parse_head(const RequestParser& parser);

}  // namespace tuft::api
