#include "tuft/telemetry/request_trace.h"

int main() {
  using namespace tuft::telemetry;
  // Nothing is configured: the calls do nothing and say so.
  return trace_req_start("r1") || trace_req_finish("r1") ? 1 : 0;
}
