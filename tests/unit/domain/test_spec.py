# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import parse_specs


def test_addresses_are_made_whole() -> None:
    spec = parse_specs([{"name": "a", "gpus": {"addresses": ["3B:00.0", "0000:5e:00.1"]}}])[0]
    assert spec.gpus.addresses == ["0000:3b:00.0", "0000:5e:00.1"]


def test_none_is_not_given() -> None:
    spec = parse_specs([{"name": "a", "vcpus": None, "gpus": None, "disks": None, "huge_page_mib": None}])[0]
    assert (spec.vcpus, spec.gpus.count, spec.disks, spec.huge_page_mib) == (None, 0, [], 1024)


def test_uuid_and_macs_come_from_the_name() -> None:
    one, other = parse_specs([{"name": name, "interfaces": [{"type": "user"}] * 2} for name in ("a", "b")])
    again = parse_specs([{"name": "a", "interfaces": [{"type": "user"}] * 2}])[0]
    assert (again.uuid, again.mac(0), again.mac(1)) == (one.uuid, one.mac(0), one.mac(1))
    assert len({one.uuid, other.uuid}) == 2
    assert len({one.mac(0), one.mac(1), other.mac(0), other.mac(1)}) == 4
    assert one.mac(0).startswith("52:54:00:")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"name": "a b"}, "virtual machine 'a b': not a name"),
        ({"name": None}, "virtual machine None: not a name"),
        ({"name": "a", "memory": 3}, "unknown setting 'memory'"),
        ({"name": "a", "gpus": {"number": 3}}, "gpus: unknown setting 'number'"),
        ({"name": "a", "gpus": {"count": -1}}, "gpus.count -1 is not a whole number of at least 0"),
        ({"name": "a", "gpus": {"addresses": ["3b.0"]}}, "gpus: '3b.0' is not a PCI address"),
        ({"name": "a", "nics": {"addresses": ["xx:00.0"]}}, "nics: 'xx:00.0' is not a PCI address"),
        ({"name": "a", "nics": {"functions": "sf"}}, "nics.functions 'sf' is unknown; there are vf, pf"),
        ({"name": "a", "vcpus": 0}, "vcpus 0 is not a whole number of at least 1"),
        ({"name": "a", "huge_page_mib": 3}, "huge_page_mib 3 is no size of a huge page"),
        ({"name": "a", "mmio_window_mib": 1000}, "mmio_window_mib 1000 is not a power of two"),
        ({"name": "a", "accelerator": "xen"}, "accelerator 'xen' is unknown; there are auto, kvm, qemu"),
        ({"name": "a", "physical_address_bits": "46bit"}, "physical_address_bits '46bit' is unknown"),
        ({"name": "a", "physical_address_bits": "99"}, "physical_address_bits '99' is unknown"),
        (
            {"name": "a", "accelerator": "qemu", "physical_address_bits": "passthrough"},
            "physical_address_bits passthrough needs KVM",
        ),
        ({"name": "a", "disks": [{"path": "a.img"}]}, "disk 'a.img': not an absolute path"),
        ({"name": "a", "disks": [{}]}, "disks[0]"),
        ({"name": "a", "disks": [{"path": "/a", "base": "b"}]}, "disk 'b': not an absolute path"),
        ({"name": "a", "disks": [{"path": "/a", "base": "/b", "format": "raw"}]}, "only a writable qcow2 file"),
        ({"name": "a", "disks": [{"path": "/a", "base": "/b", "base_format": "vdi"}]}, "base_format 'vdi' is unknown"),
        ({"name": "a", "disks": [{"path": "/a", "size_mib": 1}]}, "size_mib is for one that is made from a base"),
        ({"name": "a", "disks": [{"path": "/a", "format": "vdi"}]}, "format 'vdi' is unknown"),
        ({"name": "a", "interfaces": [{"type": "network"}]}, "an interface of type network needs a source"),
        ({"name": "a", "interfaces": [{"type": "user", "source": "x"}]}, "an interface of type user has no source"),
        ({"name": "a", "interfaces": [{"type": "user", "mac": "1"}]}, "'1' is not a MAC"),
        ({"name": "a", "boot": {"initrd": "/i"}}, "boot"),
    ],
)
def test_one_clear_error(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(DomainError) as caught:
        parse_specs([wish])
    assert message in str(caught.value)
    assert str(caught.value).startswith("virtual machine ")


def test_a_name_is_listed_once() -> None:
    with pytest.raises(DomainError, match="virtual machine a: listed twice"):
        parse_specs([{"name": "a"}, {"name": "b"}, {"name": "a"}])


def test_a_device_is_given_once() -> None:
    address = "0000:3b:00.0"
    with pytest.raises(DomainError, match=f"virtual machine a: PCI device {address} is given to it twice"):
        parse_specs([{"name": "a", "gpus": {"addresses": [address]}, "nics": {"addresses": ["3b:00.0"]}}])
    with pytest.raises(DomainError, match=f"virtual machine b: .*{address} is given to it and to virtual machine a"):
        parse_specs([{"name": name, "gpus": {"addresses": [address]}} for name in "ab"])


def test_a_mac_is_given_once() -> None:
    interface = {"type": "user", "mac": "52:54:00:00:00:01"}
    with pytest.raises(DomainError, match="virtual machine b: MAC 52:54:00:00:00:01 is also that of a"):
        parse_specs([{"name": name, "interfaces": [interface]} for name in "ab"])
