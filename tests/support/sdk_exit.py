"""Ends a program that used the SDK without ending its interpreter.

The SDK's HTTP client (pyqwest 0.12, Rust) answers a request on a thread of its own, which calls the event loop's
call_soon_threadsafe(). That writes to a socket, for which Python gives the interpreter lock away. Where the main thread has
begun to end the interpreter meanwhile, Python up to 3.13 ends every thread that asks for the lock again, by pthread_exit()
(it waits from 3.14 on), and glibc aborts the process because Rust code does not let itself be unwound:

    abort, __pthread_unwind, pthread_exit, PyThread_exit_thread, take_gil, PyEval_RestoreThread, sock_send, ...,
    pyqwest::asyncio::runtime::report, tokio::runtime::blocking::pool::Inner::run

Everything is done and printed by then; only the exit status is wrong. `tinker run list` aborts about once in a hundred
runs, a program that ends while requests are open once in four. https://github.com/curioswitch/pyqwest/issues/164 and
https://github.com/PyO3/pyo3/pull/4874 are about the same; neither covers a lock that Python's own code takes again.

  sdk_exit.py SCRIPT [ARGUMENTS]    runs a Python script, for instance the `tinker` CLI
"""
import os
import pathlib
import runpy
import sys


# How a test starts the SDK's CLI.
CLI = (sys.executable, __file__, str(pathlib.Path(sys.executable).with_name("tinker")))


def leave(status):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    del sys.argv[0]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):  # as `sys.exit("message")` does
            print(end.code, file=sys.stderr)
        leave(1 if isinstance(end.code, str) else end.code or 0)
    leave(0)
