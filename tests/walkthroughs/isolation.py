"""Runs the walkthroughs in namespaces of their own, so that the documents' ports, /tmp/otel_trace.json and the names of
the containers in deploy/ can be used as they are written, whatever else runs on this machine."""

import os
import pathlib
import subprocess
import sys

MARK = "TUFT_WALKTHROUGHS_INSIDE"
# The files of deploy/ name containers. Here their programs run side by side.
HOSTS = "127.0.0.1 localhost alertmanager collector host.docker.internal jaeger loki prometheus tempo\n"
SET_UP = """
set -e
ip link set lo up
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets
printf '%s' "$HOSTS" >/tmp/.hosts
mount --bind /tmp/.hosts /etc/hosts
exec "$@"
"""


def enter():
    """Starts the program again with a network, a /tmp and a /run that are empty, unless that was done."""
    if os.environ.get(MARK):
        return
    if pathlib.Path(__file__).resolve().is_relative_to("/tmp"):
        sys.exit("walkthroughs: the checkout must not be in /tmp, which is replaced")
    unshare = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [*unshare, "bash", "-c", SET_UP, "bash", sys.executable, *sys.argv]
    sys.exit(subprocess.run(command, env={**os.environ, MARK: "1", "HOSTS": HOSTS}).returncode)
