# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The servers of a play, by their backend and by the comparison with their roles."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter import gpu_servers, gpu_servers_to_compare

NAMES = ["a", "b", "c", "d"]
NOBODY = ["all:!all"]


def compared(host=None, vm=None, **more):
    return {"__gpu_server_compared": {"held": {"gpu_host": host, "gpu_vm": vm}}, **more}


HOSTS = {
    "a": compared(True, False),
    "b": compared(False, True, gpu_vm_backend="vsphere"),
    "c": {"gpu_vm_backend": "libvirt", "__gpu_server_compared": None},
}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, NAMES),
        ({"backend": "libvirt"}, ["a", "c", "d"]),
        ({"backend": "vsphere"}, ["b"]),
        ({"backend": "other"}, NOBODY),
        ({"role": "gpu_host", "held": True}, ["a"]),
        ({"role": "gpu_host", "held": False}, ["b", "c", "d"]),
        ({"role": "gpu_vm", "held": True}, ["b"]),
        ({"role": "gpu_vm", "held": True, "backend": "libvirt"}, NOBODY),
    ],
)
def test_servers_are_chosen_by_backend_and_role(given, chosen):
    assert gpu_servers.FilterModule().filters()["gpu_servers"](NAMES, HOSTS, **given) == chosen


@pytest.mark.parametrize(
    ("hosts", "chosen"),
    [
        # Nothing was changed: a comparison has nothing to find.
        ({"a": compared(True), "b": compared(True)}, ["c", "d"]),
        # One host is changed: the others, which were left alone, are compared with it.
        ({"a": compared(True), "b": compared(False), "c": compared(True), "d": compared(False)}, ["a", "c"]),
        # The roles change no host of vSphere.
        (
            {name: compared(name != "b", gpu_vm_backend="vsphere") for name in NAMES},
            NOBODY,
        ),
        (
            {"a": compared(False), "b": compared(False, gpu_vm_backend="vsphere"), "c": compared(False)},
            ["b", "d"],
        ),
        ({name: compared(True) for name in NAMES}, NOBODY),
        ({"a": {"__gpu_server_compared": None}, "b": {"__gpu_server_compared": {"held": None}}}, NAMES),
    ],
)
def test_servers_are_compared_unless_the_roles_change_them_or_nothing(hosts, chosen):
    assert gpu_servers_to_compare.FilterModule().filters()["gpu_servers_to_compare"](NAMES, hosts) == chosen
