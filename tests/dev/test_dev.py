"""Runs ./dev with system programs replaced by fakes, and checks its errors and its progress lines."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("bash", "cat", "cmp", "dirname", "echo", "env", "grep", "head", "nproc", "rm", "tee", "tr")


class Machine:
    """A copy of ./dev, and a PATH with fakes and a few system programs."""

    def __init__(self, home):
        self.home, self.bin = home, home / "bin"
        self.bin.mkdir()
        shutil.copy(ROOT / "dev", home / "dev")
        for name in NEEDED:
            (self.bin / name).symlink_to(shutil.which(name))
        self.fake("id", '[ "$1" = -un ] && echo somebody || echo 1000')
        self.fake("dpkg-query", "echo install ok installed")
        self.fake("cmake")
        (home / "build/release").mkdir(parents=True)
        (home / "build/release/build.ninja").touch()

    def fake(self, name, script=""):
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        path.chmod(0o755)

    def dev(self, *arguments):
        run = subprocess.run([self.home / "dev", *arguments], capture_output=True, text=True,
                             env={**os.environ, "PATH": str(self.bin), "JOBS": "1"})
        return run.returncode, run.stdout + run.stderr


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_user_without_sudo_learns_what_root_has_to_do(machine):
    machine.fake("dpkg-query")
    machine.fake("apt-get", "echo must not run")
    status, said = machine.dev("build")
    assert status == 1 and "must not run" not in said
    assert "user somebody has no sudo" in said and "apt-get install -y --no-install-recommends g++ cmake" in said


def test_sudo_that_refuses_is_named_with_its_command(machine):
    machine.fake("dpkg-query")
    machine.fake("apt-get")
    machine.fake("sudo", "exit 7")
    status, said = machine.dev("build")
    assert status == 1 and "failed (status 7)" in said and "somebody" in said


def test_a_build_that_fails_says_so(machine):
    machine.fake("cmake", "echo 'error: no such type'; exit 2")
    status, said = machine.dev("build")
    assert status == 1 and "error: no such type" in said and "build/release failed" in said


def test_a_command_that_fails_names_itself(machine):
    machine.fake("cmake", "exit 3")
    machine.fake("clang-format-16")
    status, said = machine.dev("lint")
    assert status == 3
    assert "dev: line " in said and "tuft_proto" in said and "status 3" in said


def test_a_build_shows_each_tenth_and_everything_else(machine):
    machine.fake("cmake", 'for ((i = 1; i <= 40; i++)); do echo "[$i/40] Building"; done; echo "a warning"')
    status, said = machine.dev("build")
    assert status == 0
    assert said.count("building: ") == 10 and "building: 50 % of 40 steps" in said
    assert "Building" not in said and "a warning" in said


REPORT = """<testsuite>
<testcase name="Gpu.Times" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>
[ RUN      ] Gpu.Times
gpu_test.cc:24: Skipped
there is no GPU

[  SKIPPED ] Gpu.Times (0 ms)
</system-out></testcase>
<testcase name="parity.peft" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: No peft</system-out></testcase>
<testcase name="system.rest" status="run"><system-out>
SKIPPED [2] system/test_rest.py:12: no redis-server
3 passed, 2 skipped</system-out></testcase>
<testcase name="Id.Parses" status="run"><system-out/></testcase>
</testsuite>"""


def test_skipped_tests_are_listed_with_their_reasons(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    said = subprocess.run([sys.executable, ROOT / "tests/support/skipped_tests.py", tmp_path / "report.xml"],
                          capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[1:] == ["3 tests or groups of tests were skipped:",
                                     "  Gpu.Times: there is no GPU",
                                     "  parity.peft: No peft",
                                     "  system.rest, system/test_rest.py:12 (2 tests): no redis-server"]
