# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The variables of IBM's collection ibm.spectrum_scale, as an inventory. Pure.

Read at IBM/ibm-spectrum-scale-install-infra b3add62 (3.0.0): core_configure/tasks/config.yml (scale_nodeclass,
scale_config), remotemount_configure/tasks/mount_filesystem_api_cli.yml, afm_cos_configure/tasks/afm_configure.yml.
Never run against Storage Scale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.readings import NodeReading, RdmaPort
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError, ScaleRequest

NODE_CLASS = "sailloft_ports_{}"
INVENTORY = "scale.json"


def ports(request: ScaleRequest, node: str, reading: NodeReading) -> dict[RdmaPort, int]:
    """Return the ports that Scale uses on a node, by rail, with their virtual fabric. Raises ScaleError.

    Ports of different virtual fabrics do not connect (mmchconfig, verbsPorts).
    """
    chosen = request.rails or range(len(reading.ports))
    missing = [rail for rail in chosen if rail >= len(reading.ports)]
    if missing or not reading.ports:
        raise ScaleError(
            f"{node}: it has {len(reading.ports)} RDMA ports, and rail {missing[0] if missing else 0} is wanted",
            "correct rails, or read the node again when its RDMA drivers are loaded",
        )
    return {reading.ports[rail]: rail if request.fabric_per_rail else 0 for rail in chosen}


def verbs_ports(chosen: Mapping[RdmaPort, int]) -> str:
    """Return the value of verbsPorts: device/port/fabric of each port."""
    return " ".join(f"{port.device}/{port.port}/{fabric}" for port, fabric in chosen.items())


def settings(request: ScaleRequest, chosen: Mapping[RdmaPort, int]) -> dict[str, str]:
    """Return the settings of mmchconfig for a node with these ports. RoCE connects by the connection manager."""
    wanted = {"verbsRdma": "enable", "verbsPorts": verbs_ports(chosen)}
    if any(port.link_layer == "Ethernet" for port in chosen):
        wanted["verbsRdmaCm"] = "enable"
    if request.gpudirect:
        wanted["verbsGPUDirectStorage"] = "enable"
    return wanted


def inventory(request: ScaleRequest, readings: Mapping[str, NodeReading]) -> str:
    """Return the inventory with IBM's variables, without secrets, as JSON. Raises ScaleError.

    Nodes with equal settings are one node class. IBM's role puts values into a command line, so those with spaces have
    quotes; because of them it sets such a value at every run.
    """
    by_settings: dict[str, list[str]] = {}
    for node in sorted(readings):
        text = json.dumps(settings(request, ports(request, node, readings[node])), sort_keys=True)
        by_settings.setdefault(text, []).append(node)
    hosts: dict[str, dict[str, Any]] = {}
    config = []
    for number, (text, nodes) in enumerate(by_settings.items()):
        name = NODE_CLASS.format(number)
        hosts.update({node: {"scale_nodeclass": [name]} for node in nodes})
        params = [{key: f"'{value}'" if " " in value else value} for key, value in json.loads(text).items()]
        config.append({"nodeclass": name, "params": params})
    variables: dict[str, Any] = {"scale_cluster_clustername": request.cluster, "scale_config": config}
    if request.file_systems:
        variables["scale_remotemount_filesystem_name"] = [
            {
                "scale_remotemount_client_filesystem_name": item.name,
                "scale_remotemount_client_remotemount_path": item.mount,
                "scale_remotemount_storage_filesystem_name": item.remote_name,
            }
            for item in request.file_systems
        ]
    if request.caches:
        variables["scale_afm_cos_filesets_params"] = [
            {
                "filesystem": item.file_system,
                "fileset": item.fileset,
                "endpoint": item.endpoint,
                "bucket": item.bucket,
                "mode": item.mode,
            }
            for item in request.caches
        ]
    document = {"all": {"hosts": hosts, "vars": variables}}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
