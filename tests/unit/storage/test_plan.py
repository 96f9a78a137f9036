# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice of drives of stripes, from readings of hosts: nothing is lost, and every half-made array is ended."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import (
    MAKING,
    Device,
    Signature,
    StorageSeen,
    StripedArray,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import LocalStorage
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.superblock import XfsSuperblock

ADDRESSES = ("0000:10:00.0", "0000:11:00.0")
MEMBER = Signature("linux_raid_member", "any:scratch", "array")
HELD_BY_MD = ("it is part of /dev/md127 (raid0)",)
XFS = XfsSuperblock("scratch", "uuid-1", True, 524288, 1048576)


def drives(*signatures, uses=()):
    return tuple(
        Device(f"nvme{number}n1", f"/dev/nvme{number}n1", signature, None, uses if signature else (), address, 0)
        for number, (signature, address) in enumerate(zip(signatures, (*ADDRESSES, "0000:12:00.0")))
    )


def array(signature=None, xfs=None, level="raid0", members=("nvme0n1", "nvme1n1")):
    return StripedArray(Device("md127", "/dev/md127", signature, xfs), frozenset(members), level, 524288)


def action(found, *arrays, mounted=None, made=None, keep=True):
    seen = StorageSeen(found, arrays, mounted or {}, made or {}, dict.fromkeys(ADDRESSES, 0))
    (system,) = plan.plan([LocalStorage("scratch", "/scratch", ADDRESSES, count=2, keep=keep)], seen)
    return system.action


MEMBERS = drives(MEMBER, MEMBER, uses=HELD_BY_MD)
MADE_XFS = array(Signature("xfs", "scratch", "uuid-1"), XFS)


def test_blank_drives_are_striped():
    assert action(drives(None, None)) == plan.MAKE


def test_an_array_with_its_file_system_is_used_on():
    assert action(MEMBERS, MADE_XFS) == plan.HELD
    assert action(MEMBERS, MADE_XFS, keep=False) == plan.MAKE
    assert action(MEMBERS, MADE_XFS, keep=False, made={"scratch": "uuid-1"}) == plan.HELD
    assert action(MEMBERS, MADE_XFS, keep=False, mounted={"md127": "/scratch"}) == plan.HELD


def test_an_array_that_does_not_run_is_started():
    assert action(drives(MEMBER, MEMBER)) == plan.ASSEMBLE
    assert action(drives(MEMBER, MEMBER), array(level="")) == plan.ASSEMBLE
    # Whether its file system is this system's is seen when it runs; where none was made it is not needed.
    assert action(drives(MEMBER, MEMBER), keep=False, made={"scratch": "uuid-1"}) == plan.ASSEMBLE
    assert action(drives(MEMBER, MEMBER), keep=False) == plan.MAKE


def test_what_a_killed_run_left_is_ended():
    assert action(MEMBERS, array()) == plan.FORMAT
    assert action(drives(MEMBER, None), made={"scratch": MAKING}) == plan.MAKE
    assert action(MEMBERS, MADE_XFS, made={"scratch": MAKING}) == plan.MAKE
    half = array(Signature("xfs", "scratch", "uuid-1"), XfsSuperblock("scratch", "uuid-1", False, 0, 0))
    assert action(MEMBERS, half) == plan.MAKE


def test_a_stripe_that_lost_a_drive_is_refused_or_wiped_by_policy():
    with raises(HostError, "1 of its 2 drives"):
        action(drives(MEMBER, None))
    assert action(drives(MEMBER, None), keep=False) == plan.MAKE
    other = Signature("linux_raid_member", "any:scratch", "another array")
    with pytest.raises(HostError):
        action(drives(MEMBER, other))


@pytest.mark.parametrize(
    ("found", "arrays"),
    [
        (drives(Signature("linux_raid_member", "any:other", "a"), None), ()),
        (drives(Signature("linux_raid_member", "host:scratch", "a"), MEMBER), ()),
        (drives(Signature("LVM2_member"), None), ()),
        (drives(Signature("xfs", "scratch", "u"), None), ()),
        (MEMBERS, (array(level="raid1"),)),
        (MEMBERS, (array(Signature("ext4", "scratch", "u")),)),
        (MEMBERS, (array(Signature("xfs", "other", "u"), XFS),)),
        (MEMBERS, (array(members=("nvme0n1", "nvme1n1", "nvme9n1")),)),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_what_is_somebody_elses_is_refused(found, arrays, keep):
    with pytest.raises(HostError):
        action(found, *arrays, keep=keep)


def test_two_namespaces_of_a_drive_are_refused():
    twice = (*drives(None, None), Device("nvme0n2", "/dev/nvme0n2", None, None, (), ADDRESSES[0], 0))
    with raises(HostError, ADDRESSES[0], "2 namespaces"):
        action(twice)


def test_named_drives_are_not_chosen_for_a_node():
    seen = StorageSeen(drives(None, None, None), (), {}, {}, dict.fromkeys((*ADDRESSES, "0000:12:00.0"), 0))
    of_node = LocalStorage("cache", "/cache", numa_node=0, count=1)
    systems = plan.plan([of_node, LocalStorage("scratch", "/scratch", ADDRESSES, count=2)], seen)
    assert [drive.address for system in systems for drive in system.drives] == ["0000:12:00.0", *ADDRESSES]
    with raises(HostError, "0 drives", "taken"):
        plan.plan([of_node, LocalStorage("scratch", "/scratch", (*ADDRESSES, "0000:12:00.0"), count=3)], seen)
