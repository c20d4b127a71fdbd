#include "rpc/protobuf_log.h"

#include <string>

#include <gtest/gtest.h>

#include "tinker/public.pb.h"

namespace tuft::rpc {
namespace {

std::string taken;

TEST(ProtobufLog, MessagesOfTheLibraryAreTakenAndNotPrinted) {
  take_protobuf_log([](std::string_view message) { taken += std::string(message) + "\n"; });
  ::testing::internal::CaptureStderr();
  tinker_public::ForwardBackwardRequest request;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(request.ParseFromString(std::string("\x0a\x02m\xff", 4)));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(taken.find("model_id"), std::string::npos) << taken;
  EXPECT_EQ(taken.find('\xff'), std::string::npos);
  EXPECT_EQ(taken.find('\n'), taken.size() - 1) << "one a second: " << taken;
}

}  // namespace
}  // namespace tuft::rpc
