#include "tuft/telemetry/attribute.h"
#include "tuft/telemetry/context.h"
#include "tuft/telemetry/exposition.h"
#include "tuft/telemetry/hardware_monitor.h"
#include "tuft/telemetry/instrument.h"
#include "tuft/telemetry/log.h"
#include "tuft/telemetry/request_trace.h"
#include "tuft/telemetry/telemetry.h"
#include "tuft/telemetry/trace.h"
#include "tuft/telemetry/traced.h"

int main() {
  using namespace tuft::telemetry;
  // Nothing is configured: the calls do nothing and say so.
  return trace_req_start("r1") || trace_req_finish("r1") ? 1 : 0;
}
