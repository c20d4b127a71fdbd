"""Tests that each rule of check_conventions.py detects its error, and that a missing history is reported."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).with_name("check_conventions.py")
BODY = "\n\nWhat it changes, and why."
WHO = {f"GIT_{role}_{what}": "nobody@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class CheckConventions(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.directory.name)
        self.git("init", "-q")
        self.base = self.commit("Whatever was before the rules")

    def tearDown(self):
        self.directory.cleanup()

    def git(self, *arguments):
        environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(["git", *arguments], cwd=self.root, env=environment, check=True, capture_output=True,
                              text=True).stdout.strip()

    def commit(self, message):
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def check(self, base=None):
        run = subprocess.run([sys.executable, CHECKER, "--root", self.root, "--base", base or self.base],
                             capture_output=True, text=True)
        return run.returncode, run.stdout

    def assert_refused(self, text):
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn(text, output)

    def test_a_good_history_passes(self):
        self.commit("control/training: order operations by seq_id" + BODY)
        self.assertEqual(self.check(), (0, "conventions: 1 commit messages, no sleep in a test, no symbolic link\n"))

    def test_a_subject_without_an_area(self):
        self.commit("Order operations" + BODY)
        self.assert_refused("not `area: text`")

    def test_a_long_subject(self):
        self.commit("control: " + "x" * 64 + BODY)
        self.assert_refused("has 73 characters")

    def test_a_missing_body(self):
        self.commit("control: order operations")
        self.assert_refused("no body")

    def test_a_history_that_is_not_there_is_said(self):
        code, output = self.check(base="0" * 40)
        self.assertEqual(code, 0)
        self.assertIn("not checked", output)

    def test_a_sleeping_test(self):
        (self.root / "tests").mkdir()
        (self.root / "tests/test_x.py").write_text("import time\ntime.%s(1)\n" % "sleep")
        self.git("add", ".")
        self.assert_refused("tests/test_x.py:2")


if __name__ == "__main__":
    unittest.main()
