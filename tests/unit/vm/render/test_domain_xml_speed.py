# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings for speed: they are in the XML only if they are requested, and are compared by meaning."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from machines import lab
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import acted_on, differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

PLAIN = {
    "name": "vm",
    "memory_mib": 2048,
    "huge_page_mib": 1024,
    "gpus": {"count": 2},
    "disks": [{"path": "/a.qcow2"}, {"path": "/dev/vg/b", "format": "raw"}],
    "interfaces": [{"source": "default"}],
}


def xml(**given):
    (plan,) = plan_domains(lab(), parse_specs([{**PLAIN, **given}]))
    return render(plan)


def test_the_xml_has_no_elements_of_unset_speed_settings():
    root = ET.fromstring(xml())
    for path in ("clock", "features/kvm", "memoryBacking/allocation", "devices/rng", "devices/hostdev/rom"):
        assert root.find(path) is None, path
    assert root.find("devices/interface/driver") is None
    assert root.find("devices/disk/driver").attrib == {"name": "qemu", "type": "qcow2", "iothread": "1"}


# The setting, the path and attributes of its element, and the path that differs from a domain without it.
SETTINGS = {
    "memory_threads": (8, "memoryBacking/allocation", {"mode": "immediate", "threads": "8"}),
    "hpet": (False, "clock/timer", {"name": "hpet", "present": "no"}),
    "kvm_dedicated": (True, "features/kvm/hint-dedicated", {"state": "on"}),
    "rom_bar": (False, "devices/hostdev/rom", {"bar": "off"}),
    "rng": (True, "devices/rng/backend", {"model": "random"}),
    "interfaces": ([{"source": "default", "queues": 4}], "devices/interface/driver", {"name": "vhost", "queues": "4"}),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_speed_setting_is_in_the_xml_and_compared_in_both_directions(setting):
    value, path, attributes = SETTINGS[setting]
    with_it = xml(**{setting: value})
    assert ET.fromstring(with_it).find(path).attrib == attributes
    # The domain is defined again if a setting is added or removed. An rng has a port, so other ports move.
    assert acted_on(differences(with_it, xml()))
    assert acted_on(differences(xml(), with_it))


def test_an_rng_does_not_change_the_addresses_of_disks():
    of_disks = [
        [disk.find("address").attrib for disk in ET.fromstring(one).findall("devices/disk")]
        for one in (xml(), xml(rng=True))
    ]
    assert of_disks[0] == of_disks[1]


def test_cache_and_io_of_disks_are_in_the_xml():
    disks = [
        {"path": "/a", "cache": "none", "io": "io_uring"},
        {"path": "/dev/vg/b", "format": "raw", "cache": "directsync"},
        {"path": "/dev/vg/c", "format": "raw", "io": "threads"},
    ]
    drivers = [driver.attrib for driver in ET.fromstring(xml(disks=disks)).findall("devices/disk/driver")]
    assert [(driver["cache"], driver["io"]) for driver in drivers] == [
        ("none", "io_uring"),
        ("directsync", "native"),
        ("none", "threads"),
    ]


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"disks": [{"path": "/a", "io": "native"}]}, ["disk /a", "io native", "cache none or directsync"]),
        ({"disks": [{"path": "/dev/a", "cache": "writeback"}]}, ["/dev/a", "io native", "cache"]),
        ({"interfaces": [{"type": "user", "queues": 2}]}, ["type user", "one queue"]),
        ({"kvm_dedicated": True, "pin_cpus": False}, ["kvm_dedicated", "CPUs"]),
        ({"kvm_dedicated": True, "accelerator": "qemu"}, ["kvm_dedicated", "KVM"]),
        ({"memory_threads": -1}, ["memory_threads", "-1", "4096"]),
        ({"interfaces": [{"source": "a", "queues": 0}]}, ["interfaces[0]", "queues", "0", "256"]),
    ],
)
def test_invalid_or_conflicting_settings_are_refused(given, facts):
    with raises(DomainError, *facts):
        parse_specs([{**PLAIN, **given}])
