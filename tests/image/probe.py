# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Try to leave a build: what a hostile package script or role would do. Run as: probe.py CANARIES NAME

CANARIES is a JSON file that says what to look for on the build host. The result is NAME.json in /var/lib/hostile of the
tree: attempt -> what it got, only for those that got something. If CANARIES names another directory for it, the probe
runs on the build host itself, and leaves out what would change that.
"""

import contextlib
import ctypes
import glob
import hashlib
import json
import os
import re
import signal
import socket
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
# x86-64 and aarch64.
CALLS = {
    "x86_64": {"keyctl": 250, "add_key": 248, "syslog": 103, "bpf": 321, "perf_event_open": 298, "init_module": 175},
    "aarch64": {"keyctl": 219, "add_key": 217, "syslog": 116, "bpf": 280, "perf_event_open": 241, "init_module": 105},
}[os.uname().machine]
KEYCTL_READ, KEYCTL_LINK, KEYCTL_SEARCH, KEYCTL_GET_PERSISTENT = 11, 8, 10, 22
USER_KEYRING, SESSION_KEYRING = -4, -3
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
NAMESPACES = {"user": 0x10000000, "mount": 0x00020000, "network": 0x40000000, "pid": 0x20000000}
SOCKETS = ("/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/containerd/containerd.sock")


def call(function, *arguments) -> int:
    """Call a function of libc, and raise OSError if it fails."""
    value = function(*arguments)
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value


def system_call(name: str, *arguments) -> int:
    return call(LIBC.syscall, CALLS[name], *arguments)


def read(path: str, count: int = 60) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(count)


def write(path: str, how: str = "w") -> int:
    with open(path, how) as stream:
        return stream.write("5")


def append(path: str) -> int:
    return write(path, "a")


def listed(path: str) -> bool:
    return os.path.basename(path) in os.listdir(os.path.dirname(path))


def node(path: str, kind: int, device: int) -> bytes:
    os.mknod(path, kind | 0o600, device)
    return read(path, 1) or b"opened"


class Probe:
    """The attempts; ``canaries`` are described where the test makes them."""

    def __init__(self, canaries: dict) -> None:
        self.canaries = canaries
        self.got: dict[str, str] = {}

    def attempt(self, name: str, work, *arguments) -> None:
        with contextlib.suppress(Exception):
            value = work(*arguments)
            if value:
                self.got[name] = str(value)[:200]

    def files(self, way: str, prefix: str) -> None:
        for name in ("file", "key", "cache"):
            path = f"{prefix}{self.canaries[name]}"
            self.attempt(f"{way}: read {name}", read, path)
            self.attempt(f"{way}: list beside {name}", listed, path)
        path = f"{prefix}{self.canaries['file']}"
        self.attempt(f"{way}: write file", append, path)
        self.attempt(f"{way}: create", write, f"{path}.new")

    def processes(self) -> None:
        # On the build host itself, the canary is enough: it may have hundreds of others.
        for folder in [f"/proc/{self.canaries['pid']}"] if self.canaries.get("results") else glob.glob("/proc/[0-9]*"):
            if int(folder[6:]) in (os.getpid(), os.getppid()):
                continue
            for name in ("cmdline", "environ"):
                self.attempt(f"{name} of a process", self.in_text, f"{folder}/{name}")
            self.attempt("memory of a process", self.in_memory, folder)
            for name in ("root", "cwd"):
                self.files(f"{name} of a process", f"{folder}/{name}")
            for path in glob.glob(f"{folder}/fd/*"):
                self.files("descriptor of a process", path)
                self.files("above a descriptor", f"{path}/../../../../../../../..")
            for name in () if self.canaries.get("results") else ("mnt", "net", "pid", "user"):
                self.attempt(f"namespace {name} of a process", self.enter, f"{folder}/ns/{name}")

    def in_text(self, path: str) -> bool:
        text = read(path, -1).decode(errors="replace")
        return self.canaries["marker"] in text or self.password(text)

    def in_memory(self, folder: str) -> bool:
        with open(f"{folder}/maps") as maps, open(f"{folder}/mem", "rb", 0) as memory:
            for line in maps:
                found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                begin, end = (int(word, 16) for word in found.groups()) if found else (0, 0)
                if 0 < end - begin < 1 << 26:
                    memory.seek(begin)
                    if self.password(memory.read(end - begin).decode(errors="replace")):
                        return True
        return False

    def password(self, text: str) -> bool:
        words = re.findall(r"Pass-[0-9a-f]{32}-word", text)
        return any(hashlib.sha256(word.encode()).hexdigest() == self.canaries["password_sha256"] for word in words)

    def enter(self, path: str) -> bool:
        if os.readlink(path) == os.readlink(f"/proc/self/ns/{os.path.basename(path)}"):
            return False
        descriptor = os.open(path, os.O_RDONLY)
        return call(LIBC.setns, descriptor, 0) == 0

    def signals(self) -> None:
        pid = self.canaries["pid"]
        # The number may be that of another process in the room: the test sees whether the canary got the signal.
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR1)

        def trace() -> bool:
            if self.canaries["marker"].encode() not in read(f"/proc/{pid}/cmdline", -1):
                return False
            call(LIBC.ptrace, PTRACE_ATTACH, pid, 0, 0)
            os.waitpid(pid, 0)
            call(LIBC.ptrace, PTRACE_DETACH, pid, 0, 0)
            return True

        self.attempt("trace", trace)

    def network(self) -> None:
        for address in self.canaries["addresses"]:
            self.attempt(
                "listener", lambda address=address: socket.create_connection((address, self.canaries["port"]), 2)
            )
        self.attempt("abstract socket", self.unix, "\0" + self.canaries["socket"])
        self.attempt("socket in the file system", self.unix, self.canaries["socket_path"])
        self.attempt("interfaces", lambda: [name for _index, name in socket.if_nameindex() if name != "lo"])
        self.attempt("VSOCK", lambda: socket.socket(40, socket.SOCK_STREAM))
        for path in SOCKETS:
            self.attempt(f"service {path}", os.stat, path)

    def unix(self, name: str) -> bool:
        socket.socket(socket.AF_UNIX).connect(name)
        return True

    def kernel(self) -> None:
        setting = self.canaries["setting"]
        for prefix in ("", "/proc/1/root"):
            self.attempt("kernel setting", write, f"{prefix}{setting}")
        for path in ("/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/mtrr"):
            self.attempt(path, os.open, path, os.O_WRONLY)
        self.attempt("/sys", lambda: glob.glob("/sys/*"))
        os.makedirs("/tmp/mounted", exist_ok=True)
        for kind in ("proc", "sysfs", "tmpfs", "cgroup2", "overlay", "devtmpfs"):
            arguments = (b"none", b"/tmp/mounted", kind.encode(), 0, None)
            self.attempt(f"mount {kind}", lambda arguments=arguments: call(LIBC.mount, *arguments) == 0)
        self.attempt("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()) is None)
        self.attempt("kernel's log", lambda: system_call("syslog", 10, 0, 0) >= 0)
        self.attempt("load a module", lambda: self.refused(8, "init_module", b"", 0, b""))
        self.attempt("bpf", lambda: self.refused(22, "bpf", 99, 0, 0))

    def refused(self, allowed: int, name: str, *arguments) -> bool:
        """Return whether the kernel looked at the arguments, and so would have done it."""
        try:
            system_call(name, *arguments)
        except OSError as error:
            return error.errno == allowed
        return True

    def devices(self) -> None:
        # The test sees whether the build host's device has another mode.
        for path in ("/dev/null", "/proc/self/fd/0", "/proc/1/fd/0"):
            with contextlib.suppress(OSError):
                os.chmod(path, 0o600)
                os.chmod(path, 0o666)
        for name, kind, major, minor in (("disk", 0o060000, *self.canaries["disk"]), ("memory", 0o020000, 1, 1)):
            for folder in ("/tmp", "/dev", "/var/lib/hostile"):
                path = f"{folder}/probe-{name}"

                self.attempt(f"device {name} in {folder}", node, path, kind, os.makedev(major, minor))
        self.attempt("devices", lambda: set(os.listdir("/dev")) & {"kvm", "mem", "kmsg", "sda", "vda", "nvidia0"})

    def keys(self) -> None:
        serial = self.canaries["serial"]
        buffer = ctypes.create_string_buffer(100)
        self.attempt("read a key", lambda: system_call("keyctl", KEYCTL_READ, serial, buffer, 100))
        for keyring in (USER_KEYRING, SESSION_KEYRING):
            found = ("keyctl", KEYCTL_SEARCH, keyring, b"user", self.canaries["marker"].encode(), 0)
            self.attempt("find a key", lambda found=found: system_call(*found))
        self.attempt("names of keys", lambda: self.canaries["marker"].encode() in read("/proc/keys", -1))

    def namespaces(self) -> None:
        for name, flag in NAMESPACES.items():
            self.attempt(f"new namespace {name}", lambda flag=flag: call(LIBC.unshare, flag) == 0)

    def leave_root(self) -> bool:
        """Leave the changed root, as root with SYS_CHROOT can. This must be the last attempt."""
        os.makedirs("/tmp/inner", exist_ok=True)
        top = os.open("/", os.O_RDONLY)
        os.chroot("/tmp/inner")
        os.fchdir(top)
        for _level in range(40):
            os.chdir("..")
        os.chroot(".")
        return False

    def poison(self) -> None:
        """Leave a file among the packages that later builds install; the test looks for it in the cache."""
        for folder in ("/var/cache/apt/archives", "/var/lib/apt/lists", os.path.dirname(self.canaries["cache"])):
            with contextlib.suppress(OSError):
                write(f"{folder}/poison.deb")


def main() -> None:
    with open(sys.argv[1]) as stream:
        probe = Probe(json.load(stream))
    # Outside of the changed root, the room's /proc is a link into the tree.
    tree = os.path.dirname(os.readlink("/proc")) if os.path.islink("/proc") else ""
    folder = probe.canaries.get("results") or f"{tree}/var/lib/hostile"
    os.makedirs(folder, exist_ok=True)
    result = os.open(f"{folder}/{sys.argv[2]}.json", os.O_WRONLY | os.O_CREAT, 0o644)
    probe.files("path", "")
    probe.files("above", "../" * 40)
    parts = [probe.processes, probe.signals, probe.network, probe.keys, probe.kernel]
    if not probe.canaries.get("results"):
        parts += [probe.devices, probe.poison]
    for part in (*parts, probe.namespaces):
        part()
    probe.attempt("leave the root", probe.leave_root)
    probe.files("after leaving the root", "")
    os.write(result, json.dumps(probe.got).encode())


main()
