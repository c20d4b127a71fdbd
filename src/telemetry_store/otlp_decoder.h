// Makes the public value types from encoded spans and log records. Internal to telemetry_store.
//
// Counts, nesting and the lengths of texts are limited: what exceeds a limit is cut, a text with a final "...". Invalid
// UTF-8 is replaced by U+FFFD.
#pragma once

#include <string>
#include <string_view>

#include "telemetry_store/otlp_reader.h"
#include "telemetry_store/query.h"

namespace tuft::telemetry_store::internal {

// Fill in everything except service, worker, scope and owner. Return false if the bytes are malformed.
bool decode_span(std::string_view bytes, Span& out);
bool decode_log(std::string_view bytes, LogRecord& out);

// Return the memory that a record takes, about.
size_t memory_of(const Span& span);
size_t memory_of(const LogRecord& log);

// Returns whether the name, the text value of an attribute or event, the status message or the body contains `text`,
// which must be in lower case; ASCII letters are compared without case.
bool span_contains(std::string_view bytes, std::string_view text);
bool log_contains(std::string_view bytes, std::string_view text);
// The same for one text, in time that is linear in its length.
bool contains_without_case(std::string_view content, std::string_view text);
// Changes ASCII letters only.
std::string lower_case(std::string_view text);

// Returns `text` as valid UTF-8 of at most `size_max` bytes.
std::string clean_text(std::string_view text, size_t size_max);

std::string hex_of(const TraceId& id);
std::string hex_of(uint64_t span_id);
// Returns an invalid id for everything but 32 or 16 hexadecimal digits.
TraceId parse_trace_id(std::string_view hex);
uint64_t parse_span_id(std::string_view hex);

}  // namespace tuft::telemetry_store::internal
