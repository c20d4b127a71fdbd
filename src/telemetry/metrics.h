// Every instrument of the product; docs/telemetry.md is made from it.
//
//   static const BoundCounter created = get_metrics().futures_created.with({{"operation_type", "sample"}});
//   created.add(1);                                                            // hot path: no lock, no allocation
//   get_metrics().futures_created.add(1, {{"operation_type", "sample"}});      // anywhere else: finds the series first
//
// Names and units of TuFT's metrics (units "", "bytes", "tokens/s" and "tokens" among them) and of Transformers' stay
// as their dashboards know them; ours use UCUM. A series exists from the moment it is bound: bind at start what a
// dashboard asks for, so that it shows 0 and not a gap.
#pragma once

#include "telemetry/instruments/continuous_batching.h"
#include "telemetry/instruments/engine.h"
#include "telemetry/instruments/futures.h"
#include "telemetry/instruments/health.h"
#include "telemetry/instruments/http.h"
#include "telemetry/instruments/resources.h"
#include "telemetry/instruments/sampling.h"
#include "telemetry/instruments/store.h"
#include "telemetry/instruments/tenants.h"
#include "telemetry/instruments/training.h"
#include "telemetry/instruments/workers.h"

namespace tuft::telemetry {

struct Metrics : HttpInstruments,
                 TenantInstruments,
                 FutureInstruments,
                 TrainingInstruments,
                 SamplingInstruments,
                 ContinuousBatchingInstruments,
                 EngineInstruments,
                 WorkerInstruments,
                 StoreInstruments,
                 ResourceInstruments,
                 HealthInstruments {};

// The one set of instruments of the process. Built at first use.
Metrics& get_metrics();

}  // namespace tuft::telemetry
