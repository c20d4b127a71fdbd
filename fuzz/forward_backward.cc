// Decodes forward_backward requests in protobuf to the input of the engine.
#include "target.h"
#include "worker/conversion.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tinker_public::ForwardBackwardRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  (void)tuft::worker::to_train_request(request, {}, "base/model");
  return 0;
}
