# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The results of modules on hosts that do not exist (absent_host.py): check mode on a host without any setting."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from eight_gpus import big
from sonic_configs import default_config

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity.identity import EK_TEMPLATE
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings, pack
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.whole_host import requests
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

Parameters = dict[str, Any]
VFS_OF_A_PORT = 1


def server() -> Host:
    """Return a server with 1.5 TiB, 8 GPUs and 4 dual-port NICs with a virtual function on each port."""
    host = big()
    for node in host.numa_nodes:
        node.memory_bytes = 768 << 30
    for nic in [function for function in host.functions if function.kind == "nic"]:
        host.functions.remove(nic)
        for port in (0, 1):
            values = {**vars(nic), "vendor_id": 0x15B3, "device_id": 0x101D, "iommu_group": None}
            address = nic.address[:-1] + str(port)
            host.functions.append(Function(**{**values, "address": address, "sriov": Sriov(8, VFS_OF_A_PORT)}))
            virtual = {**values, "address": nic.address[:-1] + str(port + 2), "device_id": 0x101E}
            host.functions.append(Function(**{**virtual, "physical_function": address}))
    return host


def domains(given: Parameters) -> list[dict[str, Any]]:
    """Return the requested virtual machines, planned on the server."""
    host = server()
    plans = plan_domains(host, parse_specs(requests(given, host)))
    return [
        {
            "name": plan.name,
            "exists": False,
            "state_before": "absent",
            "state": "absent",
            "autostart": False,
            "uuid": "",
            "changed": True,
            "restart_required": False,
            "live_differences": [],
            "differences": [],
            "plan": plan.to_dict(),
        }
        for plan in plans
    ]


def command(given: Parameters) -> dict[str, Any]:
    """Return the output of the programs that playbooks run in check mode as well."""
    line = " ".join(given["argv"] or []) or given.get("_raw_params") or ""
    output = json.dumps(default_config(PORTS)) if "sonic-cfggen" in line else ""
    if "address show to" in line:
        output = "2: eth0 inet " + line.split()[-1]
    return {"changed": False, "rc": 0, "stdout": output, "stdout_lines": output.splitlines(), "stderr": ""}


def nics(given: Parameters) -> dict[str, Any]:
    """Return NICs without any setting, and check the policy requested for them."""
    if given.get("policy") is not None and given["nics"] is not None:
        ensure.settings(given["policy"], given["nics"], given["rdma_class"])
    state = {"nics": {name: ensure.shown(SeenNic(Nic(name, name))) for name in given["nics"] or []}, "saved": None}
    nccl = [{"name": "NCCL", "tos": 106, "queue_pairs": 16}]
    return {**state, "cannot": {}, "before": state, "applications": nccl}


def settings_of_boot(given: Parameters) -> dict[str, Any]:
    """Report that each setting differs, and check the settings' form."""
    concerns.check_form(concerns.checked({name: value for name, value in given.items() if name != "now"}))
    return {**WAITS, "outcomes": {}, "diff": {"before": {}, "after": {}}}


def host(given: Parameters) -> dict[str, Any]:
    """Report that each setting differs, and check the settings' form."""
    now_and_at_boot.check_form(wanted.settings({**wanted.defaults(), **given}))
    lists: dict[str, Any] = {"missing": [], "notes": [], "failures": [], "reboot_due": False, "outcomes": {}}
    return {**WAITS, **lists, "diff": {"before": {}, "after": {"a setting": "missing"}}}


def manager(given: Parameters) -> dict[str, Any]:
    """Report that opensm would get its files; those of the host must be there."""
    return {"changed": given["config"] in given["files"], "needs_restart": [], "manager": ""}


def image(given: Parameters) -> dict[str, Any]:
    """Return the images that would be built, and check their layers."""
    read_images(given["images"], given["layers"])
    return {"changed": True, "images": []}


def stored(_given: Parameters) -> dict[str, Any]:
    """Return a store with one image, which the channel stable names."""
    layers = {"layers": ["base"], "kernel": "6.1", "size_bytes": 1, "kept_for": ["channel stable"], "problem": None}
    return {
        "images": [{"digest": DIGEST, "name": "gpu-node", **layers}],
        "channels": [{"name": "stable", "digest": DIGEST, "history": []}],
        "missing": [],
        "statement": 0,
        "files": [],
        "now_s": 0,
        "blobs": 1,
        "size_bytes": 1,
        "removed": [],
        "freed_bytes": 0,
    }


def content(given: Parameters) -> dict[str, Any]:
    """Return the content of a file."""
    manifest = {"name": "gpu-node", "kernel_arguments": ["console=ttyS0"], "layers": []}
    contents = {"current": DIGEST, "manifest.json": json.dumps(manifest), "gc_thresh3": "1024"}
    text = next((text for part, text in contents.items() if part in given["src"].split("/")), "")
    return {"content": base64.b64encode(text.encode()).decode(), "encoding": "base64"}


def fabric_read(given: Parameters) -> dict[str, Any]:
    """Return what ib_fabric_info reads on a host without the files of a subnet manager."""
    content = PORTS_READ if given.get("part") == "ports" else NOT_READ
    return {"path": given["path"], "content": content, "unread": []}


NOT_READ = base64.b64encode(pack(ManagerReadings(subnet=False))).decode()
NO_COUNTERS = "## Summary: 0 nodes checked, 0 bad nodes found\n"
PORTS_READ = base64.b64encode(pack(ManagerReadings(True, counters=NO_COUNTERS, read_at_s=1.0))).decode()
PORTS = tuple(f"Ethernet{number}" for number in range(0, 512, 2))  # of Vela's leaves and spines
DIGEST = "0" * 64
PRESENT = ("/sys/class/net/", "/etc/sailloft/image", "/usr/lib/ipxe/")  # parts of the paths of files that exist
EK = (len(EK_TEMPLATE) + 256).to_bytes(2, "big") + EK_TEMPLATE + b"\xa7" * 256
NOTHING: dict[str, Any] = {"changed": False}
WAITS = {"pending": [], "reboot_required": False, "failures": [], "unknown": [], "changed": True}
SOFTWARE = {
    "package_manager": "apt", "install": [], "notes": [], "services": [], "modules_missing": [], "driver": "1",
    "loaded": "1", "reboot_required": False, "signing_key": {}, "kernels": [], "fabric": "none", "remove": [],
    "pending": [],
}  # fmt: skip
NOT_BOOTED = {
    "image": None, "reason": "it was not booted from an image", "report": None, "uptime_s": 60.0, "boot_id": "1",
    "kernel": "6.1", "command_line": "", "arguments": [], "verity_possible": True, "systemd": {}, "failed_units": [],
}  # fmt: skip
ANSWERS: dict[str, Callable[[Parameters], dict[str, Any]]] = {
    "bios_info": lambda _given: {"claims": [], "missing": []},
    "cabling_info": lambda _given: {"neighbours": {}, "speeds": {}, "infiniband": None},
    "command": command,
    "copy": lambda _given: {"changed": True},
    "gpu_acceptance_run": lambda given: {"tool": given["tool"], "state": "not measured", "why": "it is not there"},
    "gpu_domain": lambda given: {"changed": True, "restart_required": False, "domains": domains(given)},
    "gpu_domain_info": lambda given: {"domains": domains(given)},
    "gpu_host_boot": settings_of_boot,
    "gpu_host": host,
    "gpu_node": lambda _given: SOFTWARE,
    "host_guests_info": lambda _given: {"guests": [], "words": []},
    "host_topology_info": lambda _given: {"topology": server().to_dict(), "recording": "{}"},
    "ib_fabric_info": fabric_read,
    "ib_host": lambda _given: WAITS,
    "ib_manager": manager,
    "kernel_arguments": lambda _given: {**WAITS, "acs": {"not_taken": []}},
    "nic_firmware": lambda _given: {**WAITS, "devices": {}, "diff": {"before": {}, "after": {}}},
    "node_boot_hold": lambda _given: {"conflicts": []},
    "node_boot_statement": lambda _given: {"text": "", "sequence": 1, "nodes": 0, "files": []},
    "node_identity_info": lambda _given: {"ek": base64.b64encode(EK).decode()},
    "node_identity": lambda _given: {"written": [], "removed": [], "others": [], "withheld": [], "bundles": {}},
    "node_image": image,
    "node_image_info": lambda _given: NOT_BOOTED,
    "node_image_store": stored,
    "roce_host": nics,
    "roce_nic_info": nics,
    "setup": lambda _given: {"ansible_facts": {"os_family": "Debian", "pkg_mgr": "apt"}},
    "slurp": content,
    "stat": lambda given: {"stat": {"exists": given["path"].startswith(PRESENT)}},
}


def answer(module: str, given: Parameters) -> dict[str, Any]:
    """Return the result of a module."""
    try:
        return {**NOTHING, **ANSWERS.get(module, lambda _given: {})(given)}
    except SailloftError as error:
        return {"failed": True, "msg": str(error)}
