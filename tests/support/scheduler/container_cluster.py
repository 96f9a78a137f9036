# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A planned Slurm cluster on a machine that looks like a recorded GPU server, with real cgroups, podman and crun.

The daemons are in a mount namespace: its /sys and /proc/driver show the server's PCI tree, and its /dev has files of
NVIDIA's and InfiniBand's numbers without a driver behind them. To open one fails with ENXIO, or with EPERM where the
job's cgroup forbids it. A stand-in for nvidia-ctk describes the GPUs, because the tool needs a driver. Needs root.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import server_files
from oci_images import OciLayout, member, tar
from slurm_cluster import SlurmCluster

from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import cdi
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service import containers

# Of containers on a loaded machine, which otherwise take a second.
START_S = 300
NODES = ["holds01", "holds02"]
# Debian's user games, who has no other process, and man, to whom /etc/subuid gives further IDs here. newuidmap wants a
# user's own group.
USER, GROUP = 5, 60
MAN = {"uid": 6, "gid": 12, "name": "man"}
SPACE = """set -eu
root=$1
mount --make-rprivate /
dev=$root/newdev
mkdir $dev
mount -t tmpfs -o mode=755 tmpfs $dev
for name in null zero full random urandom tty; do cp -a /dev/$name $dev/; done
for name in fd stdin stdout stderr; do cp -a /dev/$name $dev/; done
ln -s pts/ptmx $dev/ptmx
mkdir $dev/pts $dev/shm $dev/mqueue $dev/infiniband
mount -t devpts -o newinstance,ptmxmode=666 devpts $dev/pts
mount -t tmpfs -o mode=1777 tmpfs $dev/shm
mount -t mqueue mqueue $dev/mqueue
for number in 0 1 2 3 4 5 6 7; do mknod -m 666 $dev/nvidia$number c 195 $number; done
mknod -m 666 $dev/nvidiactl c 195 255
for number in 0 1 2 3; do mknod -m 666 $dev/infiniband/uverbs$number c 231 $((192 + number)); done
mknod -m 666 $dev/infiniband/rdma_cm c 10 60
# This machine's processors and cgroups, and the server's devices. crun refuses both versions of cgroups at once.
sys=$root/server/sys
mkdir -p $sys/devices/system $sys/fs/cgroup
mount --rbind /sys/devices/system $sys/devices/system
mount --rbind /sys/fs/cgroup $sys/fs/cgroup
[ ! -d $sys/fs/cgroup/unified ] || umount $sys/fs/cgroup/unified
mount --rbind $sys /sys
mount --bind $root/server/proc/driver /proc/driver
# The kernel lets users mount /proc in a container only where all of it can be seen elsewhere.
mkdir $root/proc
mount -t proc proc $root/proc
mount -t tmpfs -o mode=755 tmpfs /run
for path in usr/bin usr/lib; do
    mkdir -p $root/over/$path $root/beneath/$path
    mount -t overlay overlay -o lowerdir=/$path,upperdir=$root/over/$path,workdir=$root/beneath/$path /$path
done
for name in subuid subgid; do
    echo man:100000:65536 >/run/$name
    mount --bind /run/$name /etc/$name
done
# Slurm's plugin looks for this name, which in Debian is only in libpmix-dev.
pmix=$(echo /usr/lib/*/pmix2/lib)
[ ! -d "$pmix" ] || ln -sf libpmix.so.2 "$pmix/libpmix.so"
mount --move $dev /dev
mkdir -p /run/lock
mount --make-rshared /
echo ready
exec sleep 7200
"""
# GPUs in the reverse of the kernel's order, as NVML's may be another.
NVIDIA_CTK = f"""#!{sys.executable}
import json, sys
output = next(word.partition("=")[2] for word in sys.argv if word.startswith("--output="))
nodes = {{str(7 - number): [f"/dev/nvidia{{number}}"] for number in range(8)}}
nodes["all"] = [path for paths in nodes.values() for path in paths]
devices = [
    {{"name": name, "containerEdits": {{"deviceNodes": [{{"path": path}} for path in paths]}}}}
    for name, paths in nodes.items()
]
spec = {{"cdiVersion": "0.5.0", "kind": "{cdi.GPU}", "devices": devices}}
spec["containerEdits"] = {{"deviceNodes": [{{"path": "/dev/nvidiactl"}}]}}
json.dump(spec, open(output, "w"))
"""
# Tries to open each file of a device.
OPEN_ALL = """for file in /dev/nvidia* /dev/infiniband/*; do
    if [ -c "$file" ]; then echo "$file: $(cat "$file" 2>&1 | sed 's/.*: //')"; fi
done"""
COMMANDS = ("sh", "cat", "sed", "sleep", "id", "env", "ls", "tr")


def write_image(folder: Path) -> Path:
    """Write an OCI archive of busybox, with a file of another owner, as images have them; return its path."""
    busybox = Path("/bin/busybox").read_bytes()
    program = tarfile.TarInfo("bin/busybox")
    program.mode, program.size = 0o755, len(busybox)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as layer:
        layer.addfile(program, io.BytesIO(busybox))
        layer.addfile(member("srv/of-another", tarfile.REGTYPE, uid=7, gid=7))
    links = tar(*(member(f"bin/{name}", tarfile.SYMTYPE, "busybox") for name in COMMANDS))
    layout = OciLayout(folder / "layout")
    image = layout.image(gzip.compress(stream.getvalue(), 1), links, config={"Env": ["PATH=/bin"]})
    layout.name(image, "busybox:1")
    return Path(layout.archive(folder / "busybox.tar"))


class ContainerCluster(SlurmCluster):
    """The cluster, whose daemons and commands are in the namespace of the process ``holder``."""

    def __init__(self, folder: Path, directory: str) -> None:
        self.directory = directory
        host = server_files.with_rdma()
        settings = {
            "controllers": ["ctl"],
            "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
            "container_directory": directory,
            "options": {"SelectTypeParameters": "CR_Core", "MessageTimeout": 100},
        }
        files = dict(plan(settings, {"nodes": NODES}, dict.fromkeys(NODES, host)).files)
        # Processors are another machine's.
        files["cgroup.conf"] = (
            files["cgroup.conf"].replace("Cores=yes", "Cores=no").replace("RAMSpace=yes", "RAMSpace=no")
        )
        kept = {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup\nMpiDefault=none"}
        kept["TaskPlugin"] += "\nSlurmdParameters=config_overrides\nSchedulerParameters=batch_sched_delay=0"
        super().__init__(folder / "cluster", files, kept)
        self.files = files
        server_files.write(folder / "server", host)
        self.image = write_image(folder)
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", SPACE, "sh", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout.readline() == "ready\n"
        self.space = ("nsenter", "--target", str(self.holder.pid), "--mount")
        self.install("/usr/bin/nvidia-ctk", NVIDIA_CTK.encode())
        made = containers.files({"directory": directory, "prolog": "", "epilog": ""}, "/usr/bin/python3")
        for path, content in made.items():
            self.install(path, content)

    def install(self, path: str, content: bytes) -> None:
        """Write a program in the namespace."""
        write = 'mkdir -p "${1%/*}"; cat >"$1"; chmod 755 "$1"'
        subprocess.run([*self.space, "sh", "-c", write, "sh", path], input=content, check=True)

    def start(self, name: str, *command: str) -> None:
        """Start a program in the namespace."""
        super().start(name, *self.space, *command)

    def start_node(self, name: str, *options: str) -> None:
        """Start the slurmd of a node, which has the directory of containers for itself."""
        for folder in (self.directory, f"{self.directory}-{name}", self.folder / f"spool-{name}"):
            Path(folder).mkdir(exist_ok=True)
        share = f'mount --bind {self.directory}-{name} {self.directory}; exec /usr/sbin/slurmd -D -N {name} "$@"'
        self.start(name, "unshare", "--mount", "sh", "-c", share, "sh", *options)

    def write(self, files, gate: str = "") -> None:
        """Write the planned files; the devices are in the namespace's /dev."""
        super().write(files, gate)
        gres = self.folder / "gres.conf"
        gres.write_text(gres.read_text().replace(f"{self.folder}/nvidia", "/dev/nvidia"))

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a command prints in the namespace."""
        return super().run(*self.space, *command, check=check)

    def wait(self, subject: str, condition, wait_s: float = START_S) -> None:
        """Wait until a condition holds."""
        super().wait(subject, condition, wait_s)

    def user(
        self, *command: str, uid: int = USER, gid: int = GROUP, name: str = "games"
    ) -> subprocess.CompletedProcess:
        """Run a command as a user without rights."""
        home = self.folder.parent / "home"
        drop = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        return subprocess.run(
            [*self.space, *drop, *command],
            env={**self.environment, "HOME": str(home), "USER": name},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )

    def podman(
        self, *arguments: str, slurm: tuple[str, ...] = ("--gres=gpu:1",), **user: Any
    ) -> subprocess.CompletedProcess:
        """Run a shell script, the last argument, in a container of a user's job."""
        *options, script = arguments
        run = [
            "sailloft-container",
            "run",
            "--rm",
            "--quiet",
            *options,
            f"oci-archive:{self.image}",
            "sh",
            "-c",
            script,
        ]
        return self.user("srun", *slurm, *run, **user)

    def left(self) -> list[str]:
        """Return what jobs have left: directories, files of shared memory, processes, mounts."""
        script = f"""ls -A {self.directory}-* | grep -E '^[0-9]'
ls -A /dev/shm
ps -o args= -U {USER},{MAN["uid"]}
grep {self.directory}/ /proc/self/mountinfo"""
        return self.run("sh", "-c", script, check=False).splitlines()

    def close(self) -> None:
        """End the daemons, their namespace and their cgroups."""
        for name in reversed(list(self.processes)):
            self.processes[name].kill()
            self.processes[name].wait()
        self.holder.kill()
        self.holder.wait()
        for top in (top for name in NODES for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}")):
            for folder in sorted([top, *(one for one in top.rglob("*") if one.is_dir())], reverse=True):
                # A step outlives its slurmd.
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                for _try in range(100):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                        break
                    time.sleep(0.05)


@contextlib.contextmanager
def container_cluster() -> Iterator[ContainerCluster]:
    """Run the cluster with its nodes in service."""
    # A user must reach it, which pytest's directories forbid.
    folder = Path(tempfile.mkdtemp(prefix="sailloft-containers-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "home").mkdir()
    os.chown(folder / "home", USER, GROUP)
    cluster = ContainerCluster(folder, f"{folder}/scratch")
    try:
        cluster.health("exit 0")
        (cluster.folder / "state").mkdir()
        cluster.start_munge()
        cluster.start_controller()
        for name in NODES:
            cluster.start_node(name)
        cluster.wait_for(*NODES)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()
        shutil.rmtree(folder)
