# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The XML of any spec is valid in libvirt's own schema (RELAX NG, of the package libvirt-common)."""

from __future__ import annotations

import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

from domain_schema import assert_valid, needs_schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import hypervisor, lab

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    ACCELERATORS,
    DISK_CACHES,
    DISK_FORMATS,
    DISK_IO,
    FIRMWARES,
    FUNCTIONS,
    DomainSpec,
)

pytestmark = needs_schema

# Any character, including those that XML and libvirt cannot represent, and those used in paths.
CHARACTERS = st.one_of(st.characters(), st.sampled_from("/ab.-_:,'\"&<>]"))
TEXT = st.text(CHARACTERS, min_size=1, max_size=12)
PATHS = TEXT.map(lambda name: f"/{name}")
MACS = st.lists(st.integers(0, 255), min_size=6, max_size=6).map(
    lambda octets: ":".join(f"{one:02x}" for one in octets)
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


DISKS = st.fixed_dictionaries(
    {"path": PATHS},
    optional={
        "format": st.sampled_from(DISK_FORMATS),
        "base": maybe(PATHS),
        "base_format": st.sampled_from(DISK_FORMATS),
        "size_mib": st.integers(0, 4096),
        "cache": st.sampled_from(DISK_CACHES),
        "io": st.sampled_from(DISK_IO),
    },
)
INTERFACES = st.one_of(
    st.fixed_dictionaries({"type": st.just("user")}, optional={"mac": maybe(MACS)}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(("network", "bridge")), "source": TEXT},
        optional={"mac": maybe(MACS), "queues": st.integers(1, 8)},
    ),
)
# Every setting of a spec, with values of which most are accepted; numa_nodes and devices are the lab's.
ADDRESSES = st.fixed_dictionaries({}, optional={"addresses": st.just([])})
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(kinds.SETTINGS.values(), ADDRESSES),
    **{item.name: st.booleans() for item in fields(DomainSpec) if isinstance(item.default, bool)},
    "memory_mib": st.sampled_from((1024, 2048, 4096, 3)),
    "gpus": st.fixed_dictionaries({}, optional={"count": st.integers(0, 2)}),
    "nics": st.fixed_dictionaries({}, optional={"per_gpu": st.integers(0, 1), "functions": st.sampled_from(FUNCTIONS)}),
    "vcpus": maybe(st.integers(1, 6)),
    "huge_page_mib": st.sampled_from((0, 2, 1024)),
    "memory_threads": st.integers(0, 16),
    "host_cores_per_socket": st.integers(0, 2),
    "iothreads": st.integers(0, 4),
    "mirror_topology": st.sampled_from((True, False, "auto")),
    "firmware": st.sampled_from(FIRMWARES),
    "machine": st.sampled_from(("q35", "pc-q35-7.2", "pc-q35-rhel9.4.0", "pc-q35-noble")),
    "accelerator": st.sampled_from(ACCELERATORS),
    "physical_address_bits": st.sampled_from(("auto", "passthrough", "off", "39", "46", "52")),
    "numa_nodes": st.sampled_from(([], ["all"], ["0"], ["1"], ["0", "1"])),
    "mmio_window_mib": st.sampled_from((0, 65536, 1 << 20)),
    "disks": st.lists(DISKS, max_size=3),
    "interfaces": st.lists(INTERFACES, max_size=3),
    "boot": maybe(
        st.fixed_dictionaries({"kernel": PATHS}, optional={"initrd": maybe(PATHS), "arguments": maybe(TEXT)})
    ),
    "console_log": maybe(PATHS),
}
MEMORY = SETTINGS.pop("memory_mib")
REQUESTS = st.fixed_dictionaries({"name": st.just("gpu-vm"), "memory_mib": MEMORY}, optional=SETTINGS)


def test_every_setting_is_tried() -> None:
    assert {"name", "memory_mib", *SETTINGS} == set(DomainSpec.__dataclass_fields__)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS, st.booleans())
def test_the_xml_of_an_accepted_request_is_valid(asked: dict[str, Any], asked_libvirt: bool) -> None:
    try:
        (made,) = plan_domains(lab(), parse_specs([asked]), hypervisor() if asked_libvirt else None)
    except DomainError:
        return
    xml = render(made)
    assert_valid(xml)
    # The XML is unchanged after it is written as a file and read back.
    assert differences(xml, xml) == []


def test_virt_xml_validate_accepts_valid_and_refuses_invalid_xml(tmp_path: Path) -> None:
    """The tool is libvirt's own validator."""
    (made,) = plan_domains(lab(), parse_specs([{"name": "gpu-vm", "memory_mib": 2048, "gpus": {"count": 2}}]))
    (tmp_path / "good.xml").write_text(render(made), encoding="utf-8")
    (tmp_path / "bad.xml").write_text(render(made).replace("memballoon", "baloon"), encoding="utf-8")
    codes = [
        subprocess.run(["virt-xml-validate", tmp_path / name, "domain"], capture_output=True, check=False).returncode
        for name in ("good.xml", "bad.xml")
    ]
    assert codes[0] == 0
    assert codes[1] != 0
