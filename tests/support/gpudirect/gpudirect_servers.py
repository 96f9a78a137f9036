# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up servers: the three topologies that NVIDIA's rdma_topo knows, and boards that it does not know."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Ats,
    Bar,
    Cpu,
    Function,
    Host,
    Iommu,
    Link,
    NumaNode,
    RootComplex,
)

CX7, CX8, DATA_DIRECT, CX_SWITCH = (0x15B3, 0x1021), (0x15B3, 0x1023), (0x15B3, 0x2100), (0x15B3, 0x197C)
CX6, BF3, BF3_SWITCH = (0x15B3, 0x101B), (0x15B3, 0xA2DC), (0x15B3, 0x197B)
BROADCOM, MICROCHIP = (0x1000, 0xC030), (0x11F8, 0x4128)
H100, B300, L40S, NVSWITCH = (0x10DE, 0x2330), (0x10DE, 0x3182), (0x10DE, 0x26B9), (0x10DE, 0x22A3)
INTEL_ROOT, AMD_ROOT, GRACE_ROOT, VERA_ROOT = (0x8086, 0x352A), (0x1022, 0x14AB), (0x10DE, 0x22B1), (0x10DE, 0x2F95)
SAPPHIRE_RAPIDS, GENOA = ("GenuineIntel", "Intel(R) Xeon(R) Platinum 8480C"), ("AuthenticAMD", "AMD EPYC 9654")
ALL_BITS, KERNEL_DEFAULT = 0x5F, 0x1D
GEN5_X16 = (32.0, 16)

SETTINGS = ("ATS", "ACS", "ordering", "MaxReadReq", "huge pages", "GB/s")


def outlook_rows(lines: list[str]) -> list[dict[str, str]]:
    """Return the table in an outlook's ``lines`` as dictionaries by column, with the settings that all pairs share."""
    at = next(number for number, line in enumerate(lines) if line.startswith("  GPU  "))
    shared = " ".join(line.strip() for line in lines[1:at]).removeprefix("every pair: ")
    equal = dict(re.fullmatch(f"({'|'.join(SETTINGS)}) (.+)", part).groups() for part in shared.split(", ") if part)
    cells = [re.split(r" {2,}", line.strip()) for line in lines[at:]]
    rows = [row for row in cells if re.fullmatch("[0-9a-f:.]{12}", row[0])]
    assert {len(row) for row in rows} == {len(cells[0])}
    return [{**equal, **dict(zip(cells[0], row))} for row in rows]


class Build:
    """A builder that adds functions to a host of two NUMA nodes; each bus gets the next number, as in a kernel."""

    def __init__(self, cpu: tuple[str, str] = SAPPHIRE_RAPIDS) -> None:
        nodes = [
            NumaNode(
                node, [2 * node, 2 * node + 1], [[2 * node], [2 * node + 1]], 1 << 40, distances={"0": 10, "1": 21}
            )
            for node in (0, 1)
        ]
        nodes[0].distances, nodes[1].distances = {"0": 10, "1": 21}, {"0": 21, "1": 10}
        self.host = Host(
            nodes,
            [],
            [],
            Cpu("x86_64", cpu[0], cpu[1], "vmx", 52),
            Iommu("intel" if cpu[0] == "GenuineIntel" else "amd", "identity", True),
            "6.17.0-1-generic",
        )
        self._bus = 0
        self._group = 0

    def root(self, node: int, ids: tuple[int, int] = INTEL_ROOT) -> Function:
        """Add a root port on a new root complex."""
        bus = self._bus
        name = f"pci0000:{bus:02x}"
        self.host.root_complexes.append(RootComplex(name, 0, bus, node))
        return self._bridge(f"0000:{bus:02x}:01.0", None, name, ids, "root_port", node)

    def switch(self, above: Function, ports: int, ids: tuple[int, int] = BROADCOM) -> list[Function]:
        """Add a switch below a port; return its downstream ports."""
        up = self._bridge(
            f"0000:{above.secondary_bus:02x}:00.0",
            above.address,
            above.root_complex,
            ids,
            "switch_upstream",
            above.numa_node,
        )
        up.acs = None
        return [
            self._bridge(
                f"0000:{up.secondary_bus:02x}:{slot:02x}.0",
                up.address,
                up.root_complex,
                ids,
                "switch_downstream",
                up.numa_node,
            )
            for slot in range(ports)
        ]

    def device(
        self, above: Function, ids: tuple[int, int], kind: str, ats: bool | None = None, function: int = 0
    ) -> Function:
        """Add an endpoint directly below a port."""
        codes = {"gpu": 0x030200, "nic": 0x020700, "nvme": 0x010802, "nvswitch": 0x068000, "other": 0x080100}
        made = Function(
            f"0000:{above.secondary_bus:02x}:00.{function}",
            above.root_complex,
            above.address,
            codes[kind],
            *ids,
            kind,
            "endpoint",
            numa_node=above.numa_node,
            iommu_group=self._new_group(),
            config_bytes=4096,
            ats=Ats(True, 0) if ats else None,
            max_read_request_bytes=4096,
            relaxed_ordering=True,
            link=Link(*GEN5_X16, *GEN5_X16),
            driver="vfio-pci",
            bars=[Bar(2, 128 << 30, "memory", 64, True)] if kind == "gpu" else [],
        )
        return self._add(made)

    def _bridge(
        self, address: str, parent: str | None, root: str, ids: tuple[int, int], kind: str, node: int | None
    ) -> Function:
        self._bus += 1
        return self._add(
            Function(
                address,
                root,
                parent,
                0x060400,
                *ids,
                "bridge",
                kind,
                secondary_bus=self._bus,
                subordinate_bus=0xFF,
                driver="pcieport",
                numa_node=node,
                iommu_group=self._new_group(),
                acs=Acs(ALL_BITS, KERNEL_DEFAULT),
                config_bytes=4096,
                link=Link(*GEN5_X16, *GEN5_X16),
            )
        )

    def end_of_complex(self) -> None:
        """Give the next root complex the next bus."""
        self._bus += 1

    def _new_group(self) -> int:
        self._group += 1
        return self._group

    def _add(self, function: Function) -> Function:
        self.host.functions.append(function)
        return function

    def done(self) -> Host:
        """Return the host, with its functions in the order of their addresses."""
        self.host.functions.sort(key=lambda function: function.address)
        return self.host


def inline(virtual: bool = True, root: tuple[int, int] = INTEL_ROOT) -> Host:
    """Return a host with two boards with ConnectX-8.

    Each is a root port with the NIC's switch, which has the NIC on one port and a switch with a GPU on the other.
    """
    build = Build()
    for node in (0, 1):
        port = build.root(node, root)
        to_nic, to_gpu = build.switch(port, 2, CX_SWITCH)
        nic = build.device(to_nic, CX8, "nic", ats=virtual)
        (inner,) = build.switch(to_gpu, 1, CX_SWITCH)
        gpu = build.device(inner, B300, "gpu")
        if not virtual:
            gpu.iommu_group = nic.iommu_group
        build.end_of_complex()
    return build.done()


def inline_beside_bluefield(virtual: bool = True) -> Host:
    """Return ``inline`` with a BlueField-3 behind its own switch, which has the ATS capability, and a storage NIC."""
    build = Build()
    build.host, build._bus, build._group = inline(virtual), 0x40, 100
    to_nic, _spare = build.switch(build.root(0), 2, BF3_SWITCH)
    build.device(to_nic, BF3, "nic", ats=True)
    build.end_of_complex()
    build.device(build.root(1), CX6, "nic", ats=True)
    return build.done()


def dma_direct() -> Host:
    """Return Grace with ConnectX-8 data-direct: function and GPU are below one root port, the NIC is below another."""
    build = Build()
    for node in (0, 1):
        port = build.root(node, GRACE_ROOT)
        to_dma, to_gpu = build.switch(port, 2, CX_SWITCH)
        dma = build.device(to_dma, DATA_DIRECT, "other")
        (inner,) = build.switch(to_gpu, 1, CX_SWITCH)
        gpu = build.device(inner, B300, "gpu")
        gpu.iommu_group = dma.iommu_group
        build.end_of_complex()
        (to_nic,) = build.switch(build.root(node, GRACE_ROOT), 1, CX_SWITCH)
        build.device(to_nic, CX8, "nic")
        build.end_of_complex()
    return build.done()


def numa(root: tuple[int, int] = GRACE_ROOT) -> Host:
    """Return a host with two GPUs and two NICs, one of each per node, each on its own root port."""
    build = Build()
    for node in (0, 1):
        build.device(build.root(node, root), H100, "gpu")
        build.end_of_complex()
        build.device(build.root(node, root), CX7, "nic")
        build.end_of_complex()
    if root == VERA_ROOT:
        for port in build.host.functions:
            if port.acs:
                port.acs.control &= ~0x08
    return build.done()


def hgx(
    switch: tuple[int, int] = BROADCOM, gpus: int = 1, nics: int = 1, ats: bool = True, nvswitches: int = 4
) -> Host:
    """Return an HGX board: four switches per node, each with GPUs, NICs and an NVMe drive; NVSwitches on root ports."""
    build = Build()
    for node in (0, 1):
        for _switch in range(4 if gpus == 1 else 2):
            ports = build.switch(build.root(node), gpus + nics + 1, switch)
            for port in ports[:gpus]:
                build.device(port, H100, "gpu")
            for port in ports[gpus : gpus + nics]:
                build.device(port, CX7, "nic", ats=ats)
            build.device(ports[-1], (0x144D, 0xA824), "nvme")
            build.end_of_complex()
        for _switch in range(nvswitches // 2):
            build.device(build.root(node), NVSWITCH, "nvswitch")
            build.end_of_complex()
    return build.done()


def pcie_cards(cpu: tuple[str, str] = GENOA, root: tuple[int, int] = AMD_ROOT, below_switch: bool = True) -> Host:
    """Return a host of PCIe GPUs without NVLink: two on each node, below one switch or on separate root ports."""
    build = Build(cpu)
    for node in (0, 1):
        if below_switch:
            for port in build.switch(build.root(node, root), 2):
                build.device(port, L40S, "gpu")
            build.end_of_complex()
        else:
            for _gpu in range(2):
                build.device(build.root(node, root), L40S, "gpu")
                build.end_of_complex()
    return build.done()


def passed(host: Host) -> list[Function]:
    """Return the GPUs and NICs that a virtual machine would get."""
    return [function for function in host.functions if function.kind in ("gpu", "nic")]


def apply_plan(host: Host, purpose: str, **more: Any) -> AcsPlan:
    """Plan ACS for all GPUs and NICs, write the plan's masks to the ports of ``host``, and return the plan."""
    plan = AcsPlan(host, more.get("devices", passed(host)), purpose)
    for port in plan.ports:
        acs = host.function(port.address).acs
        if acs:
            acs.control = port.mask.applied(acs.control, acs.capability)
    return plan
