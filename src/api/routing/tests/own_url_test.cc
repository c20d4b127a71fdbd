#include "api/routing/own_url.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "api/tests/fake_control.h"

namespace tuft::api {
namespace {

std::string url_for(std::string_view host, std::string_view forwarded_host = {}) {
  FakeControl control;
  const config::Limits limits;
  Exchange exchange{control, limits};
  exchange.headers.host = host;
  exchange.headers.forwarded_host = forwarded_host;
  return own_url(exchange, "/x");
}

TEST(OwnUrl, NamesAndAddressesWithAPortAreTaken) {
  for (const char* host : {"tuft.example", "tuft-1.example:10610", "127.0.0.1:80", "[::1]", "[fe80::1]:65535"}) {
    EXPECT_EQ(url_for(host), "http://" + std::string(host) + "/x");
  }
  EXPECT_EQ(url_for("inner", "tuft.example"), "http://tuft.example/x");
}

TEST(OwnUrl, OtherTextIsNot) {
  for (const char* host :
       {"", "a:b", "a:1:2", "a:", "a:123456", "a/b", "a@b", "[::1", "[x]", "[]", "[::1]80", "a b", ":80"}) {
    EXPECT_EQ(url_for(host), "http://localhost/x") << host;
  }
  EXPECT_EQ(url_for("inner", "evil/path"), "http://inner/x");
}

TEST(OwnUrl, ThePublicUrlIsUsedWhateverTheRequestSays) {
  FakeControl control;
  const config::Limits limits;
  Exchange exchange{control, limits};
  exchange.headers.host = "evil.example";
  exchange.headers.forwarded_host = "evil.example";
  exchange.headers.forwarded_proto = "http";
  exchange.public_url = "https://tuft.example/api";
  EXPECT_EQ(own_url(exchange, "/x"), "https://tuft.example/api/x");
}

}  // namespace
}  // namespace tuft::api
