#include "intake/grpc_intake.h"

#include <chrono>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.grpc.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.grpc.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h>

#include "control/tests/recording_store.h"

namespace tuft::intake {
namespace {

namespace collector = opentelemetry::proto::collector;
using collector::trace::v1::ExportTraceServiceRequest;

ExportTraceServiceRequest spans(int count, size_t name_bytes = 5) {
  ExportTraceServiceRequest request;
  auto& scope = *request.add_resource_spans()->add_scope_spans();
  for (int i = 0; i < count; ++i) scope.add_spans()->set_name(std::string(name_bytes, 'x'));
  return request;
}

class GrpcIntakeTest : public ::testing::Test {
 protected:
  GrpcIntakeTest() {
    const auto authenticate = [](std::string_view key) -> Result<control::UserId> {
      if (key.empty()) return Error{ErrorCode::kUnauthenticated, "there is no API key", ""};
      if (key != "tml-alice") return Error{ErrorCode::kPermissionDenied, "this API key is not known", ""};
      return control::UserId("alice");
    };
    auto made = serve_grpc({}, authenticate, intake_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    server_ = std::move(made).value();
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                         grpc::InsecureChannelCredentials(), arguments);
  }

  template <typename Service, typename Request, typename Response>
  grpc::Status call(const Request& request, Response& response, const std::string& name, const std::string& value,
                    grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.set_compression_algorithm(compression);
    if (!name.empty()) context.AddMetadata(name, value);
    return Service::NewStub(channel_)->Export(&context, request, &response);
  }
  grpc::Status send(const ExportTraceServiceRequest& request, const std::string& name = "x-api-key",
                    const std::string& value = "tml-alice",
                    grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    collector::trace::v1::ExportTraceServiceResponse response;
    return call<collector::trace::v1::TraceService>(request, response, name, value, compression);
  }

  control::RecordingStore store_;
  control::Intake intake_{&store_, int64_t{1} << 30, 3600 * kSecond, system_clock()};
  std::unique_ptr<GrpcIntake> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcIntakeTest, ThreeSignalsWithAKeyThenTheyAreTheUsers) {
  EXPECT_TRUE(send(spans(2)).ok());
  EXPECT_TRUE(send(spans(3), "authorization", "Bearer tml-alice", GRPC_COMPRESS_GZIP).ok());
  collector::logs::v1::ExportLogsServiceRequest logs;
  collector::logs::v1::ExportLogsServiceResponse logs_answer;
  logs.add_resource_logs()->add_scope_logs()->add_log_records()->set_event_name("mine");
  EXPECT_TRUE(call<collector::logs::v1::LogsService>(logs, logs_answer, "x-api-key", "tml-alice").ok());
  collector::metrics::v1::ExportMetricsServiceRequest metrics;
  collector::metrics::v1::ExportMetricsServiceResponse metrics_answer;
  EXPECT_TRUE(call<collector::metrics::v1::MetricsService>(metrics, metrics_answer, "x-api-key", "tml-alice").ok());
  const auto added = store_.added();
  ASSERT_EQ(added.size(), 3u);
  for (const auto& one : added) EXPECT_EQ(one.owner, "alice");
  EXPECT_EQ(added[0].request, spans(2).SerializeAsString());
  EXPECT_EQ(added[1].request, spans(3).SerializeAsString());
  EXPECT_EQ(store_.metrics().size(), 1u);
}

TEST_F(GrpcIntakeTest, StrangersThenRefusedBeforeTheirMessageIsRead) {
  EXPECT_EQ(send(spans(1), "").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(send(spans(1), "x-api-key", "tml-mallory").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(send(spans(1), "authorization", "Basic tml-alice").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(store_.added().empty());
}

// Senders repeat what failed with UNAVAILABLE, and drop the rest.
TEST_F(GrpcIntakeTest, TooMuchAtOnceThenResourceExhaustedAndTooMuchASecondThenUnavailable) {
  EXPECT_EQ(send(spans(1, 5 << 20)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << "a message";
  // A small message that is large without its compression.
  EXPECT_FALSE(send(spans(1, 5 << 20), "x-api-key", "tml-alice", GRPC_COMPRESS_GZIP).ok());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(send(spans(5'000)).ok());
  EXPECT_EQ(send(spans(20'001)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const grpc::Status refused = send(spans(20'000));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(refused.error_message().find("5000 records a second"), std::string::npos);
}

// 5 MiB are 5 KiB with gzip, and 4 GiB are 4 MiB: no more may be produced than a message may have.
TEST_F(GrpcIntakeTest, MessageThatGrowsTooLargeThenRefusedAndCharged) {
  const auto bomb = [this] { return send(spans(1, 5 << 20), "x-api-key", "tml-alice", GRPC_COMPRESS_GZIP); };
  const grpc::Status first = bomb();
  EXPECT_EQ(first.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(first.error_message().find("decompressed"), std::string::npos) << first.error_message();
  std::string last;
  for (int i = 0; i < 8 && last.find("1 MiB") == std::string::npos; ++i) last = bomb().error_message();
  EXPECT_NE(last.find("1 MiB"), std::string::npos) << "who repeats it may send nothing for a while: " << last;
  EXPECT_FALSE(send(spans(1)).ok());
  EXPECT_TRUE(store_.added().empty());
}

TEST_F(GrpcIntakeTest, SomeIsNotKeptThenTheAnswerSaysSo) {
  ExportTraceServiceRequest request = spans(2);  // without ids
  auto& good = *request.mutable_resource_spans(0)->mutable_scope_spans(0)->add_spans();
  good.set_trace_id("a trace's number");
  good.set_span_id("a span's");
  collector::trace::v1::ExportTraceServiceResponse response;
  ASSERT_TRUE(call<collector::trace::v1::TraceService>(request, response, "x-api-key", "tml-alice").ok());
  EXPECT_EQ(response.partial_success().rejected_spans(), 2);
  EXPECT_NE(response.partial_success().error_message().find("without a trace_id"), std::string::npos);

  collector::logs::v1::ExportLogsServiceRequest logs;
  auto& scope = *logs.add_resource_logs()->add_scope_logs();
  scope.add_log_records()->mutable_body()->set_string_value(std::string(1 << 20, 'x'));
  scope.add_log_records();
  collector::logs::v1::ExportLogsServiceResponse of_logs;
  ASSERT_TRUE(call<collector::logs::v1::LogsService>(logs, of_logs, "x-api-key", "tml-alice").ok());
  EXPECT_EQ(of_logs.partial_success().rejected_log_records(), 1);

  collector::metrics::v1::ExportMetricsServiceRequest metrics;
  auto& metric = *metrics.add_resource_metrics()->add_scope_metrics()->add_metrics();
  metric.set_name("m");
  metric.mutable_summary()->add_data_points()->set_count(1);
  collector::metrics::v1::ExportMetricsServiceResponse of_metrics;
  ASSERT_TRUE(call<collector::metrics::v1::MetricsService>(metrics, of_metrics, "x-api-key", "tml-alice").ok());
  EXPECT_EQ(of_metrics.partial_success().rejected_data_points(), 1);
}

TEST_F(GrpcIntakeTest, QueueIsFullThenUnavailable) {
  store_.has_room = false;
  const grpc::Status refused = send(spans(1));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(refused.error_message().find("queue"), std::string::npos) << refused.error_message();
  EXPECT_TRUE(store_.added().empty());
}

TEST_F(GrpcIntakeTest, NothingMayBeSentThenRefusedWithoutAMessage) {
  intake_.charge_refused(control::UserId("alice"), int64_t{100} << 20);
  const grpc::Status refused = send(ExportTraceServiceRequest());
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(refused.error_message().find("1 MiB"), std::string::npos) << refused.error_message();
}

TEST_F(GrpcIntakeTest, DeflateThenTaken) {
  EXPECT_TRUE(send(spans(3), "x-api-key", "tml-alice", GRPC_COMPRESS_DEFLATE).ok());
  ASSERT_EQ(store_.added().size(), 1u);
  EXPECT_EQ(store_.added()[0].request, spans(3).SerializeAsString());
}

// Returns a socket that is connected to the port.
int connected_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

TEST_F(GrpcIntakeTest, ManySilentConnectionsThenClosedAboveTheLimit) {
  std::vector<int> sockets;
  for (int i = 0; i < 300; ++i) sockets.push_back(connected_to(server_->port()));
  // Those that were taken get the settings of HTTP/2, the others an end.
  int taken = 0;
  for (const int socket : sockets) {
    char byte = 0;
    taken += ::recv(socket, &byte, 1, 0) == 1 ? 1 : 0;
  }
  EXPECT_EQ(taken, 256);
  EXPECT_FALSE(send(spans(1)).ok());
  for (const int socket : sockets) ::close(socket);
  // gRPC closes its side a moment later.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (store_.added().empty() && std::chrono::steady_clock::now() < end) {
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials());
    (void)send(spans(1)).ok();
  }
  EXPECT_EQ(store_.added().size(), 1u);
}

TEST_F(GrpcIntakeTest, StoppedThenThePortIsClosed) {
  server_->stop();
  EXPECT_FALSE(send(spans(1)).ok());
  EXPECT_TRUE(store_.added().empty());
}

}  // namespace
}  // namespace tuft::intake
