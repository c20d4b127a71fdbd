"""A real Slurm on this machine: munged, slurmctld, and a slurmd for each of three nodes with one core."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from tuft_server import LoggedProcess, clean_environment, free_port, wait_until

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
NODES = ("node1", "node2", "node3")
# How soon a node counts as lost, and how soon its jobs start again. Without these lines: 300 and 120 seconds.
SETTINGS = """
ClusterName=tuft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmdTimeout=5
SchedulerParameters=sched_interval=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Returns why Slurm cannot run here, or None."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking:
        return f"{', '.join(lacking)}: Debian's packages slurmctld, slurmd, munge and slurm-client"
    return None if os.geteuid() == 0 else "slurmctld and slurmd want root"


class Slurm:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.daemons = {}
        self.env = {**clean_environment(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        host = socket.gethostname().split(".")[0]
        (self.folder / "state").mkdir()
        nodes = [f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1\n" for name in NODES]
        (self.folder / "slurm.conf").write_text(
            SETTINGS.format(host=host, port=free_port(), folder=self.folder) + "".join(nodes))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [f"--{name}-file={self.folder / file}" for name, file in
                 {"key": "munge.key", "pid": "munge.pid", "log": "munge.log", "seed": "munge.seed"}.items()]
        # --force: the folders of pytest are not those of a system.
        self.run_daemon("munged", "munged", "--foreground", "--force", f"--socket={self.folder / 'munge.socket'}", *files)
        wait_until((self.folder / "munge.socket").exists, 20, "munged runs")
        self.run_daemon("slurmctld", "slurmctld", "-D")
        for name in NODES:
            self.run_daemon(name, "slurmd", "-D", "-N", name)
        wait_until(lambda: self.call("sinfo", "-hN", "-t", "idle").count("node") == len(NODES), 60, "three nodes are idle")
        return self

    def run_daemon(self, name, *command):
        self.daemons[name] = LoggedProcess()
        self.daemons[name].spawn_logged(command, self.env)

    def call(self, *command, cwd=None, env=None):
        ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, cwd=cwd,
                             env={**self.env, **(env or {})})
        assert ran.returncode == 0 or command[0] == "sinfo", ran.stderr  # sinfo also asks before slurmctld answers
        return ran.stdout.strip()

    def kill_node(self, name, worker):
        """Ends a node as a power cut does: slurmd, the process `worker`, and slurmstepd, which started that."""
        step = int(pathlib.Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
        self.daemons[name].process.kill()
        for pid in (step, worker):
            os.kill(pid, signal.SIGKILL)
        self.daemons[name].process.wait()

    def stop(self):
        try:
            self.call("scancel", "--user=root")
            wait_until(lambda: not self.call("squeue", "-h"), 60, "no job is left")
        finally:
            for daemon in reversed(self.daemons.values()):
                daemon.process.terminate()
                daemon.process.wait(timeout=30)
