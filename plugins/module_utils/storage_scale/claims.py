# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of Storage Scale's clients: what their daemons and kernels say, compared with the request. Pure.

What could not be read fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import plan, readings
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.readings import NodeReading
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import (
    MODES,
    BucketCache,
    ScaleRequest,
)

LAYER = "storage_scale"
# TIPS: healthy, with advice (mmhealth).
HEALTHY = ("HEALTHY", "TIPS")
# Of a line of mmlsmount: the device here, the device in its own cluster, that cluster. The order is of a public output.
DEVICE, REMOTE_DEVICE, OWNER = 0, 1, 2


def claims(request: ScaleRequest, nodes: Mapping[str, NodeReading]) -> list[Claim]:
    """Return the claims of all nodes, by node, and of each cache. Raises ScaleError for rails that a node lacks."""
    judged = []
    for node in sorted(nodes):
        judged += [*_node(request, node, nodes[node]), *_file_systems(request, node, nodes[node])]
    return judged + [claim for cache in request.caches for claim in _cache(cache, nodes)]


def _node(request: ScaleRequest, node: str, reading: NodeReading) -> list[Claim]:
    members = reading.records(readings.CLUSTER, "clusterNode")
    names = None if members is None else sorted(record.fields.get("daemonNodeName", "") for record in members)
    short = None if names is None else {name.partition(".")[0] for name in names}
    cluster = reading.one(readings.CLUSTER, "clusterName", "clusterSummary")
    state = reading.one(readings.STATE, "state")
    judged = [
        compare(LAYER, f"{node} is in its cluster", request.cluster, cluster, f"{node}: {readings.CLUSTER}"),
        compare(
            LAYER,
            f"{node} is a member",
            True,
            None if short is None else node.partition(".")[0] in short,
            f"{node}: {readings.CLUSTER}",
        ),
        compare(LAYER, f"the daemon of {node} is active", "active", state, f"{node}: {readings.STATE}"),
    ]
    chosen = plan.ports(request, node, reading)
    running = {
        record.fields.get("name"): record.fields.get("value")
        for record in reading.records(readings.CONFIG, "config") or []
    }
    for name, value in plan.settings(request, chosen).items():
        seen = running.get(name)
        as_set = name == "verbsPorts"
        judged.append(
            compare(
                LAYER,
                f"{name} of {node}",
                _ports(value) if as_set else value,
                _ports(seen) if as_set and seen is not None else seen,
                f"{node}: {readings.CONFIG}",
            )
        )
    return judged + _health(node, reading, [f"{port.device}/{port.port}" for port in chosen])


def _ports(text: str) -> list[str]:
    """Return the ports of verbsPorts in order, as device/port/fabric; left out, the port is 1 and the fabric 0."""
    parts = [port.split("/") for port in text.split()]
    return sorted("/".join([*part, *("1", "0")[len(part) - 1 :]]) for part in parts)


def _health(node: str, reading: NodeReading, ports: list[str]) -> list[Claim]:
    source = f"{node}: {readings.HEALTH}"
    states = reading.records(readings.HEALTH, "State")
    if not states:
        return [Claim(LAYER, f"{node} is healthy", "HEALTHY", None, False, source, "mmhealth could not be read")]
    judged = []
    by_port = {}
    for fields in (record.fields for record in states):
        status = fields.get("status") or None
        if fields.get("entitytype") == "NODE":
            claim = f"{fields.get('component', '')} of {node} is healthy"
            judged.append(Claim(LAYER, claim, "HEALTHY", status, status in HEALTHY, source))
        elif fields.get("entitytype") == "IB_RDMA":
            by_port[fields.get("entityname")] = status
    for port in ports:
        status = by_port.get(port)
        claim = f"RDMA port {port} of {node} is healthy"
        judged.append(Claim(LAYER, claim, "HEALTHY", status, status in HEALTHY, source))
    return judged


def _file_systems(request: ScaleRequest, node: str, reading: NodeReading) -> list[Claim]:
    judged = []
    for item in request.file_systems:
        command = readings.mounts_of(item.name)
        rows = [record.ordered for record in reading.records(command) or [] if len(record.ordered) > OWNER]
        owners = {(row[REMOTE_DEVICE], row[OWNER]) for row in rows if row[DEVICE] == item.name}
        origin = [" of ".join(owner) for owner in sorted(owners)] or None
        judged += [
            compare(
                LAYER,
                f"{item.name} is mounted on {node}",
                item.mount,
                reading.mounts.get(item.name),
                f"{node}: /proc/mounts",
            ),
            compare(
                LAYER,
                f"{item.name} on {node} is the remote file system",
                [f"{item.remote_name} of {item.remote_cluster}"],
                origin,
                f"{node}: {command}",
            ),
        ]
    return judged


def _cache(cache: BucketCache, nodes: Mapping[str, NodeReading]) -> list[Claim]:
    """Return the claims about a fileset, from the first node that could list it."""
    command, title = readings.filesets_of(cache.file_system), f"fileset {cache.file_system}:{cache.fileset}"
    fields: dict[str, str] = {}
    source = command
    for node in sorted(nodes):
        rows = nodes[node].records(command)
        if rows is not None:
            records = (record.fields for record in rows if record.fields.get("filesetName") == cache.fileset)
            fields, source = next(records, {}), f"{node}: {command}"
            break
    mode, target = fields.get("afmMode"), fields.get("afmTarget")
    seen_mode = next((key for key, aliases in MODES.items() if mode and mode.lower() in (key, aliases)), mode)
    bucket = None if target is None else cache.bucket if cache.bucket in target.split("/") else target
    return [
        compare(LAYER, f"{title} is linked", "Linked", fields.get("status"), source),
        compare(LAYER, f"{title} has AFM", "enabled", fields.get("afmState"), source),
        compare(LAYER, f"{title} has its mode", cache.mode, seen_mode, source),
        compare(LAYER, f"{title} has its bucket", cache.bucket, bucket, source),
    ]
