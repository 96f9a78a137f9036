# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run commands that work on an image's tree in a closed room: they cannot read, change or reach the build host.

Code of packages and roles runs as root, and is not trusted. bubblewrap makes the room: namespaces of its own (user,
mount, PID, IPC, UTS, cgroup, and network unless it is asked for), and a root directory with

- the tree at its own path, writable, with its own /dev (device nodes that belong to this room), /proc, /run and /tmp,
- the build host's programs (/usr) and a few files of /etc, read-only,
- the paths that the caller lends.

The room's users have the numbers of the build host, so that files of the tree get their final owners. Therefore its
root is the owner of files such as those of /proc/sys: everything in /proc except processes is read-only or hidden, and
without the capability SYS_ADMIN, and without user namespaces in the room, no other /proc can be mounted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.system_calls import program
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import PROXIES, ROOM, inside

# Scripts of packages change owners and modes of any file (CHOWN, DAC_OVERRIDE, FOWNER, FSETID), give programs
# capabilities (SETFCAP), become other users (SETUID, SETGID), end their daemons (KILL); dpkg and rpm enter the tree
# (SYS_CHROOT).
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID", "SYS_CHROOT")
# The first of these, and device nodes (MKNOD).
UNPACKING = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP")
# What programs of /usr read, and no secret: /etc/ssl/private, /etc/shadow and /etc/apt/auth.conf are not in a room.
ETC = (
    *("alternatives", "apt/trusted.gpg.d", "ca-certificates", "crypto-policies", "group", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "passwd", "pki/ca-trust", "pki/tls/certs", "rpm"),
    *("ssl/certs", "ssl/openssl.cnf"),
)
ETC_OF_NETWORK = ("hosts", "resolv.conf")
# Directories that are links into /usr on present distributions.
OF_USR = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
# What may be read of it differs by kernel; names of the build host's keys need no reader.
HIDDEN = ("kcore", "key-users", "keys", "kmsg")
# The program ends with the status of the command. The files that it removes are named by descriptors of their
# directories, because a command may have replaced these by links. The command gets none of the descriptors.
_SCRIPT = r"""
root=$1 resolver=$2 policy=$3 filter=$4
shift 4
mount -t tmpfs -o mode=0755,nosuid,noexec,size=1m tmpfs "$root/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$root/dev"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir "$root/dev/shm"

unshare --user sleep 60 &
holder=$!
outside=$(readlink /proc/self/ns/user)
while [ "$(readlink "/proc/$holder/ns/user")" = "$outside" ]; do :; done
for kind in uid gid; do
    map=$(while read -r first _ count; do echo "$first $first $count"; done < "/proc/self/${kind}_map")
    echo "$map" > "/proc/$holder/${kind}_map"
done
nsenter --user="/proc/$holder/ns/user" sh -euc 'echo 0 > /proc/sys/user/max_user_namespaces'
exec 9< "/proc/$holder/ns/user"
kill "$holder"
printf "$filter" > "$root/dev/filter"
exec 8< "$root/dev/filter"
rm "$root/dev/filter"

exec 6< "$root" 7< "$root"
if [ -n "$policy" ]; then
    exec 6< "${policy%/*}"
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 0755 "$policy"
fi
if [ -n "$resolver" ]; then
    exec 7< "${resolver%/*}"
    : > "$resolver"
fi
status=0
bwrap --userns 9 --seccomp 8 "$@" < "$root/dev/null" 6<&- 7<&- || status=$?
[ -z "$policy" ] || rm -f "/proc/self/fd/6/${policy##*/}"
[ -z "$resolver" ] || rm -f "/proc/self/fd/7/${resolver##*/}"
exit "$status"
"""


def entered(
    root: Path,
    argv: list[str],
    network: bool = False,
    readable: Iterable[Path] = (),
    writable: Iterable[Path] = (),
) -> list[str]:
    """Return a command that runs ``argv`` in a room with the tree ``root``; root must run it.

    ``readable`` and ``writable`` are further paths that the room has. A room with ``network`` has the build host's
    network and the proxy of its environment. The exit status is that of ``argv``. Raises ImageError if a directory on
    which the room mounts something is a link in the tree.
    """
    for name in ("proc", "dev", "run", "tmp"):
        place = root / name
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise ImageError(
                "is not a directory", "remove the package or role that replaced it", subject=f"/{name} of {root}"
            )
        if not place.exists():  # a tree without packages
            place.mkdir()
            place.chmod(0o1777 if name == "tmp" else 0o755)
    options = [
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "localhost"),
        *([] if network else ["--unshare-net"]),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *(word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}")),
        *_programs(network),
        # First, because a lent path may be below /dev (a cache in /dev/shm).
        *("--dev-bind", f"{root}/dev", "/dev"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/var/tmp", "--dir", "/root"),
        *("--tmpfs", "/run"),
        *_lent("--ro-bind", readable),
        *_lent("--bind", writable),
        *("--bind", f"{root}", f"{root}", "--dev-bind", f"{root}/dev", f"{root}/dev"),
        *("--perms", "1777", "--tmpfs", f"{root}/dev/shm", "--tmpfs", f"{root}/run"),
        *("--perms", "1777", "--dir", f"{root}/run/lock", "--perms", "1777", "--tmpfs", f"{root}/tmp"),
        *("--proc", f"{root}/proc", *_closed_proc(f"{root}/proc")),
        *("--symlink", f"{root}/proc", "/proc"),
    ]
    resolver = ""
    if network and os.path.exists("/etc/resolv.conf"):
        place = inside(root, "etc/resolv.conf", follow=True)
        if place.parent.is_dir() and not place.exists() and root / "run" not in place.parents:
            resolver = os.fspath(place)
        if place.parent.is_dir() or root / "run" in place.parents:
            options += ["--ro-bind", "/etc/resolv.conf", os.fspath(place)]
    policy = inside(root, "usr/sbin/policy-rc.d")
    starts = inside(root, "usr/sbin/invoke-rc.d").exists() and not os.path.lexists(policy)
    return [
        *([] if network else ["env", *(word for name in PROXIES for word in ("-u", name))]),
        *("unshare", "--mount", "--propagation", "private", "sh", "-euc", _SCRIPT, ROOM),
        *(os.fspath(root), resolver, os.fspath(policy) if starts else "", _octal(program()), *options, "--"),
        # bubblewrap leaves the descriptor of its user namespace open.
        *("sh", "-c", 'exec "$@" 9<&-', "sh", *argv),
    ]


def unpacking(argv: list[str], archive: Path, place: Path) -> list[str]:
    """Return a command that unpacks ``archive`` in ``place``, in a room without a tree, network and /proc.

    Root must run it. The room's root may make device nodes, which archives have, as only the build host's can; it can
    open none, since no mount here allows it.
    """
    return [
        *("env", *(word for name in PROXIES for word in ("-u", name)), "bwrap"),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *(word for name in UNPACKING for word in ("--cap-add", f"CAP_{name}")),
        *_programs(False),
        *("--tmpfs", "/tmp", *_lent("--ro-bind", [archive]), *_lent("--bind", [place])),
        *("--", *argv),
    ]


def require_namespaces() -> None:
    """Raise ImageError if the kernel refuses user namespaces."""
    tried = process.run(["unshare", "--user", "--mount", "true"])
    if tried.returncode:
        raise ImageError(
            f"the kernel allows no user namespaces: {tried.stdout.strip()}",
            "set user.max_user_namespaces to 1000 or more (sysctl), and build outside of a container",
            subject="the build",
        )


def _programs(network: bool) -> list[str]:
    """Return the words for the build host's programs and the files that these need."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in OF_USR:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), os.fspath(path)]
        elif path.is_dir():
            options += ["--ro-bind", os.fspath(path), os.fspath(path)]
    names = [*ETC, *(ETC_OF_NETWORK if network else ()), *sorted(path.name for path in Path("/etc").glob("python3*"))]
    return options + [word for name in names for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")]


def _lent(option: str, paths: Iterable[Path]) -> list[str]:
    """Return the words for paths that may lead over links: each is at its name, and where it leads to."""
    options: list[str] = []
    names = {Path("/usr")}
    for path in paths:
        real = path.resolve()
        for name in (path, real):
            # What is in a directory that the room has already is there, as a link if it is one.
            if not names.intersection((name, *name.parents)):
                names.add(name)
                options += [option, os.fspath(real), os.fspath(name)]
    return options


def _closed_proc(place: str) -> list[str]:
    """Return the words that hide files of /proc that only root may read, and make directories and the rest read-only.

    Processes and the links to the reader's own one stay as they are.
    """
    options = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdecimal() or entry.is_symlink():
            continue
        mode = entry.stat().st_mode
        if entry.name in HIDDEN or (stat.S_ISREG(mode) and not mode & stat.S_IROTH and not mode & stat.S_IWUSR):
            options += ["--ro-bind", "/dev/null", f"{place}/{entry.name}"]
        elif stat.S_ISDIR(mode) or mode & stat.S_IWUSR:
            options += ["--ro-bind", f"/proc/{entry.name}", f"{place}/{entry.name}"]
    return options


def _octal(data: bytes) -> str:
    """Return the data as a format of printf(1)."""
    return "".join(f"\\{byte:03o}" for byte in data)
