# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ACS mask of each port on the paths of passed-through GPUs and NICs, from the topology. Pure.

The masks and their source are in ``acs_rules``. Peer-to-peer traffic between two devices turns at their nearest common
switch. The rules ``nic_port`` and ``gpu_port`` are for the two downstream ports of this switch, towards the NIC and
towards the GPU. Ports that lead to none of the devices are not changed, except the other ports of a switch that has
some of the devices below it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import acs_rules as rules
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import possible_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths

# The function through which a ConnectX-8 reaches the GPU beside it: "ConnectX-8 DMA Controller" in rdma_topo.
DATA_DIRECT = (0x15B3, 0x2100)
BLUEFIELD_3 = (0x15B3, 0xA2DC)
# The switches inside ConnectX and BlueField: "cx_switch" and "bf3_switch" in rdma_topo.
NVIDIA_SWITCHES = {(0x15B3, 0x1979), (0x15B3, 0x197B), (0x15B3, 0x197C)}
DOWNSTREAM = ("root_port", "switch_downstream")


@dataclass(frozen=True)
class AcsPort:
    """A port with its rule; ``below`` are the passed-through devices that it leads to."""

    address: str
    topology: str
    role: str
    mask: rules.Mask
    why: str
    below: tuple[str, ...]
    has_acs: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {**asdict(self), "mask": self.mask.text, "below": list(self.below)}


def is_data_direct(function: Function) -> bool:
    """Return True for a ConnectX-8's data-direct function."""
    return (function.vendor_id, function.device_id) == DATA_DIRECT


class AcsPlan:
    """The ports above ``devices`` for one of ``rules.PURPOSES``."""

    def __init__(self, host: Host, devices: list[Function], purpose: str) -> None:
        self.host, self.purpose = host, purpose
        self._paths = Paths(host)
        self.gpus = sorted(item.address for item in devices if item.kind == "gpu")
        # The port of a function that could manage NVSwitches keeps its isolation.
        unknown = possible_management(host)
        self.nics = sorted(
            item.address for item in devices if item.kind == "nic" and not is_data_direct(item) and item not in unknown
        )
        # A data-direct function serves the GPU below the same switch, whether or not the NIC is in ``devices``.
        self._partners = {
            item.address: gpu
            for item in host.functions
            if is_data_direct(item)
            for gpu in self.gpus
            if self.turns(item.address, gpu)
        }
        self._below: dict[str, set[str]] = {}
        for address in (*self.gpus, *self.nics, *self._partners):
            for step in self._paths.path_to(address)[:-1]:
                self._below.setdefault(step.address, set()).add(address)
        self._roles: dict[str, tuple[str, str]] = {}
        self._turning_ports()
        self._ports_around()
        if purpose == rules.BARE_METAL and self._is_inline:
            self._ports_elsewhere()

    @property
    def has_data_direct(self) -> bool:
        """Return True if a GPU has a data-direct function beside it."""
        return bool(self._partners)

    @property
    def _is_inline(self) -> bool:
        """Return True if a NIC shares a switch with a GPU, and no GPU has a data-direct function beside it."""
        return not self._partners and any(self.turns(nic, gpu) for gpu in self.gpus for nic in self.nics)

    @property
    def ports(self) -> list[AcsPort]:
        """Return all ports of the plan, by address."""
        functions = self.host.by_address()
        ports = []
        for address in sorted(self._roles):
            topology, role = self._roles[address]
            rule = rules.BY_ROLE[topology, role]
            mask, function = rule.mask(self.purpose), functions[address]
            if mask == rules.KERNEL_DEFAULT and (function.vendor_id, function.device_id) in rules.VERA_ROOT_PORTS:
                mask = rules.VERA_DEFAULT
            devices_below = tuple(sorted(self._below.get(address, ())))
            ports.append(AcsPort(address, topology, role, mask, rule.why, devices_below, function.acs is not None))
        return ports

    def turns(self, first: str, second: str) -> tuple[str, str] | None:
        """Return the nearest common switch's downstream ports towards each of the two; None if they share no switch."""
        ways = self._paths.path_to(first)[:-1], self._paths.path_to(second)[:-1]
        shared = 0
        for step, twin in zip(*ways):
            if step.address != twin.address:
                break
            shared += 1
        if not shared or shared >= min(map(len, ways)):
            return None
        if self._paths.role(ways[0][shared - 1].address) != "switch_upstream":
            return None
        return ways[0][shared].address, ways[1][shared].address

    def topology(self, gpu: str, nic: str) -> str:
        """Return INLINE, DMA_DIRECT or NUMA of ``acs_rules`` for a pair. ``nic`` may be a data-direct function."""
        if self._partners.get(nic) == gpu:
            return rules.DMA_DIRECT
        return rules.INLINE if self.turns(nic, gpu) else rules.NUMA

    def expected_of(self, nic: str) -> str | None:
        """Return the topology by which ATS and IOMMU group of a NIC are expected (rules.EXPECTED), None: anything.

        As in rdma_topo, nothing is expected of NICs without a GPU beside them on a host that has such pairs, and of
        BlueField-3 there and on hosts without a pair.
        """
        if any(self.topology(gpu, nic) == rules.INLINE for gpu in self.gpus):
            return rules.INLINE
        function = self.host.function(nic)
        if self._partners or self._is_inline or (function.vendor_id, function.device_id) == BLUEFIELD_3:
            return None
        return rules.NUMA if self.gpus else None

    def _turning_ports(self) -> None:
        pairs = [(gpu, nic, rules.INLINE, "nic_port") for gpu in self.gpus for nic in self.nics]
        if self.purpose == rules.BARE_METAL:
            # GPUs without NVLink reach each other by PCIe (NCCL user guide, "Troubleshooting", PCI Access Control
            # Services). In virtual machines their requests go through the IOMMU: the kernel's default.
            pairs += [(gpu, peer_gpu, rules.INLINE, "gpu_port") for gpu in self.gpus for peer_gpu in self.gpus]
        pairs += [(gpu, dma, rules.DMA_DIRECT, "dma_port") for dma, gpu in self._partners.items()]
        for gpu, peer, topology, role in pairs:
            turn = self.turns(peer, gpu)
            if turn:
                # Data-direct comes last and takes precedence; the port of a NIC takes precedence over that of a GPU.
                self._roles[turn[0]] = (topology, role)
                if self._roles.get(turn[1], ("", ""))[1] != "nic_port" or topology == rules.DMA_DIRECT:
                    self._roles[turn[1]] = (topology, "gpu_port")

    def _ports_around(self) -> None:
        order = (rules.NUMA, rules.INLINE, rules.DMA_DIRECT)
        turned = {address: topology for address, (topology, _role) in self._roles.items()}
        roots: dict[str, str] = {}
        for address in sorted(self._below):
            root = self._paths.path_to(address)[0].address
            roots[root] = max(roots.get(root, rules.NUMA), turned.get(address, rules.NUMA), key=order.index)
        children: dict[str, list[str]] = {}
        for function in self.host.functions:
            if function.kind == "bridge" and function.parent in self._below:
                children.setdefault(function.parent or "", []).append(function.address)
        for address in sorted(self._below):
            topology = roots[self._paths.path_to(address)[0].address]
            kind = self._paths.role(address)
            if kind == "root_port":
                self._roles.setdefault(address, (topology, "root_port"))
            elif kind == "switch_downstream" or self.host.function(address).acs:
                self._roles.setdefault(address, (topology, "other_port"))
            if kind == "switch_upstream":
                for port in children.get(address, []):
                    self._roles.setdefault(port, (topology, "other_port"))

    def _ports_elsewhere(self) -> None:
        """Turn ACS off at all ports of ConnectX' and BlueField's switches, wherever they are, as rdma_topo does."""
        for function in self.host.functions:
            is_planned = self._roles.get(function.address, (rules.NUMA,))[0] != rules.NUMA
            if function.acs and not is_planned and (function.vendor_id, function.device_id) in NVIDIA_SWITCHES:
                self._roles[function.address] = (rules.INLINE, "other_port")

    # Requirements of ATS and IOMMU groups ---------------------------------------------------------------------------

    def claims(self) -> list[Claim]:
        """Claim each NIC's ATS capability, and the IOMMU groups of NICs and GPUs."""
        claims = [self._groups(dma, [gpu], rules.DMA_DIRECT) for dma, gpu in sorted(self._partners.items())]
        for nic in self.nics:
            expected = self.expected_of(nic)
            if expected:
                beside = [gpu for gpu in self.gpus if self.topology(gpu, nic) == expected]
                claims += [self._ats(nic, expected), self._groups(nic, beside, expected)]
        return claims

    def needs_ats(self) -> bool:
        """Return True if a NIC of the plan needs ATS."""
        topologies = {self.topology(gpu, nic) for nic in self.nics for gpu in self.gpus}
        return any(rules.EXPECTED[topology, self.purpose].nic_ats for topology in topologies)

    def _ats(self, nic: str, topology: str) -> Claim:
        wanted = rules.EXPECTED[topology, self.purpose].nic_ats
        function = self.host.function(nic)
        # Without extended config space the capability is unknown.
        seen = None if function.ats is None and function.config_bytes < 4096 else function.ats is not None
        text_of = {True: "present", False: "absent"}
        return _claim(
            f"NIC {nic} has {'an' if wanted else 'no'} ATS capability ({topology})",
            text_of[bool(wanted)],
            None if seen is None else text_of[seen],
            seen == wanted,
            f"set ATS_ENABLED={wanted} in the NIC's firmware (gpu_host_nic_firmware) and reboot",
        )

    def _groups(self, nic: str, gpus: list[str], topology: str) -> Claim:
        wanted = rules.EXPECTED[topology, self.purpose].groups
        nic_group, gpu_groups = (
            self.host.function(nic).iommu_group,
            [self.host.function(gpu).iommu_group for gpu in gpus],
        )
        if wanted == "none or same":
            holds = all(nic_group == group for group in gpu_groups)
        elif nic_group is None or None in gpu_groups:
            holds = False
        else:
            holds = all((nic_group == group) == (wanted == "same") for group in gpu_groups)
        shown = ["none" if group is None else str(group) for group in dict.fromkeys([nic_group, *gpu_groups])]
        return _claim(
            f"IOMMU groups of {nic} and GPU {', '.join(gpus)} are {wanted} ({topology})",
            wanted,
            " and ".join(shown),
            holds,
            "ACS has to be right before the kernel makes its groups: reboot with the kernel argument pci=config_acs= "
            "(gpu_host_acs_at_boot), or turn the IOMMU on",
        )


def _claim(claim: str, wanted: str, seen: str | None, holds: bool, remedy: str) -> Claim:
    return Claim(
        "hypervisor", claim, wanted, seen, holds, "config space and /sys/kernel/iommu_groups", "" if holds else remedy
    )
