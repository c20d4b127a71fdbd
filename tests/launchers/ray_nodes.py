"""Real nodes of Ray on this machine. Runs in Ray's interpreter and obeys lines of its input: `add` adds a node with one
core, `kill NODE_ID` ends a node as a power cut does, and `stop NODE_ID` with SIGTERM, like `ray stop`. Prints a line for
each. All of it ends with the input."""
import os
import pathlib
import signal
import sys

from ray.cluster_utils import Cluster


def processes_below(pid):
    # Each thread has children of its own.
    files = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for file in files for child in file.read_text().split()]
    return found + [deeper for child in found for deeper in processes_below(child)]


def end_node(cluster, node_id, power_cut):
    node = next(one for one in cluster.worker_nodes if one.node_id == node_id)
    raylet = node.all_processes["raylet"][0].process
    if power_cut:
        doomed = processes_below(raylet.pid)
        raylet.kill()
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
    else:
        raylet.terminate()
    raylet.wait()  # Ray takes a zombie for alive


def main():
    # The head has no cores, so that no worker is placed on it.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    print(cluster.address, flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        if word == "add":
            print("added", cluster.add_node(num_cpus=1).node_id, flush=True)
        else:
            end_node(cluster, *arguments, power_cut=word == "kill")
            print("ended", *arguments, flush=True)
    cluster.shutdown()


main()
