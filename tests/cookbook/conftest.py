import os

import running

os.environ["NO_PROXY"] = "127.0.0.1,localhost"


def pytest_terminal_summary(terminalreporter):
    for line in running.RESULTS:
        terminalreporter.write_line(line)
