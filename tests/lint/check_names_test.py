"""Tests that check_names.py finds repeated names, and accepts what C++ accepts."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).with_name("check_names.py")


def source(declarations, space="tuft::m"):
    return f"namespace {space} {{\nnamespace {{\n\n{declarations}\n\n}}  // namespace\n}}  // namespace {space}\n"


class CheckNames(unittest.TestCase):
    def check(self, one, other, listing="tuft_module(NAME m\n  SOURCES\n    one.cc\n    other.cc\n  LIBS x)\n"):
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory) / "src/m"
            folder.mkdir(parents=True)
            (folder / "CMakeLists.txt").write_text(listing)
            (folder / "one.cc").write_text(one)
            (folder / "other.cc").write_text(other)
            run = subprocess.run([sys.executable, CHECKER, "--root", directory], capture_output=True, text=True)
        return run.returncode, run.stdout

    def assert_refused(self, one, other, name):
        code, output = self.check(source(one), source(other))
        self.assertEqual(code, 1, output)
        self.assertIn(f"m: one.cc and other.cc both declare {name};", output)

    def assert_accepted(self, one, other):
        code, output = self.check(source(one), source(other))
        self.assertEqual(code, 0, output)
        self.assertIn("1 modules", output)

    def test_repeated_names_are_found(self):
        self.assert_refused("constexpr int kMax = 1;", "constexpr size_t kMax = 2;  // of another kind", "kMax")
        self.assert_refused("struct Row {\n  int a;\n};", "class Row final : public Base {\n};", "Row")
        self.assert_refused("using Json = a::json;", "using Json = b::json;", "Json")
        self.assert_refused("constexpr Entry kEntries[] = {\n};", "const std::vector<int> kEntries = {1};", "kEntries")
        self.assert_refused("struct Text {};", "std::string Text = {};", "Text")

    def test_repeated_functions_are_found(self):
        self.assert_refused("int f(const std::string& text) {", "int f(const std::string& other_name) {", "f")
        self.assert_refused("Result<int> f(int one,\n              std::map<int, int> two = {}) {",
                            "Result<int> f(int first, std::map<int, int> second) {", "f")
        self.assert_refused("int f(int number, int other = 1) {", "int f(int number) {", "f")

    def test_what_may_be_repeated_is_accepted(self):
        self.assert_accepted("using Json = a::json;\nnamespace fs = std::filesystem;",
                             "using Json = a::json;\nnamespace fs = std::filesystem;")
        self.assert_accepted("int f(int number) {\n  int local = 1;", "int f(std::string_view text) {\n  int local = 2;")
        self.assert_accepted('constexpr char kLua[] = R"(\nlocal a = 1\n)";', 'constexpr char kOther[] = R"(\nlocal a = 2\n)";')

    def test_other_namespaces_and_sources_that_are_compiled_alone_do_not_count(self):
        code, _ = self.check(source("int a = 1;"), source("int a = 1;", "tuft::m::inner"))
        self.assertEqual(code, 0)
        code, _ = self.check(source("int a = 1;"), source("int a = 1;"),
                             "tuft_module(NAME m\n  SOURCES\n    one.cc\n  ALONE\n    other.cc\n  LIBS x)\n")
        self.assertEqual(code, 0)

    def test_a_namespace_in_a_namespace_is_the_same_however_it_is_written(self):
        nested = f"namespace tuft::m {{\n{source('int a = 1;', 'inner')}\n{source('int b = 1;', 'second')}}}  // namespace tuft::m\n"
        for name in ("a", "b"):
            space = "tuft::m::inner" if name == "a" else "tuft::m::second"
            code, output = self.check(nested, source(f"int {name} = 2;", space))
            self.assertEqual(code, 1, output)
            self.assertIn(f"both declare {name};", output)

    def test_tests_are_compared_with_each_other_and_not_with_sources(self):
        code, output = self.check(source("int a = 1;"), source("int a = 2;"), "tuft_module(NAME m LIBS x TESTS one.cc other.cc)\n")
        self.assertEqual(code, 1)
        self.assertIn("one.cc and other.cc both declare a", output)
        code, _ = self.check(source("int a = 1;"), source("int a = 2;"), "tuft_module(NAME m SOURCES one.cc TESTS other.cc)\n")
        self.assertEqual(code, 0)

    def test_a_test_that_means_googletest_without_saying_so_is_found(self):
        listing = "tuft_module(NAME m LIBS x TESTS one.cc other.cc)\n"
        code, output = self.check(source("class One : public testing::Test {"), source(""), listing)
        self.assertEqual(code, 1)
        self.assertIn("m: one.cc says testing::Test; write ::testing::Test", output)
        code, output = self.check(source("class One : public ::testing::Test {"), source("using testing::FakeEngine;"), listing)
        self.assertEqual(code, 0, output)


if __name__ == "__main__":
    unittest.main()
