"""Ends a test run that used the SDK without ending its interpreter, see support/sdk_exit.py."""
import atexit
import sys

import sdk_exit

status = None


def pytest_sessionfinish(exitstatus):
    global status
    status = int(exitstatus)


@atexit.register  # early, so that it runs after all other handlers
def leave():
    if status is not None and "tinker" in sys.modules:
        sdk_exit.leave(status)
