# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cores that are kept for the host itself: some of each socket, however many NUMA nodes it has. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode


def of_node(node: NumaNode) -> list[list[int]]:
    """Return the threads of each core of a node, ascending."""
    return sorted(node.siblings or [[cpu] for cpu in node.cpus])


def sockets(nodes: Iterable[NumaNode]) -> list[list[NumaNode]]:
    """Return the nodes by socket, in the order of their first nodes; a node of unknown socket is one of its own."""
    by_socket: dict[tuple[str, int], list[NumaNode]] = {}
    for node in sorted(nodes, key=lambda item: item.id):
        key = ("node", node.id) if node.socket is None else ("socket", node.socket)
        by_socket.setdefault(key, []).append(node)
    return list(by_socket.values())


def kept(host: Host, per_socket: int) -> dict[int, list[list[int]]]:
    """Return by NUMA node the cores that are kept: ``per_socket`` of each socket, one of each of its nodes in turn."""
    cores: dict[int, list[list[int]]] = {node.id: [] for node in host.numa_nodes}
    for socket in sockets(host.numa_nodes):
        in_turn = [(turn, node.id, core) for node in socket for turn, core in enumerate(of_node(node))]
        for _turn, node, core in sorted(in_turn)[:per_socket]:
            cores[node].append(core)
    return cores
