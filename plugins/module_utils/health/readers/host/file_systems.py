# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mounted file systems: missing, read-only after an error, full, out of inodes, and those that do not answer.

Each is asked by a program of its own, all at the same time, because a file system of a lost server or disk may never
answer. The round sees a program that outlives its kill, and does not start this reader again as long as it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import (
    at_once,
    names,
    natural,
    optional,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

# Those of the first process: a service may see its own, read-only ones.
MOUNTS, FSTAB = "/proc/1/mountinfo", "/etc/fstab"
STAT = ["stat", "-f", "-c", "%b %f %a %c %d"]
ANSWER_S, DENIED = 5.0, "Permission denied"
# Always full, and never written.
IMAGES = ("squashfs", "erofs", "iso9660", "udf", "cramfs", "romfs")
NETWORK = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "beegfs_nodev",
    "ceph",
    "cifs",
    "smb3",
    "wekafs",
    "glusterfs",
    "9p",
)
# A node with more mounts (containers) is judged by the first ones; the planned ones come first.
MOST = 64
# Characters of a path whose faults end when it is unmounted.
LONGEST = 400
ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A line of /proc/1/mountinfo."""

    path: str
    device: str  # "259:2"
    kind: str  # "ext4"
    source: str  # "/dev/nvme0n1p2"
    options: tuple[str, ...]  # of this mount
    all_options: tuple[str, ...]  # of the file system, at all its mounts


def read(node: Node) -> Reading:
    """Measure the planned mounts, the root, local disks and network file systems."""
    # Of mounts over each other the last one is seen.
    mounts = {mount.path: mount for mount in parse_mounts(node.text(MOUNTS))}
    if "/" not in mounts:
        raise NotMeasuredError(f"{MOUNTS} has no root")
    planned = node.expected.mounts
    measurements = [
        Measurement("mount_missing", Place("mount", path), path not in mounts, MOUNTS, _mounted(mounts.get(path)))
        for path in planned
    ]
    chosen = _chosen(mounts, planned)
    read_only = parse_fstab(optional(node, FSTAB))
    for mount in chosen:
        if mount.kind not in IMAGES:
            measurements.append(_read_only(mount, mount.path in planned, mount.path in read_only))
    for mount, answer in zip(chosen, at_once(lambda mount: _answer(node, mount), chosen)):
        measurements += _space(mount, answer, mount.path in planned)
    previous = names(node.kept.get("judged", "[]"))
    measurements += _gone([path for path in previous if path not in mounts and path not in planned])
    measurements += _judged_otherwise(names(node.kept.get("planned", "[]")), [*planned], mounts)
    # What is planned and not mounted may be taken out of the plan later.
    judged = {path for path in previous if path in planned} | {mount.path for mount in chosen}
    short = sorted(path for path in judged if path.isascii() and len(path) <= LONGEST)[: 2 * MOST]
    kept_planned = [path for path in planned if path.isascii() and len(path) <= LONGEST]
    judged_mounts = {"judged": json.dumps(short), "planned": json.dumps(kept_planned)}
    return Reading("file_systems", tuple(measurements), kept=judged_mounts)


def _gone(paths: list[str]) -> Iterator[Measurement]:
    """Report mounts that went away once as good, so that their faults end."""
    for path in paths:
        place, reason = Place("mount", path), "no longer mounted"
        for check in ("mount_hangs", "network_mount_hangs", "mount_read_only"):
            yield Measurement(check, place, False, MOUNTS, reason)
        for check in ("mount_space_used", "mount_inodes_used"):
            yield Measurement(check, place, 0, MOUNTS, reason)


def _judged_otherwise(was_planned: list[str], planned: list[str], mounts: dict[str, Mount]) -> Iterator[Measurement]:
    """End the faults of network mounts that another check judges, because they are planned now or no longer."""
    for path in {*was_planned} ^ {*planned}:
        if path in mounts and mounts[path].kind in NETWORK:
            check, reason = (
                ("network_mount_hangs", "planned now") if path in planned else ("mount_hangs", "no longer planned")
            )
            yield Measurement(check, Place("mount", path), False, MOUNTS, reason)


def _mounted(mount: Mount | None) -> str:
    return f"{mount.kind} of {mount.source}" if mount else "not mounted"


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts in a mountinfo; lines of another form are passed over."""
    mounts = []
    for line in text.splitlines():
        mount, separator, file_system = line.partition(" - ")
        fields, source_fields = mount.split(" "), file_system.split(" ")
        if separator and len(fields) >= 6 and len(source_fields) >= 3:
            mounts.append(
                Mount(
                    _unescaped(fields[4]),
                    fields[2],
                    source_fields[0],
                    _unescaped(source_fields[1]),
                    tuple(fields[5].split(",")),
                    tuple(source_fields[2].split(",")),
                )
            )
    return mounts


def _unescaped(text: str) -> str:
    """Return a path of the kernel's, in which a space is \\040."""
    return ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def parse_fstab(text: str) -> set[str]:
    """Return the paths that /etc/fstab mounts read-only."""
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {_unescaped(line[1]) for line in lines if len(line) >= 4 and "ro" in line[3].split(",")}


def _chosen(mounts: dict[str, Mount], planned: tuple[str, ...]) -> list[Mount]:
    """Return the mounts to judge: planned ones, the root, and one of each local disk and network file system.

    FUSE only if it is planned: any user may mount it, from a notebook too, and refuse it to root.
    """
    chosen = [mounts[path] for path in dict.fromkeys((*planned, "/")) if path in mounts]
    devices = {mount.device for mount in chosen}
    for mount in mounts.values():
        is_local = mount.source.startswith("/dev/") and mount.kind not in IMAGES
        if mount.device not in devices and (is_local or mount.kind in NETWORK):
            devices.add(mount.device)
            chosen.append(mount)
    return chosen[:MOST]


def _read_only(mount: Mount, is_planned: bool, by_fstab: bool) -> Measurement:
    """Return whether a file system became read-only: the kernel does this after an error, for all its mounts.

    A person's mount is read-only in both lists of options, which only a planned mount must not be.
    """
    after_error = ("rw" in mount.options and "ro" in mount.all_options) or "emergency_ro" in mount.all_options
    by_person = "ro" in mount.options and is_planned and not by_fstab
    text = "read-only after an error" if after_error else "mounted read-only" if by_person else "writable"
    if "ro" in mount.options and not (after_error or by_person):
        text = "read-only as wanted"
    return Measurement("mount_read_only", Place("mount", mount.path), after_error or by_person, MOUNTS, text)


def _answer(node: Node, mount: Mount) -> str | None:
    """Return what `stat` says of a mount, or why it said nothing; None for no answer in time."""
    try:
        ran = node.run([*STAT, mount.path], ANSWER_S)
    except NotMeasuredError as error:
        return error.cause if "no such program" in error.cause else None
    return ran.stdout.strip() if ran.rc == 0 else ran.stderr.strip() or f"stat ended with {ran.rc}"


def _space(mount: Mount, answer: str | None, is_planned: bool) -> Iterator[Measurement]:
    """Return what an answer says, None being no answer in time."""
    place, source = Place("mount", mount.path), f"{' '.join(STAT[:2])} {mount.path}"
    check = "network_mount_hangs" if mount.kind in NETWORK and not is_planned else "mount_hangs"
    if answer is None:
        yield Measurement(check, place, True, source, f"no answer in {ANSWER_S:g} s")
        return
    numbers = parse_space(answer)
    if numbers is None:
        is_broken = re.search(r"Input/output error|Stale file handle|endpoint is not connected", answer) is not None
        # A server that refuses root answers.
        is_hanging = is_broken or (False if DENIED in answer else None)
        yield Measurement(check, place, is_hanging, source, f"{answer:.200}" or "no answer")
        return
    yield Measurement(check, place, False, source, "answers")
    if mount.kind in IMAGES or "ro" in mount.options:
        return
    space, inodes = numbers
    yield Measurement("mount_space_used", place, space, source, "" if space is not None else "it has no size")
    if inodes is not None:
        yield Measurement("mount_inodes_used", place, inodes, source)


def parse_space(text: str) -> tuple[float | None, float | None] | None:
    """Return the percentages of used space and used inodes of STAT's answer; None of either that has no limit.

    Space is what users who are not root can use, as `df` shows it.
    """
    fields = [natural(word) for word in text.split()]
    if len(fields) != 5 or None in fields:
        return None
    total, free, available, inodes, free_inodes = (int(field or 0) for field in fields)
    used, nodes_used = max(0, total - free), max(0, inodes - free_inodes)
    space = 100.0 * used / (used + available) if used + available else None
    return space, 100.0 * nodes_used / inodes if inodes else None
