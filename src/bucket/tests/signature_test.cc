// The examples of the S3 API reference, "Authenticating Requests: Using the Authorization Header".
#include "bucket/signature.h"

#include <gtest/gtest.h>

namespace tuft::bucket {
namespace {

const Credentials kExample = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr std::string_view kDate = "20130524T000000Z";
constexpr std::string_view kHost = "examplebucket.s3.amazonaws.com";

std::string signature_of(SignedParts request) {
  if (request.payload_sha256.empty()) request.payload_sha256 = sha256_hex("");
  request.headers["host"] = kHost;
  request.headers["x-amz-date"] = kDate;
  request.headers["x-amz-content-sha256"] = request.payload_sha256;
  const std::string header = authorization(kExample, "us-east-1", kDate, request);
  return header.substr(header.rfind('=') + 1);
}

TEST(Signature, GetObjectOfTheReference) {
  EXPECT_EQ(signature_of({"GET", "/test.txt", {}, {{"range", "bytes=0-9"}}, ""}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(Signature, PutObjectOfTheReference) {
  EXPECT_EQ(signature_of({"PUT",
                          "/test$file.text",
                          {},
                          {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                          sha256_hex("Welcome to Amazon S3.")}),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(Signature, GetLifecycleOfTheReference) {
  EXPECT_EQ(signature_of({"GET", "/", {{"lifecycle", ""}}, {}, ""}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(Signature, ListObjectsOfTheReference) {
  EXPECT_EQ(signature_of({"GET", "/", {{"max-keys", "2"}, {"prefix", "J"}}, {}, ""}),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(Signature, TheHeaderNamesTheKeyTheScopeAndTheSignedHeaders) {
  const std::string header =
      authorization(kExample, "us-east-1", kDate, {"GET", "/", {}, {{"host", "h"}, {"x-amz-date", "d"}}, "p"});
  EXPECT_TRUE(
      header.starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                         "SignedHeaders=host;x-amz-date,Signature="))
      << header;
  EXPECT_EQ(header.find(kExample.secret_access_key), header.npos);
}

TEST(Signature, TimeAndEncoding) {
  EXPECT_EQ(amz_date(1'369'353'600 * kSecond), kDate);
  EXPECT_EQ(uri_encoded("a b/c~d+\xc3\xa9", true), "a%20b/c~d%2B%C3%A9");
  EXPECT_EQ(uri_encoded("a/b", false), "a%2Fb");
  EXPECT_EQ(query_string({{"prefix", "a/"}, {"list-type", "2"}}), "list-type=2&prefix=a%2F");
}

}  // namespace
}  // namespace tuft::bucket
