# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine follows from a crashed server, or not: each reason why not, alone."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.follow import (
    CrashedServer,
    FilePlace,
    check,
    needed_paths,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

DISK = "/shared/train-01.qcow2"


def found(shared=(), answers=False, bmc="10.9.1.1", exists=True, file_system="nfs4", **changes):
    """Return the severity and subject of each finding of a request that can follow without the changes."""
    request = {
        "name": "train-01",
        "memory_mib": 1024,
        "gpus": {"count": 8},
        "nics": {"per_gpu": 1},
        "disks": [{"path": DISK}],
        "interfaces": [{"type": "bridge", "source": "br0"}],
        "autostart": False,
        **changes,
    }
    (spec,) = parse_specs([request])
    places = {path: FilePlace(path, exists, file_system) for path in needed_paths(spec)}
    return [(item.severity, item.what) for item in check(spec, CrashedServer("gpu1", answers, bmc), places, shared)]


def test_it_follows_with_shared_disks_and_a_bridge():
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"answers": True}, "gpu1"),
        ({"bmc": ""}, "BMC"),
        ({"gpus": {"addresses": ["0000:17:00.0"]}}, "0000:17:00.0"),
        ({"nics": {"addresses": ["0000:18:00.0"]}}, "0000:18:00.0"),
        ({"nvme": {"count": 2}}, "NVMe"),
        ({"exists": False}, DISK),
        ({"file_system": "ext4"}, "ext4"),
        ({"file_system": ""}, "not known"),
        ({"file_system": "xfs", "shared": ["/share"]}, "xfs"),
        ({"interfaces": [{"source": "default"}]}, "default"),
        ({"disks": [{"path": "/dev/mapper/train-01"}], "shared": ["/dev/mapper"], "autostart": True}, "autostart"),
        ({"boot": {"kernel": "/boot/vmlinuz"}, "file_system": "ext4", "shared": [DISK]}, "/boot/vmlinuz"),
        ({"disks": [{"path": DISK, "base": "/images/base"}], "file_system": "xfs", "shared": [DISK]}, "/images/base"),
    ],
)
def test_what_cannot_follow_is_refused(changes, subject):
    ((severity, what),) = found(**changes)
    assert severity == REFUSE
    assert subject in what


@pytest.mark.parametrize("shared", ["/shared", "/shared/", DISK])
def test_the_site_can_say_what_is_shared(shared):
    assert found(file_system="xfs", shared=[shared]) == []


def test_a_server_that_would_start_it_again_is_named():
    ((severity, what),) = found(autostart=True)
    assert severity == WARN
    assert "gpu1" in what
