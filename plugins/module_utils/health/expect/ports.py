# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ports of a node that must be up, from the blueprint's variables or those of the RoCE policy. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ExpectedPort
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
FASTEST_GBIT_S = 100_000
# The names of RDMA devices, which have numbered ports, where no recording tells them from interfaces: those of drivers
# (mlx5_0, bnxt_re1, irdma0), and those of rdma-core's rdma_rename: the bus, slot, place on the board or GUID (rocep1s0,
# ibs3, rdmap0s6, roceo1, rocex0c42a1fffe123456). "ib0" is an interface.
RDMA = re.compile(r"(?:mlx|bnxt_re|irdma|hfi|qedr|efa|hns_|(?:ib|iw|opa|rdma|roce|usnic)[pPsox][0-9a-f]).*")


def read(data: Any, nics: Iterable[Function] = (), passed_through: Collection[str] = ()) -> list[ExpectedPort]:
    """Return the ports, by name. Raises ExpectError.

    ``nics``: of the node's recording. ``passed_through``: the PCI addresses of those that guests have, without ports.
    """

    def refusal(subject: str, cause: str, remedy: str) -> ExpectError:
        return ExpectError(f"{subject}: {cause}", remedy)

    settings = Settings(refusal, "node_health_ports", data)
    interfaces, rdma = _addresses(nics, "net"), _addresses(nics, "rdma")
    ports = []
    for name in settings.data:
        part = settings.part(name)
        part.only("speed_gbit_s", "infiniband", "peer", "cable", "rail", "cable_m")
        if not isinstance(name, str):
            raise part.refuse(f"{name!r} is no name of a port", "write it in quotes")
        speed = part.value("speed_gbit_s", lambda value: values.number(value, 0, FASTEST_GBIT_S))
        device, _slash, number = name.partition("/")
        is_rdma = device in rdma or (device not in interfaces and RDMA.fullmatch(device) is not None)
        port = ExpectedPort(
            name=f"{name}/1" if is_rdma and not number else name,
            address=rdma.get(device) or interfaces.get(device, ""),
            link_layer=INFINIBAND if part.value("infiniband", values.flag, False) else ETHERNET,
            rate_gbit_s=None if speed is None else float(speed),
            peer=part.value("peer", values.text, ""),
            cable=part.value("cable", values.text, ""),
            rail=part.value("rail", values.within(0, 4096)),
        )
        if port.address not in passed_through:
            ports.append(port)
    return sorted(ports, key=lambda port: port.name)


def _addresses(nics: Iterable[Function], kind: str) -> dict[str, str]:
    """Return the PCI address by interface ("net") or RDMA device ("rdma")."""
    return {name: nic.address for nic in nics for name in nic.interfaces.get(kind, [])}
