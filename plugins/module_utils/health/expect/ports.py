# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ports of a node that must be up, from the blueprint's variables or those of the RoCE policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Port

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
FASTEST_GBIT_S = 100_000
# RDMA devices by their kernel names (mlx5_0, bnxt_re1, irdma0, rocep1s0, ibp1s0) have numbered ports.
RDMA = ("mlx", "bnxt_re", "irdma", "hfi", "rocep", "ibp", "qedr", "efa")


def read(data: Any, addresses: Mapping[str, str]) -> list[Port]:
    """Return the ports, by name. ``addresses``: the PCI address by RDMA device and interface. Raises ExpectError."""

    def refusal(subject: str, cause: str, remedy: str) -> ExpectError:
        return ExpectError(f"{subject}: {cause}", remedy)

    given = Settings(refusal, "node_health_ports", data)
    ports = []
    for name in given.data:
        part = given.part(name)
        part.only("speed_gbit_s", "infiniband", "peer", "cable", "rail", "cable_m")
        speed = part.value("speed_gbit_s", lambda value: values.number(value, 0, FASTEST_GBIT_S))
        device = name.partition("/")[0]
        ports.append(
            Port(
                name=f"{name}/1" if name.startswith(RDMA) and "/" not in name else name,
                address=addresses.get(device, ""),
                link_layer=INFINIBAND if part.value("infiniband", values.flag, False) else ETHERNET,
                rate_gbit_s=None if speed is None else float(speed),
                peer=part.value("peer", values.text, ""),
                cable=part.value("cable", values.text, ""),
                rail=part.value("rail", values.within(0, 4096)),
            )
        )
    return sorted(ports, key=lambda port: port.name)
