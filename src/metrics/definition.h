// The kinds of instruments and the bucket bounds for the other headers of this module.
#pragma once

#include <string_view>
#include <vector>

#include "telemetry/instrument.h"

namespace tuft::metrics {

using telemetry::bounds_operation;
using telemetry::Counter;
using telemetry::Gauge;
using telemetry::Histogram;
using telemetry::ObservableCounter;
using telemetry::ObservableGauge;
using telemetry::RecordedBy;
using telemetry::UpDownCounter;

// Bucket bounds, named after what they measure; in seconds unless the name or a comment says otherwise.
std::vector<double> bounds_http();
std::vector<double> bounds_wait();
std::vector<double> bounds_request();
std::vector<double> bounds_step();
std::vector<double> bounds_first_token();
std::vector<double> bounds_inter_token();
std::vector<double> bounds_gen_ai_request();
std::vector<double> bounds_tokens();
std::vector<double> bounds_tokens_per_second();
std::vector<double> bounds_bytes();       // of files: 64 KiB .. 64 GiB
std::vector<double> bounds_body_bytes();  // of HTTP bodies: 64 B .. 64 MiB
std::vector<double> bounds_fraction();
std::vector<double> bounds_count();
std::vector<double> bounds_norm();
std::vector<double> bounds_loss();
// Bounds of Transformers' continuous batching, in milliseconds and percent.
std::vector<double> bounds_ttft_milliseconds();
std::vector<double> bounds_latency_milliseconds();
std::vector<double> bounds_percent();

}  // namespace tuft::metrics
