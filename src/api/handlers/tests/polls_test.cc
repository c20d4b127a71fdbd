// Tests of the poll for all samples of a client, over a real socket.
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

class Polls : public ServerTest {
 protected:
  void SetUp() override { start(); }
};

TEST_F(Polls, APollForAllSamplesOfAClientNeverEndsWith408) {
  const auto poll = [&](const std::string& rest, const std::string& sampler = "s:sample:0") {
    return post("retrieve_futures", R"({"target":{"type":"sampling_session","sampling_session_id":")" + sampler +
                                        R"(","cloned_sampler_id":3},)" + rest + "}");
  };
  const Reply news = poll(R"("prev_cursor":0,"retrieved_request_ids":[])");
  EXPECT_EQ(news.status, 200);
  EXPECT_EQ(news.body,
            R"({"completions":[{"state":"finished","request_id":"r1","response_payload_uncompressed_size":124},)"
            R"({"state":"failed","request_id":"r2"}],"cursor":7})");
  for (const char* timeout : {"0.0", "0.03"}) {
    const Reply none = poll(std::string(R"("prev_cursor":7,"retrieved_request_ids":["r1"],"timeout":)") + timeout);
    EXPECT_EQ(none.status, 200);
    EXPECT_EQ(none.body, R"({"completions":[],"cursor":7})");
  }
  EXPECT_EQ(control.watches(), 0U) << "the wait ends with its request";
  EXPECT_EQ(control.calls.back(), "alice watch_samples 3 after 7");
  expect_refusal(poll(R"("prev_cursor":0)", "other"), 404, "sampler");
  expect_refusal(poll(R"("prev_cursor":-1)"), 422, "prev_cursor");
  expect_refusal(poll(R"("prev_cursor":0,"timeout":-1)"), 422, "timeout");
  expect_refusal(post("retrieve_futures", R"({"target":{"type":"run"},"prev_cursor":0})"), 422, "target.type");
}

}  // namespace
}  // namespace tuft::api
