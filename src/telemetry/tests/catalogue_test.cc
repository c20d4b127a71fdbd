// docs/telemetry.md lists what the code measures. TUFT_UPDATE_GOLDEN=1 writes the list anew.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/metrics.h"

namespace tuft::telemetry {
namespace {

constexpr const char* kPage = "docs/telemetry.md";
const std::string kBegin = "<!-- instruments: begin -->\n";
const std::string kEnd = "<!-- instruments: end -->";

std::string bounds_text(const std::vector<double>& bounds) {
  if (bounds.empty()) return "";
  std::ostringstream out;
  out << bounds.front() << " .. " << bounds.back() << " (" << bounds.size() << ")";
  return out.str();
}

std::string catalogue_table() {
  std::string out = "| name | instrument | unit | buckets | what |\n|---|---|---|---|---|\n";
  for (const InstrumentInfo& info : instrument_catalogue()) {
    // Other tests of this binary register instruments of their own.
    if (info.name.starts_with("test.")) continue;
    out += "| `" + info.name + "` | " + std::string(instrument_kind_name(info.kind)) + " | " + info.unit + " | " +
           bounds_text(info.bounds) + " | " + info.description + " |\n";
  }
  return out;
}

TEST(Catalogue, PageThenItListsEveryInstrument) {
  std::ifstream in(kPage);
  std::string page{std::istreambuf_iterator<char>(in), {}};
  const size_t begin = page.find(kBegin);
  const size_t end = page.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << kPage << " is missing, or has lost its marks (run in the root of the tree)";
  ASSERT_NE(end, std::string::npos);
  const size_t start = begin + kBegin.size();
  if (std::getenv("TUFT_UPDATE_GOLDEN") != nullptr) {
    page.replace(start, end - start, catalogue_table());
    std::ofstream(kPage) << page;
    return;
  }
  EXPECT_EQ(page.substr(start, end - start), catalogue_table())
      << "run TUFT_UPDATE_GOLDEN=1 build/release/tests/tuft_telemetry_test --gtest_filter='Catalogue.Page*'";
}

}  // namespace
}  // namespace tuft::telemetry
