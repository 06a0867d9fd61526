"""A SLURM cluster of two nodes on this machine, with GPUs that do not exist, for as long as a test runs."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING = ("mariadb-install-db", "mariadbd", "slurmdbd")
COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
NODES = ("alpha", "beta")


def missing(*further: str) -> list[str]:
    """Programs of SLURM that this machine lacks."""
    return [name for name in (*DAEMONS, *COMMANDS, *further) if _found(name) is None]


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"/usr/sbin:/usr/bin:{os.environ['PATH']}")


class Cluster:
    """Two nodes with 8 cores and 16,000 MB, whatever the machine has: `alpha` with 4 GPUs, `beta` with 2 of another type.

    `main` allows two hours; `urgent` takes the nodes from jobs of `main`. It is known by SLURM_CONF alone.

    Args:
        accounting: whether it keeps accounts, by slurmdbd and MariaDB. Small clusters keep none: `sacct` is there and answers nothing.
    """

    def __init__(self, folder: Path, *, accounting: bool = False) -> None:
        self.folder, self.accounting = folder, accounting
        self._processes: list[subprocess.Popen] = []
        for name in ("state", "log", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        (folder / "slurm.conf").write_text(self._configuration())
        # A GPU must be a device file, and CUDA_VISIBLE_DEVICES gets the number in its name. SLURM looks no closer.
        for i in range(4):
            (folder / f"gpu{i}").symlink_to("/dev/null")
        (folder / "gres.conf").write_text(
            f"NodeName=alpha Name=gpu Type=h100 File={folder}/gpu[0-3]\nNodeName=beta Name=gpu Type=a100 File={folder}/gpu[0-1]\n"
        )
        # Jobs call srun without any variable of SLURM's.
        (folder / "bin").mkdir()
        (folder / "bin/srun").write_text(f'#!/bin/sh\nexec env SLURM_CONF={folder}/slurm.conf {_found("srun")} "$@"\n')
        (folder / "bin/srun").chmod(0o755)
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def _configuration(self) -> str:
        host = socket.gethostname().partition(".")[0]
        self._database, accounts, controller, *ports = _free_ports(3 + len(NODES))
        storage = "none"
        if self.accounting:
            storage = f"slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={accounts}"
            storage += f"\nAccountingStoragePass={self.folder}/munge.sock\nAccountingStoreFlags=job_comment"
        (self.folder / "slurmdbd.conf").write_text(f"""
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={accounts}
SlurmUser={getpass.getuser()}
PidFile={self.folder}/slurmdbd.pid
LogFile={self.folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self._database}
StorageUser={getpass.getuser()}
""")
        (self.folder / "slurmdbd.conf").chmod(0o600)
        node = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN"
        return f"""
ClusterName=saturate
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock
CredType=cred/munge
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/log/slurmctld.log
SlurmdLogFile={self.folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
ReturnToService=1
KillWait=3
MinJobAge=3600
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/{storage}
NodeName=alpha Port={ports[0]} Gres=gpu:h100:4 {node}
NodeName=beta Port={ports[1]} Gres=gpu:a100:2 {node}
PartitionName=main Nodes=ALL Default=YES MaxTime=2:00:00 PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL MaxTime=20 PriorityTier=10 PreemptMode=OFF State=UP
"""

    def start(self) -> None:
        sock, key, log = self.folder / "munge.sock", self.folder / "munge.key", self.folder / "log"
        self._spawn(
            "munged", "--foreground", "--force", f"--socket={sock}", f"--key-file={key}", f"--log-file={log}/munged.log",
            f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        until(sock.exists, "munged")
        if self.accounting:
            self._start_accounting()
        self._spawn("slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
        until(lambda: "is UP" in self.ask("scontrol", "ping"), "slurmctld")
        for node in NODES:
            self._spawn("slurmd", "-D", "-N", node, "-f", f"{self.folder}/slurm.conf")
        until(
            lambda: self.ask("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T").split() == ["idle"] * 2,
            "slurmd",
        )

    def _start_accounting(self) -> None:
        data = self.folder / "database"
        user = f"--user={getpass.getuser()}"
        install = [_found("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db", user]
        subprocess.run(install, check=True, capture_output=True, timeout=60)
        self._spawn(
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={data}/socket", f"--pid-file={data}/pid", "--skip-grant-tables",
            "--bind-address=127.0.0.1", f"--port={self._database}", user,
        )  # fmt: skip
        until((data / "socket").exists, "mariadbd")
        self._spawn("slurmdbd", "-D")
        until(lambda: "saturate" in self.ask("sacctmgr", "--immediate", "add", "cluster", "saturate"), "slurmdbd")
        self.ask("sacctmgr", "--immediate", "add", "account", "research")
        self.ask("sacctmgr", "--immediate", "add", "user", getpass.getuser(), "account=research")

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"log/{name}.out").open("a") as out:
            self._processes.append(
                subprocess.Popen([_found(name), *arguments], stdout=out, stderr=subprocess.STDOUT, env=self.environment)
            )

    def ask(self, command: str, *arguments: str) -> str:
        return subprocess.run(
            [_found(command), *arguments], capture_output=True, text=True, timeout=30, env=self.environment
        ).stdout

    def jobs(self) -> dict[str, tuple[str, str, str]]:
        """Rule, state and node of each job by its id, in the order in which they were submitted; the ended ones among them."""
        lines = self.ask("squeue", "--states=all", "--noheader", "--format=%i|%k|%T|%N").splitlines()
        jobs = {line.split("|")[0]: tuple(line.split("|")[1:]) for line in lines}
        return {job: jobs[job] for job in sorted(jobs, key=int)}

    def states(self, rule: str) -> list[str]:
        """How each job of a rule ended, or stands."""
        return [state for name, state, _ in self.jobs().values() if name == f"rule_{rule}"]

    def last(self, rule: str) -> tuple[str, str]:
        """A rule's last job, and its node."""
        return [(job, node) for job, (name, _, node) in self.jobs().items() if name == f"rule_{rule}"][-1]

    def update(self, *what: str) -> None:
        subprocess.run([_found("scontrol"), "update", *what], check=True, env=self.environment, timeout=30)

    def cancel_all(self) -> None:
        self.ask("scancel", f"--user={getpass.getuser()}")

    def stop(self) -> None:
        self.cancel_all()
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


def until(happens, what: str, workflow: subprocess.Popen | None = None, within: float = 180) -> None:
    """Wait for what is to happen while a workflow runs; `what` stands in the failure."""
    end = time.monotonic() + within
    while not happens():
        assert workflow is None or workflow.poll() is None, f"the workflow ended without a {what}"
        assert time.monotonic() < end, f"no {what} after {within:g} s"
        time.sleep(0.2)
