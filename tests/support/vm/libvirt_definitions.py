# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The definition of a plan that libvirt wrote on the emulated server, and the wanted definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machines import plan

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

FILES = Path(__file__).parents[2] / "unit/vm/libvirt/xml"


REQUEST: dict[str, Any] = {
    "name": "vm1",
    "memory_mib": 1024,
    "huge_page_mib": 2,
    "vcpus": 2,
    "firmware": "bios",
    "disks": [],
    "interfaces": [{"type": "user"}],
    "boot": {
        "kernel": "/boot/vmlinuz-6.1.0-56-amd64",
        "initrd": "/boot/initrd.img-6.1.0-56-amd64",
        "arguments": "console=ttyS0",
    },
}


def libvirts(name: str) -> str:
    return (FILES / f"{name}.xml").read_text(encoding="utf-8")


def wanted(**changes: Any) -> str:
    return render(plan(**{**REQUEST, **changes}))
