// The metrics of the product; docs/telemetry.md lists them. Each header of this folder has those of one area, as a
// struct and a function that returns the only object of it:
//
//   static const telemetry::BoundCounter created = metrics::futures().created.with({{"operation_type", "sample"}});
//   created.add(1);                                                       // hot path: no lock, no allocation
//   metrics::futures().created.add(1, {{"operation_type", "sample"}});    // elsewhere: finds the series first
//
// The functions are thread-safe; the first call makes the instruments of the area. TuFT's metrics and Transformers'
// keep their names and units (such as "", "bytes", "tokens/s" and "tokens"), so that existing dashboards work; the
// units of the others are UCUM. A series exists from the moment it is bound. Bind at the start those that dashboards
// query, so that they show 0 and not a gap.
#pragma once

namespace tuft::metrics {

// Makes the instruments of all areas, so that telemetry::instrument_catalogue() lists them. Each process calls it at
// its start, before it has other threads.
void register_all();

}  // namespace tuft::metrics
