"""A SLURM cluster of one node, with GPUs that do not exist, for as long as a test runs."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")


def missing() -> list[str]:
    """Programs of SLURM that this machine lacks."""
    return [name for name in (*DAEMONS, *COMMANDS) if _found(name) is None]


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"/usr/sbin:/usr/bin:{os.environ['PATH']}")


class Cluster:
    """One node with 8 cores, 16,000 MB and 4 GPUs, whatever the machine has; `main` allows two hours, `short` 30 minutes.

    Without accounting, as small clusters are: `sacct` is there and answers nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self._processes: list[subprocess.Popen] = []
        for name in ("state", "spool", "log", "bin"):
            (folder / name).mkdir(parents=True)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        (folder / "slurm.conf").write_text(self._configuration())
        # A GPU must be a device file; SLURM looks no closer.
        devices = ("null", "zero", "full", "random")
        (folder / "gres.conf").write_text("".join(f"Name=gpu Type=h100 File=/dev/{name}\n" for name in devices))
        for name in COMMANDS:
            # By a script and not by SLURM_CONF: a job of Snakemake's forgets all variables of that prefix.
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {_found(name)} "$@"\n')
            script.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def _configuration(self) -> str:
        controller, node = _free_ports(2)
        return f"""
ClusterName=saturate
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock
CredType=cred/munge
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/log/slurmctld.log
SlurmdLogFile={self.folder}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
ReturnToService=2
JobRequeue=0
KillWait=3
SchedulerParameters=sched_interval=1
AccountingStorageType=accounting_storage/none
NodeName={self.host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 Gres=gpu:h100:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=2:00:00 State=UP
PartitionName=short Nodes=ALL MaxTime=20 State=UP
"""

    def start(self) -> None:
        sock, key, log = self.folder / "munge.sock", self.folder / "munge.key", self.folder / "log"
        self._spawn(
            "munged", "--foreground", "--force", f"--socket={sock}", f"--key-file={key}", f"--log-file={log}/munged.log",
            f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        _until(sock.exists, "munged")
        self._spawn("slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
        _until(lambda: "is UP" in self.ask("scontrol", "ping"), "slurmctld")
        self._spawn("slurmd", "-D", "-f", f"{self.folder}/slurm.conf")
        _until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"), "slurmd")

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"log/{name}.out").open("w") as out:
            self._processes.append(subprocess.Popen([_found(name), *arguments], stdout=out, stderr=subprocess.STDOUT))

    def ask(self, command: str, *arguments: str) -> str:
        return subprocess.run([self.folder / "bin" / command, *arguments], capture_output=True, text=True, timeout=30).stdout

    def jobs(self) -> dict[str, str]:
        """State of each job by its id, the ended ones among them."""
        lines = self.ask("squeue", "--states=all", "--noheader", "--format=%i|%T").splitlines()
        return dict(line.split("|") for line in lines)

    def stop(self) -> None:
        self.ask("scancel", f"--user={getpass.getuser()}")
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _until(happens, what: str, within: float = 60) -> None:
    end = time.monotonic() + within
    while not happens():
        assert time.monotonic() < end, f"{what} is not there after {within} s"
        time.sleep(0.1)
