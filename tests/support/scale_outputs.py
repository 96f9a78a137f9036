# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up outputs of Storage Scale's commands, with the headers of public ones."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import readings, request

REQUEST: dict[str, Any] = {
    "cluster": "vela.example",
    "file_systems": [
        {"name": "fs1", "mount": "/gpfs/fs1", "remote_name": "gpfs01", "remote_cluster": "storage.example"}
    ],
    "caches": [
        {
            "file_system": "cache1",
            "fileset": "granite",
            "endpoint": "https://s3.example:443",
            "bucket": "granite-data",
            "mode": "ro",
        }
    ],
    "gpudirect": True,
}
_SUMMARY = "clusterName:clusterId:uidDomain:rshPath:rshSudoWrapper:rcpPath:rcpSudoWrapper:repositoryType:"
_FILESET = (
    "filesystemName:filesetName:id:rootInode:status:path:parentId:created:inodes:dataInKB:comment:filesetMode:"
    "afmTarget:afmState:afmMode:"
)
_MEMBER = "nodeNumber:daemonNodeName:ipAddress:adminNodeName:designation:otherNodeRoles:adminLoginName:"
_STATE = "nodeName:nodeNumber:state:quorum:nodesUp:totalNodes:remarks:cnfsState:"
_HEALTH = "node:component:entityname:entitytype:status:laststatuschange:"


def lines(command: str, tag: str, header: str, *rows: str) -> str:
    """Return an output with a header and rows of the same fields."""
    start = f"{command}:{tag}"
    return "".join(
        [f"{start}:HEADER:version:reserved:reserved:{header}\n", *(f"{start}:0:1:::{row}\n" for row in rows)]
    )


def outputs(node: str, ports: str) -> dict[str, str]:
    """Return what the commands print on a healthy node with ``ports`` ("mlx5_0/1/0 ...")."""
    healthy = [f"{node}:GPFS:{node}:NODE:HEALTHY:x:", f"{node}:NETWORK:{node}:NODE:TIPS:x:"]
    healthy += [f"{node}:NETWORK:{port.rpartition('/')[0]}:IB_RDMA:HEALTHY:x:" for port in ports.split()]
    config = {"verbsRdma": "enable", "verbsPorts": ports, "verbsGPUDirectStorage": "enable"}
    return {
        "mmlscluster -Y": lines(
            "mmlscluster", "clusterSummary", _SUMMARY, "vela.example:123:vela.example:ssh:no:scp:no:CCR:"
        )
        + lines("mmlscluster", "clusterNode", _MEMBER, f"1:{node}.vela.example:10.0.0.1:{node}:quorum:::"),
        "mmgetstate -Y": lines("mmgetstate", "", _STATE, f"{node}:1:active:3:4:4::(undefined):"),
        "mmdiag --config -Y": lines(
            "mmdiag", "config", "name:value:changed:", *(f"{name}:{value}:*:" for name, value in config.items())
        ),
        "mmhealth node show -Y": "mmhealth:Event:HEADER:version:reserved:reserved:node:component:\n"
        + lines("mmhealth", "State", _HEALTH, *healthy),
        "mmlsmount fs1 -L -Y": lines(
            "mmlsmount", "", "a:b:c:d:e:f:g:h:", f"fs1:gpfs01:storage.example:1:10.0.0.1:{node}:vela.example:RW:"
        ),
        "mmlsfileset cache1 --afm -Y": lines(
            "mmlsfileset",
            "",
            _FILESET,
            "cache1:root:0:3:Linked:%2Fgpfs%2Fcache1:--:x:-:-::off:-:-:-:",
            "cache1:granite:1:9:Linked:%2Fgpfs%2Fcache1%2Fgranite:0:x:-:-::off:"
            "https%3A//s3.example%3A443/granite-data:enabled:read-only:",
        ),
    }


def reading(node: str, devices: int = 2, link_layer: str = "InfiniBand") -> dict[str, Any]:
    """Return the result of storage_scale_info on a healthy node."""
    ports = [
        {"device": f"mlx5_{number}", "port": 1, "link_layer": link_layer, "numa_node": number // 4}
        for number in range(devices)
    ]
    return {
        "changed": False,
        "ports": ports,
        "outputs": outputs(node, " ".join(f"mlx5_{number}/1/0" for number in range(devices))),
        "mounts": {"fs1": "/gpfs/fs1"},
    }


def wanted(**changes: Any) -> request.ScaleRequest:
    """Return the request with changes."""
    return request.read({**REQUEST, **changes})


def nodes(*names: str, **changes: Any) -> dict[str, readings.NodeReading]:
    """Return the readings of healthy nodes."""
    return readings.read({name: reading(name, **changes) for name in names or ("n1",)})
