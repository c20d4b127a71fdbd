#!/usr/bin/env python3
"""Keeps tuft workers running on a Ray cluster: an actor for each, which Ray places, and starts again elsewhere when its
node is lost.

    python3 tuft_workers.py --workers 2 --num-cpus 8 -- tuft-worker --join tuft.example.com:10620 ...

After `--` comes the command of a worker, as docs/scaling.md has it; --threads and --device follow from what Ray gives the
actor. Actors without a place wait, and that is the demand that Ray's autoscaler counts: it adds nodes without being asked.

SIGTERM drains the workers and ends this script. Run it on the head node: Ray ends the actors of a script whose own node is
lost, instead of starting them again."""
import argparse
import asyncio
import os
import signal
import sys
import threading

import ray

ANSWER_SECONDS = 10


class Worker:
    """Runs `tuft-worker`. Its methods do not block, so that stop() runs while serve() waits."""

    def __init__(self):
        self.process = None
        self.served = None
        self.stopping = False

    async def serve(self, command, num_cpus, num_gpus):
        """Returns the worker's exit status. Ray calls it again in an actor that it has restarted, and also in this one when
        its answer was lost on the way: a worker that runs stays the only one."""
        self.served = self.served or asyncio.ensure_future(self.run(command, num_cpus, num_gpus))
        return await asyncio.shield(self.served)

    async def run(self, command, num_cpus, num_gpus):
        context = ray.get_runtime_context()
        # Before the flags of the command, which win. --parent-pid ends the worker with this actor, however that ends.
        flags = ["--parent-pid", str(os.getpid()), "--threads", str(max(1, int(num_cpus)))]
        if num_gpus > 0:
            flags += ["--device", "cuda:0"]  # Ray shows an actor its own GPUs only
        self.process = await asyncio.create_subprocess_exec(
            command[0], *flags, *command[1:],
            env={**os.environ, "RAY_NODE_ID": context.get_node_id(), "RAY_ACTOR_ID": context.get_actor_id()})
        if self.stopping:
            self.process.terminate()
        status = await self.process.wait()
        if status < 0 and not self.stopping:
            os._exit(1)  # the worker was killed or has crashed, and Ray starts an actor again whose process has ended
        return status

    async def stop(self):
        """Sends SIGTERM to the worker, which serves on until its server has saved what it holds; serve() then returns."""
        self.stopping = True
        if self.process and self.process.returncode is None:
            self.process.terminate()


def start(options):
    """Returns the future of a worker's exit status, and its actor."""
    actor = ray.remote(Worker).options(
        num_cpus=options.num_cpus, num_gpus=options.num_gpus, scheduling_strategy="SPREAD",
        max_restarts=-1, max_task_retries=-1,
        # Otherwise Ray kills the worker where it ends an actor, and the worker could not drain.
        runtime_env={"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}).remote()
    return actor.serve.remote(options.command, options.num_cpus, options.num_gpus), actor


def drain(actors, grace):
    """Ends the workers of the actors, which are given by the futures of their exit statuses."""
    told = {actor.stop.remote(): served for served, actor in actors.items()}
    # An actor that waits for a place answers nothing, and has no worker.
    answered, waiting = ray.wait(list(told), num_returns=len(told), timeout=ANSWER_SECONDS)
    ended, left = ray.wait([told[one] for one in answered], num_returns=len(answered), timeout=grace) if answered else ([], [])
    print(f"{len(ended)} workers ended, {len(left)} did not in time, {len(waiting)} had no place", file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="how many [1]")
    parser.add_argument("--num-cpus", type=float, default=1, help="of each worker [1]")
    parser.add_argument("--num-gpus", type=float, default=0, help="of each worker [0]")
    parser.add_argument("--address", default="auto", help="of the cluster's head [RAY_ADDRESS, or this machine's cluster]")
    parser.add_argument("--grace", type=float, default=60, help="seconds that workers may drain, over their --drain-seconds [60]")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="tuft-worker --join ..., after --")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    ray.init(address=options.address)
    told = threading.Event()
    # After ray.init(), which sets a handler that ends this script, and with it the actors.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    actors = dict(start(options) for _ in range(options.workers))
    while actors and not told.is_set():
        for served in ray.wait(list(actors), timeout=1)[0]:
            # Its server has refused it, or it cannot serve the model: its log says why, and another start would not help.
            print(f"a worker ended with status {ray.get(served)}", file=sys.stderr, flush=True)
            del actors[served]
    if not actors:
        return 1
    drain(actors, options.grace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
