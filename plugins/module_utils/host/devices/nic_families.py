# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The firmware settings of NVIDIA NICs for GPUDirect, by family: one table, and ATS from the topology. Pure.

A NIC of a family that is not in the table gets no settings. Sources:

- IBM: https://github.com/apoorvemohan/HCIR, vela_asplos2025/vmsetup, the published settings of the Vela cluster, tested
  there with ConnectX-6 and A100. P2P_ORDERING_MODE 1 is SECURE_NONE in its README.
- OPERATOR: Mellanox/nic-configuration-operator, README, pciPerformanceOptimized (pull request 131): by the programmer's
  reference manual, 0 lets the firmware choose the number of outstanding reads. Some versions of the firmware do not
  support 0. For ConnectX-7 on H100, NVIDIA's users check for 0, 44 or 128; ROCm/gpu-cluster-networking (pull request
  48) found 128 generally better than 44.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import acs_rules as rules
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function

IBM, OPERATOR = "HCIR vela_asplos2025/vmsetup", "nic-configuration-operator pull request 131"
ADVANCED = "ADVANCED_PCI_SETTINGS"


@dataclass(frozen=True)
class Row:
    """A setting of a family: its value, its benefit, and its source."""

    name: str
    value: Any
    gain: str
    source: str


@dataclass(frozen=True)
class Family:
    """NICs of one kind, by their PCI devices (vendor 15b3: pci.ids)."""

    name: str
    devices: frozenset[int]
    rows: tuple[Row, ...]


SRIOV = Row("SRIOV_EN", True, "virtual functions", "arXiv 2407.05467, section 2.1.2")
FAMILIES = (
    Family(
        "ConnectX-6",
        frozenset({0x101B}),
        (
            Row(ADVANCED, True, "shows MAX_ACC_OUT_READ", IBM),
            Row("MAX_ACC_OUT_READ", 44, "more outstanding read bytes", IBM),
            Row("PCI_WR_ORDERING", "per_mkey", "relaxed ordering where memory asks for it, not on every write", IBM),
            Row("P2P_ORDERING_MODE", 1, "SECURE_NONE: peer-to-peer writes are not ordered", IBM),
            Row("RDMA_SELECTIVE_REPEAT_EN", True, "selective repeat in place of go-back-N", IBM),
            SRIOV,
        ),
    ),
    Family(
        "ConnectX-7",
        frozenset({0x1021}),
        (
            Row(ADVANCED, True, "shows MAX_ACC_OUT_READ", OPERATOR),
            Row("MAX_ACC_OUT_READ", 0, "as many outstanding reads as the firmware finds best", OPERATOR),
            SRIOV,
        ),
    ),
    # There are no published values for reads and ordering that were measured on these families.
    Family("ConnectX-8", frozenset({0x1023}), (SRIOV,)),
    Family("BlueField-3", frozenset({0xA2DC}), (SRIOV,)),
)


def family_of(function: Function) -> Family | None:
    """Return the family of a NIC; None if the table does not have it."""
    return next((family for family in FAMILIES if function.device_id in family.devices), None)


def values(function: Function, plan: AcsPlan) -> dict[str, Any]:
    """Return the settings of a NIC; ``plan`` is for the GPUs and NICs of the host. Empty for an unknown family."""
    family = family_of(function)
    if family is None:
        return {}
    settings = {row.name: row.value for row in family.rows}
    ats = _ats(function, plan)
    return settings if ats is None else {**settings, "ATS_ENABLED": ats}


def _ats(function: Function, plan: AcsPlan) -> bool | None:
    """Return ATS_ENABLED as the topology needs it (acs_rules.EXPECTED); None if it needs neither value."""
    functions = [nic for nic in plan.nics if nic[:-1] == function.address[:-1]]
    functions += [nic for nic in plan.nics if plan.host.function(nic).physical_function in functions]
    topologies = {plan.expected_of(nic) for nic in functions}
    topology = next((candidate for candidate in (rules.INLINE, rules.NUMA) if candidate in topologies), None)
    return rules.EXPECTED[topology, plan.purpose].nic_ats if topology else None
