"""Tests that each rule of check_layers.py detects its error, and that a clean tree passes."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).with_name("check_layers.py")
LAYERS = """
base:
telemetry: base
engine: base
engine/native: base engine
third opentelemetry: telemetry
third hwy: engine/native
"""


class CheckLayers(unittest.TestCase):
    def check(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "tests").mkdir()
            for name, text in {"cmake/layers.txt": layers, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            run = subprocess.run([sys.executable, CHECKER, "--root", directory], capture_output=True, text=True)
            return run.returncode, run.stdout

    def assert_refused(self, text, files, layers=LAYERS):
        status, output = self.check(files, layers)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)

    def test_a_clean_tree_passes(self):
        status, output = self.check({
            "src/base/a.h": "#include <string>\n",
            "src/telemetry/t.cc": '#include "base/a.h"\n#include "telemetry/t.h"\n#include <opentelemetry/sdk.h>\n',
            "src/telemetry/t.h": '#include "base/a.h"\n',
            "src/engine/native/k.cc": '#include "engine/e.h"\n#include <hwy/highway.h>\n',
            "src/engine/e.h": "",
            "src/base/tests/a_test.cc": '#include "base/a.h"\n',
            "src/base/CMakeLists.txt": "tuft_module(NAME base TESTS tests/a_test.cc)\n",
        })
        self.assertEqual((status, output), (0, ""))

    def test_an_include_outside_the_graph(self):
        self.assert_refused("src/base/a.cc:2: base may not include telemetry",
                            {"src/base/a.cc": '\n#include "telemetry/t.h"\n', "src/telemetry/t.h": ""})

    def test_the_parent_of_a_module_may_not_include_it(self):
        self.assert_refused("engine may not include engine/native",
                            {"src/engine/e.cc": '#include "engine/native/k.h"\n', "src/engine/native/k.h": ""})

    def test_a_third_party_header_in_the_wrong_module(self):
        self.assert_refused("engine may not include <hwy/highway.h>; only engine/native may",
                            {"src/engine/e.cc": "#include <hwy/highway.h>\n"})

    def test_the_sdk_in_a_public_header_of_telemetry(self):
        self.assert_refused("a public header of telemetry may not include",
                            {"src/telemetry/t.h": "#include <opentelemetry/trace.h>\n"})

    def test_a_relative_include(self):
        self.assert_refused('write #include "module/file.h"', {"src/base/a.cc": '#include "../base/b.h"\n'})

    def test_a_test_that_nobody_builds(self):
        self.assert_refused("src/base/tests/b_test.cc: is in no CMake target",
                            {"src/base/tests/b_test.cc": "", "src/base/CMakeLists.txt": "TESTS tests/ab_test.cc"})

    def test_a_file_of_no_module(self):
        self.assert_refused("belongs to no module", {"src/other/a.cc": ""})

    def test_a_cycle_and_an_unknown_module_in_the_graph(self):
        self.assert_refused("a cycle: a -> b -> a", {}, "a: b\nb: a\n")
        self.assert_refused("a depends on c, which has no line", {}, "a: c\n")

    ROOMS = "api:\nroom api/json: .\nroom api/http: json\n"

    def test_rooms_that_include_what_they_may(self):
        status, output = self.check({
            "src/api/server.cc": '#include "api/http/socket.h"\n',
            "src/api/http/socket.h": '#include "api/json/writer.h"\n',
            "src/api/json/writer.h": '#include "api/exchange.h"\n',
            "src/api/exchange.h": "",
        }, self.ROOMS)
        self.assertEqual((status, output), (0, ""))

    def test_an_include_against_the_grain_of_the_rooms(self):
        self.assert_refused('src/api/json/writer.h:1: api/json may not include api/http ("api/http/socket.h")',
                            {"src/api/json/writer.h": '#include "api/http/socket.h"\n', "src/api/http/socket.h": ""},
                            self.ROOMS)
        self.assert_refused('api/http may not include api/*.h ("api/server.h")',
                            {"src/api/http/socket.h": '#include "api/server.h"\n', "src/api/server.h": ""}, self.ROOMS)

    def test_a_folder_that_is_no_room(self):
        self.assert_refused("api/attic is no room of cmake/layers.txt",
                            {"src/api/attic/a.h": '#include "api/json/writer.h"\n', "src/api/json/writer.h": ""},
                            self.ROOMS)

    def test_a_cycle_of_rooms(self):
        self.assert_refused("a cycle: api/a -> api/b -> api/a", {}, "api:\nroom api/a: b\nroom api/b: a\n")

    def test_a_file_that_is_too_long(self):
        self.assert_refused("901 lines; split it", {"src/base/a.cc": "\n" * 901})
        status, output = self.check({"src/base/a.cc": "\n" * 501})
        self.assertEqual(status, 0)
        self.assertIn("warning: src/base/a.cc: 501 lines", output)


if __name__ == "__main__":
    unittest.main()
