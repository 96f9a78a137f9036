# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a GPU node to its whole wanted state, or compare it in check mode.

The caller installs packages, builds modules and reboots. If any are missing, only the software's files are written.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node import pci, services
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot, service
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import ensure as software
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request as r
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel.kernel_arguments import IOMMU_MODES

PARTS = ("software", "settings", "pci")
# The options that the service applies again at every boot.
AT_BOOT = ("mig_off", "clocks_mhz", "ring_entries", "rails_on_one_subnet")


def options() -> dict[str, Any]:
    """Return the options of the module gpu_node as an argument_spec."""
    texts: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    repository = {
        "name": {"type": "str", "required": True},
        "url": {"type": "str", "required": True},
        "suite": {"type": "str", "default": "/"},
        "components": texts,
        # This is a public key.
        "key": {"type": "str", "required": True, "no_log": False},
        "fingerprints": {"type": "list", "elements": "str", "required": True},
    }
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "parts": {"type": "list", "elements": "str", "choices": list(PARTS), "default": ["software", "settings"]},
        "driver": {"type": "str"},
        "modules": {"type": "str", "choices": [r.DKMS, r.PRECOMPILED], "default": r.DKMS},
        "gpudirect": {"type": "str", "choices": [r.DMABUF, r.PEERMEM, r.NONE], "default": r.DMABUF},
        "rdma": {"type": "str", "choices": [r.INBOX, r.DOCA], "default": r.INBOX},
        "fabric": {"type": "str", "choices": [r.AUTO, r.NONE, r.NVSWITCH, r.NVLINK5], "default": r.AUTO},
        "dcgm": {"type": "bool", "default": True},
        "storage": {"type": "str", "choices": list(r.STORAGE), "default": r.NONE},
        "storage_settings": {"type": "dict", "default": {}},
        "extra_packages": texts,
        "rails_on_one_subnet": {"type": "bool", "default": False},
        "signing": {"type": "bool", "default": False},
        "repositories": {"type": "list", "elements": "dict", "default": [], "options": repository},
        "mig_off": {"type": "bool", "default": True},
        "clocks_mhz": {"type": "list", "elements": "int", "default": []},
        "ring_entries": {"type": "int", "default": 0},
        "iommu": {"type": "str", "choices": [*IOMMU_MODES, pci.UNCHANGED], "default": pci.UNCHANGED},
        "acs": {"type": "str", "choices": ["bare_metal", pci.UNCHANGED], "default": pci.UNCHANGED},
        "max_read_request_bytes": {"type": "int", "default": 0},
    }


def ensure(system: System, node: dict[str, Any], in_image: bool, check: bool = False) -> Outcome:
    """Make ``node``, checked by ``options``, the state of the system. Raises HostError before anything is written.

    Facts: those of ``software.ensure``, of ``boot.ensure`` and ``unit.ensure``, ``notes`` and ``reboot_required``.
    """
    if node["state"] == "absent":
        outcome = unit.remove(system, service.SERVICE, check)
        return outcome.and_then(software.remove(system, in_image, check))
    parts, at_boot = node["parts"], {name: node[name] for name in AT_BOOT}
    settings = boot.read(at_boot)
    outcome = Outcome(facts={"notes": [], "reboot_required": False})
    if "software" in parts:
        outcome = software.ensure(system, node, in_image, check)
        facts = outcome.facts
        if facts["reboot_required"] and facts["loaded"] != facts["driver"]:
            loaded = facts["loaded"] or "none"
            outcome.pending.append(f"the driver {facts['driver']} is to be loaded, and {loaded} is")
        if facts["install"] or facts["modules_missing"]:
            return outcome
        # Each service needs the driver, which may not be loaded before a reboot.
        start = not in_image and facts["loaded"] == facts["driver"]
        outcome = outcome.and_then(services.ensure(system, facts["services"], start, in_image, check))
    if "settings" in parts:
        outcome = outcome.and_then(unit.ensure(system, service.SERVICE, at_boot, check, running=not in_image))
        if not in_image:
            outcome = outcome.and_then(boot.ensure(system, settings, check))
    if "pci" in parts:
        bus = pci.ensure(system, node, in_image, check)
        bus.facts["notes"] = outcome.facts["notes"] + bus.facts["notes"]
        bus.facts["reboot_required"] |= outcome.facts["reboot_required"]
        outcome = outcome.and_then(bus)
    return outcome
