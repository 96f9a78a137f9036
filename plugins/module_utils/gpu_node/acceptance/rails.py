# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails to measure between two nodes: for each node the NIC, and the GPU whose memory is used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import PATH_CLASSES, Paths

NEAREST_FIRST = list(PATH_CLASSES)


def of_node(host: Host) -> list[dict[str, Any]]:
    """Return the RDMA devices of a node in the order of their PCI addresses, each with its nearest GPU.

    If several GPUs are equally near, the one that the fewest NICs have is chosen. ``gpu`` is None if the node has none.
    """
    paths = Paths(host)
    gpus = sorted(item.address for item in host.functions if item.kind == "gpu")
    nics_of = dict.fromkeys(gpus, 0)
    rails = []
    for nic in sorted((item for item in host.functions if item.kind == "nic"), key=lambda item: item.address):
        for device in nic.interfaces.get("rdma", []):
            ranked = sorted(
                (NEAREST_FIRST.index(paths.path_class(gpu, nic.address)), nics_of[gpu], gpu) for gpu in gpus
            )
            gpu = ranked[0][2] if ranked else None
            if gpu is not None:
                nics_of[gpu] += 1
            rails.append({"device": device, "nic": nic.address, "gpu": gpu})
    return rails


def between(
    client: Host,
    server: Host,
    ports: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the rails that both nodes have, by number: ``{"number": 0, "client": {...}, "server": {...}}``.

    ``ports``: those of both that the blueprint plans (``site_ports``). If both have HCAs of InfiniBand there, these are
    the rails, also one that a node lacks: by addresses alone the next one would be measured in its place.
    """
    planned = [*map(_hcas, ports)]
    if planned and all(planned):
        pairs = zip(_planned(client, planned[0]), _planned(server, planned[1]))
    else:
        pairs = zip(of_node(client), of_node(server))
    return [{"number": number, "client": nic, "server": peer} for number, (nic, peer) in enumerate(pairs)]


def _hcas(ports: Mapping[str, Any]) -> list[str]:
    return [name for name, port in ports.items() if isinstance(port, Mapping) and port.get("infiniband")]


def _planned(host: Host, devices: Iterable[str]) -> list[dict[str, Any]]:
    present = {rail["device"]: rail for rail in of_node(host)}
    return [present.get(device, {"device": device, "nic": "", "gpu": None}) for device in devices]
