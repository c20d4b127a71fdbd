// Compares the list of operations in docs/custom-losses.md with the code.
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

// The rows of the table, as "place name".
std::set<std::string> documented() {
  std::ifstream in("docs/custom-losses.md");
  std::set<std::string> out;
  std::string line;
  std::string place;
  while (std::getline(in, line)) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3);
    place = line.substr(3, end - 3);
    if (place != "torch" && place != "tensor" && place != "operator" && place != "math" && place != "builtins")
      continue;
    for (size_t at = line.find('`', end + 1); at != std::string::npos;
         at = line.find('`', line.find('`', at + 1) + 1)) {
      out.insert(place + " " + line.substr(at + 1, line.find('`', at + 1) - at - 1));
    }
  }
  return out;
}

std::set<std::string> implemented() {
  constexpr std::pair<Place, const char*> kPlaces[] = {
      {kTorch, "torch"}, {kMethod, "tensor"}, {kOperator, "operator"}, {kMath, "math"}, {kBuiltin, "builtins"}};
  std::set<std::string> out;
  for (const auto subject : operations()) {
    for (const Operation& operation : subject) {
      for (const auto& [place, name] : kPlaces) {
        if ((operation.places & place) != 0) out.insert(std::string(name) + " " + std::string(operation.name));
      }
    }
  }
  return out;
}

TEST(LossGraphDocumentation, ListsEveryOperation) {
  const std::set<std::string> code = implemented();
  const std::set<std::string> page = documented();
  for (const std::string& operation : code) EXPECT_TRUE(page.contains(operation)) << "not documented: " << operation;
  for (const std::string& operation : page) EXPECT_TRUE(code.contains(operation)) << "not implemented: " << operation;
  EXPECT_GT(code.size(), 150U);
}

TEST(LossGraphDocumentation, NoSubstituteIsAllowedItself) {
  for (const auto subject : operations()) {
    for (const Operation& operation : subject) {
      if (operation.places == kOperator) continue;  // and_, or_
      EXPECT_TRUE(substitute_for(operation.name).empty()) << operation.name;
    }
  }
}

}  // namespace
}  // namespace tuft::loss_graph
