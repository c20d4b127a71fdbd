// Maps errors to the form of the OpenAI API: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tuft::openai {

// Clients retry 408, 409, 429 and every status from 500 on.
int http_status(const Error& error);

// `param` names the wrong field of the request and may be empty. The message of an internal error is not shown.
std::string error_body(const Error& error, std::string_view param = {});

}  // namespace tuft::openai
