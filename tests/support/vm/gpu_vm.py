# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server with everything that the paper names, a GPU VM that has all of it, and the modules' results for both."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Ats,
    Bar,
    Cpu,
    Function,
    Host,
    HugePages,
    Iommu,
    NumaNode,
    RootComplex,
    Sriov,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell, Processors, Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.mmio import Window
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.pci_tree import (
    DOWNSTREAM,
    EXPANDER,
    ROOT_PORT,
    UPSTREAM,
    Endpoint,
    Port,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    BootCheck,
    Evidence,
    Running,
    differences_of_domain,
    firmware_of_result,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

MIB, GIB = 1 << 20, 1 << 30


def bridge(address: str, root: str, parent: str | None, port: str, ids: tuple[int, int], node: int, group: int):
    acs = Acs(0x5F, 0x5D) if port == "root_port" else None
    return Function(
        address, root, parent, 0x060400, *ids, "bridge", port, driver="pcieport", numa_node=node, iommu_group=group,
        acs=acs, max_read_request_bytes=128,
    )  # fmt: skip


def gpu(address: str, root: str, parent: str, node: int, group: int | None = None) -> Function:
    return Function(
        address, root, parent, 0x030200, 0x10DE, 0x2330, "gpu", "endpoint", driver="vfio-pci" if group else "nvidia",
        numa_node=node, iommu_group=group, ats=Ats(True, 0), max_read_request_bytes=4096,
        bars=[Bar(0, 16 * MIB, "memory", 64, True), Bar(2, 128 * GIB, "memory", 64, True)],
    )  # fmt: skip


def vf(address: str, root: str, parent: str, node: int, group: int | None = None, pf: str | None = None) -> Function:
    return Function(
        address, root, parent, 0x020000, 0x15B3, 0x101E, "nic", "endpoint", driver="vfio-pci" if group else "mlx5_core",
        numa_node=node, iommu_group=group, ats=Ats(True, 0), max_read_request_bytes=4096, physical_function=pf,
        bars=[Bar(0, 2 * MIB, "memory", 64, True)],
    )  # fmt: skip


DEVICES = {"gpus": ["0000:13:00.0", "0000:83:00.0"], "nics": ["0000:14:00.1", "0000:84:00.1"]}
NCCL_TOPOLOGY = '<system version="1">\n  <cpu numaid="0"/>\n</system>\n'
ROOT, UP, DOWN = (0x8086, 0x352A), (0x1000, 0xC030), (0x1000, 0xC030)


def host() -> Host:
    """Return a host of two root complexes; below each is a switch with one GPU and one NIC with VFs."""
    functions = []
    for bus, node in ((0x10, 0), (0x80, 1)):
        root = f"pci0000:{bus:02x}"
        port, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        downs = [f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"]
        pf = f"0000:{bus + 4:02x}:00.0"
        functions += [
            bridge(port, root, None, "root_port", ROOT, node, bus),
            bridge(up, root, port, "switch_upstream", UP, node, bus + 1),
            *(bridge(down, root, up, "switch_downstream", DOWN, node, bus + 2) for down in downs),
            gpu(f"0000:{bus + 3:02x}:00.0", root, downs[0], node, bus + 5),
            vf(f"0000:{bus + 4:02x}:00.1", root, downs[1], node, bus + 6, pf),
        ]
        function = vf(pf, root, downs[1], node, bus + 7)
        function.driver, function.physical_function, function.device_id = "mlx5_core", None, 0x101D
        function.sriov, function.relaxed_ordering = Sriov(16, 1, [f"0000:{bus + 4:02x}:00.1"]), True
        functions.append(function)
    for function in functions:
        if function.port_type == "switch_downstream":
            function.acs = Acs(0x5F, 0x5D)
    return Host(
        numa_nodes=[
            NumaNode(
                node,
                list(range(4 * node, 4 * node + 4)),
                [[4 * node, 4 * node + 1], [4 * node + 2, 4 * node + 3]],
                64 * GIB,
                huge_pages=[HugePages(GIB, 32, 0)],
            )
            for node in (0, 1)
        ],
        root_complexes=[RootComplex("pci0000:10", 0, 0x10, 0), RootComplex("pci0000:80", 0, 0x80, 1)],
        functions=functions,
        cpu=Cpu("x86_64", "GenuineIntel", "Xeon", "vmx", 52),
        iommu=Iommu("intel", "identity", True, 48),
        kernel_arguments=["iommu=pt", "module_blacklist=nouveau,nova_core,nvidia,nvidiafb"],
    )


def guest() -> Host:
    """Return the guest that mirrors the host: pxb buses 0x20 and 0x60, below each a switch with the GPU and the VF."""
    functions = []
    for bus, node in ((0x20, 0), (0x60, 1)):
        root = f"pci0000:{bus:02x}"
        port, up = f"0000:{bus:02x}:00.0", f"0000:{bus + 1:02x}:00.0"
        downs = [f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"]
        functions += [
            bridge(port, root, None, "root_port", (0x1B36, 0x000C), node, 0),
            bridge(up, root, port, "switch_upstream", (0x104C, 0x8232), node, 0),
            *(bridge(down, root, up, "switch_downstream", (0x104C, 0x8233), node, 0) for down in downs),
            gpu(f"0000:{bus + 3:02x}:00.0", root, downs[0], node),
            vf(f"0000:{bus + 4:02x}:00.0", root, downs[1], node),
        ]
    return Host(
        numa_nodes=[NumaNode(node, [2 * node, 2 * node + 1], [[2 * node, 2 * node + 1]], 32 * GIB) for node in (0, 1)],
        root_complexes=[RootComplex("pci0000:20", 0, 0x20, 0), RootComplex("pci0000:60", 0, 0x60, 1)],
        functions=functions,
        cpu=Cpu("x86_64", "GenuineIntel", "Xeon", None, 52),
    )


def planned(on: Host) -> DomainPlan:
    """Return the plan for this host: each cell has the node's GPU and VF below a switch, as in ``guest``."""
    root = Port("pcie-root")
    for number, (on_host, in_guest) in enumerate(((0x10, 0x20), (0x80, 0x60))):
        leaves = [
            Port(
                DOWNSTREAM,
                slot=leaf,
                index=4 + leaf + 5 * number,
                bus=in_guest + 3 + leaf,
                endpoints=[Endpoint("hostdev", f"0000:{on_host + own:02x}:00.{function}")],
            )
            for leaf, (own, function) in enumerate(((3, 0), (4, 1)))
        ]
        up = Port(UPSTREAM, index=3 + 5 * number, bus=in_guest + 2, ports=leaves)
        port = Port(ROOT_PORT, index=2 + 5 * number, bus=in_guest + 1, ports=[up])
        name = f"pci0000:{on_host:02x}"
        root.ports.append(Port(EXPANDER, name, number, 8 + number, index=1 + 5 * number, bus=in_guest, ports=[port]))
    cells = [
        Cell(node, node, 32 * 1024, [2 * node, 2 * node + 1], [4 * node + 2, 4 * node + 3], {"0": 10, "1": 20})
        for node in (0, 1)
    ]
    request = {
        "name": "vm1",
        "memory_mib": 64 * 1024,
        "huge_page_mib": 1024,
        "gpus": {"count": 2},
        "nics": {"per_gpu": 1},
    }
    return DomainPlan(
        spec=parse_specs([request])[0],
        host=on,
        accelerator="kvm",
        processors=Processors(cells, 2, 2, [0, 1, 4, 5], Share(8, 4, 4, 0, 0, 0, 255, [], 128 * 1024)),
        chosen=Chosen({key: [on.function(each) for each in addresses] for key, addresses in DEVICES.items()}),
        root=root,
        window=Window(0, 300 * GIB, 512 * GIB, 52),
        address_bits_mode="passthrough",
        address_bits=52,
    )


def plan() -> dict:
    """Return the plan in the form of gpu_domain's result."""
    return planned(host()).to_dict()


def process() -> dict:
    """Return the QEMU process in the form of gpu_domain_info's result."""
    arguments = ["/usr/bin/qemu-system-x86_64", "-name", "guest=vm1,debug-threads=on", "-overcommit", "mem-lock=on"]
    for node in (0, 1):
        arguments += [
            "-object",
            f'{{"qom-type":"memory-backend-file","id":"ram-node{node}","mem-path":"/dev/hugepages1G/libvirt/qemu/1-vm1",'
            f'"prealloc":true,"size":{32 * GIB},"host-nodes":[{node}],"policy":"bind"}}',
        ]
    for device in plan()["devices"]:
        address = device["host_address"]
        arguments += ["-device", f'{{"driver":"vfio-pci","host":"{address}","id":"x","bus":"y","addr":"0x0"}}']
    return {
        "pid": 4711,
        "accelerated": True,
        "arguments": arguments,
        "memory": [{"page_bytes": GIB, "policy": f"bind:{node}", "pages_by_node": {str(node): 32}} for node in (0, 1)],
        "locked_bytes": 0,
        "pinning": {"0": [2], "1": [3], "2": [6], "3": [7]},
        "emulator_cpus": [0, 1, 4, 5],
    }


def domain() -> dict:
    """Return the item of gpu_domain_info's result."""
    return {
        "name": "vm1",
        "exists": True,
        "state": "running",
        "plan": plan(),
        "process": process(),
        "differences": [],
        "live_differences": [],
    }


def firmware() -> dict:
    """Return the result of nic_firmware in check mode."""
    settings = {
        "PCI_WR_ORDERING": "per_mkey(0)",
        "MAX_ACC_OUT_READ": "44",
        "RDMA_SELECTIVE_REPEAT_EN": "True(1)",
        "ATS_ENABLED": "True(1)",
    }
    now = {key: {"current": value, "next_boot": value} for key, value in settings.items()}
    return {"devices": dict.fromkeys(("0000:14:00.0", "0000:84:00.0"), now), "diff": {"before": {}, "after": {}}}


def tuned(*addresses: str) -> dict:
    return {address: {"max_read_request_bytes": 4096} for address in addresses}


def in_guest() -> dict:
    devices = tuned(*(device["guest_address"] for device in plan()["devices"]))
    return {"outcomes": {"pci_tuning": {"devices": devices}}, "diff": {"after": {}}}


def host_cpus() -> dict:
    """Return host_cpus of gpu_domain_info's result."""
    units = dict.fromkeys(("init.scope", "system.slice", "user.slice"), "0-1,4-5")
    return {"pinned": "2-3,6-7", "allowed": "0-1,4-5", "units": units, "irqbalance": {"seen": "2-3,6-7"}}


def virtual_functions() -> dict:
    """Return the facts of one physical function."""
    settings = {"mac": "02:00:00:00:14:00", "link_state": "auto"}
    return {
        "count": 1,
        "vfs": [],
        "eswitch_mode": {"wanted": "legacy", "seen": "legacy"},
        "settings": [{"vf": 0, "name": name, "wanted": value, "seen": value} for name, value in settings.items()],
    }


def on_host() -> dict:
    """Return the result of gpu_host_boot in check mode."""
    ports = [each.address for each in host().functions if each.acs]
    return {
        "diff": {"before": {}, "after": {}},
        "outcomes": {
            "hugepages": {"hugepages": [{"node": node, "size_mib": 1024, "wanted": 32} for node in (0, 1)]},
            "sriov": {"functions": {pf: virtual_functions() for pf in ("0000:14:00.0", "0000:84:00.0")}},
            "vfio_binding": {
                "drivers_off": {"modules": ["nouveau", "nova_core", "nvidia", "nvidiafb"], "reasons": []},
                "reset_failures": {},
            },
            "kernel_settings": {
                "settings": {
                    "governor": {"wanted": "performance", "seen": "performance"},
                    "idle_exit_latency_us_max": {"wanted": 10, "seen": "10"},
                    "numa_balancing": {"wanted": False, "seen": "0"},
                    "ksm": {"wanted": False, "seen": "0"},
                    "transparent_huge_pages": {"wanted": "madvise", "seen": "madvise"},
                    "avic": {"wanted": True, "seen": "1"},
                },
                "also_set_by": [],
            },
            "pci_tuning": {
                "devices": {
                    **{port: {"acs": ["direct_translated"]} for port in ports},
                    **tuned("0000:13:00.0", "0000:14:00.0", "0000:83:00.0", "0000:84:00.0"),
                }
            },
        },
    }


def evidence() -> Evidence:
    """Return the evidence of a server with everything that the paper names, and a VM that has all of it."""
    return Evidence(
        host_name="gpu01",
        planned=planned(host()),
        running=Running.of_process(process()),
        domain_differences=differences_of_domain(domain()),
        guest=guest(),
        host_settings=BootCheck.of_result(on_host()),
        guest_settings=BootCheck.of_result(in_guest()),
        nccl={"NCCL_IB_PCI_RELAXED_ORDERING": "2"},
        host_cpus=host_cpus(),
        nic_firmware=firmware_of_result(firmware()),
        nccl_settings="# written\nNCCL_IB_PCI_RELAXED_ORDERING=2\n",
        nccl_topology=NCCL_TOPOLOGY,
        nccl_topology_file=NCCL_TOPOLOGY,
    )
