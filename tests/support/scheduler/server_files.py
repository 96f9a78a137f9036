# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a recorded GPU server below a directory: PCI tree, RDMA devices, and those of NVIDIA's driver."""

from __future__ import annotations

import copy
import os
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

RECORDINGS = Path(__file__).parents[2] / "recordings"
# NUMA nodes alone pair its GPUs with NICs of other switches; two of its NICs are below one switch.
SUPERMICRO = "supermicro-4029gp-ve"


def with_rdma(name: str = SUPERMICRO) -> Host:
    """Return a recorded server whose NICs have the RDMA devices mlx5_N, the last address first.

    Names that follow the addresses would hide an order by addresses. GPUs are NVIDIA's.
    """
    host = copy.deepcopy(read_recording(str(RECORDINGS / f"{name}.json")))
    nics = sorted((one for one in host.functions if one.kind == "nic"), key=lambda one: one.address, reverse=True)
    for number, nic in enumerate(nics):
        nic.interfaces = {"rdma": [f"mlx5_{number}"]}
    for gpu in gpus_of(host):
        gpu.vendor_id, gpu.class_code = 0x10DE, 0x030200
    return host


def gpus_of(host: Host) -> list:
    """Return the server's GPUs in the order of /dev/nvidiaN."""
    return sorted((one for one in host.functions if one.kind == "gpu"), key=lambda one: one.address)


def write(root: Path, host: Host) -> None:
    """Write the server's files; its processors are another machine's."""

    def put(path: str, text: str) -> None:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    parents = {one.address: one.parent for one in host.functions}

    def place(address: str) -> str:
        above = parents[address]
        if above:
            return f"{place(above)}/{address}"
        return f"sys/devices/pci{address[:7]}/{address}"

    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    verbs = 0
    for one in host.functions:
        folder = place(one.address)
        ids = f"PCI_ID={one.vendor_id:04X}:{one.device_id:04X}\nPCI_SLOT_NAME={one.address}\n"
        put(f"{folder}/uevent", f"PCI_CLASS={one.class_code:X}\n{ids}")
        put(f"{folder}/numa_node", "0\n")
        (root / folder / "config").write_bytes(bytes(256))
        (bus / one.address).symlink_to(os.path.relpath(root / folder, bus))
        for device in one.interfaces.get("rdma", []):
            (root / folder / f"infiniband/{device}").mkdir(parents=True)
            shown = root / "sys/class/infiniband"
            shown.mkdir(parents=True, exist_ok=True)
            (shown / device).symlink_to(os.path.relpath(root / folder / f"infiniband/{device}", shown))
            put(f"sys/class/infiniband_verbs/uverbs{verbs}/ibdev", f"{device}\n")
            verbs += 1
    put("sys/class/infiniband_verbs/abi_version", "6\n")
    for number, gpu in enumerate(gpus_of(host)):
        put(f"proc/driver/nvidia/gpus/{gpu.address}/information", f"Model: \t\t NVIDIA\nDevice Minor: \t {number}\n")
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n")
