# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run commands on an image's root so that they do not change the build host by accident.

This is not a security boundary against hostile code: the code runs as root, tools of the build host run beside it with
the build host's root directory (so that /proc/1/root leads there), and it may make device nodes.

The commands run in their own namespaces (``unshare`` of util-linux). However the commands end, their mounts and any
daemon that a package has started end with them. The root gets

- ``/proc`` with only these processes; the kernel's settings (``/proc/sys``, ``sysrq-trigger``) are read-only,
- ``/dev`` with null, zero, full, random, urandom and tty, and no disk or GPU of the build host,
- no ``/sys``, so that the build host's hardware can be neither read nor written,
- ``/run`` and ``/tmp`` in memory: files left there are not in the image,
- the build host's ``/etc/resolv.conf``, and for Debian a ``policy-rc.d`` that starts no service, both while
  the commands run,
- the host name "localhost", since packages write the host name into files.
"""

from __future__ import annotations

from pathlib import Path

_SCRIPT = r"""
root=$1
shift
hostname localhost
for one in proc dev run tmp; do
    # A root without packages has none yet.
    if [ ! -d "$root/$one" ]; then
        mkdir -m 0755 "$root/$one"
        [ "$one" != tmp ] || chmod 1777 "$root/$one"
    fi
done
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
for one in sys sysrq-trigger irq bus fs; do
    if [ -e "$root/proc/$one" ]; then
        mount --bind "$root/proc/$one" "$root/proc/$one"
        mount -o remount,bind,ro "$root/proc/$one"
    fi
done
mount -t tmpfs -o mode=0755,nosuid,noexec tmpfs "$root/dev"
for one in null zero full random urandom tty; do
    touch "$root/dev/$one"
    mount --bind "/dev/$one" "$root/dev/$one"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$root/run"
mkdir -m 1777 "$root/run/lock"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"

policy=
if [ -e "$root/usr/sbin/invoke-rc.d" ] && [ ! -e "$root/usr/sbin/policy-rc.d" ]; then
    policy=$root/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 0755 "$policy"
fi

names=$root/etc/resolv.conf
made=
if [ -L "$names" ]; then
    target=$(readlink "$names")
    case "$target" in
        # Out of /run again, and so perhaps out of the image.
        *run/*..*) ;;
        /run/* | ../run/*)
            target=$root/run/${target#*run/}
            mkdir -p "${target%/*}"
            cat /etc/resolv.conf > "$target"
            ;;
    esac
elif [ -d "$root/etc" ] && [ -e /etc/resolv.conf ]; then
    if [ ! -e "$names" ]; then
        : > "$names"
        made=$names
    fi
    mount --bind /etc/resolv.conf "$names"
    mount -o remount,bind,ro "$names"
fi

status=0
"$@" || status=$?

[ -z "$policy" ] || rm -f "$policy"
if [ -n "$made" ]; then
    umount "$names"
    rm -f "$names"
fi
exit "$status"
"""


def confined(root: Path, argv: list[str]) -> list[str]:
    """Return a command that prepares ``root`` and then runs ``argv`` outside of it; it must be run as root.

    The exit status of the command is that of ``argv``.
    """
    return [
        *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("--uts", "--ipc", "sh", "-eu", "-c", _SCRIPT, "sh", str(root), *argv),
    ]
