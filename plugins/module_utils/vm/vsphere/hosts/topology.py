# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of vsphere_host_topology_info: ESXi hosts as topologies, and the shares of their virtual machines."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import write_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import VsphereCluster


def read(params: dict[str, Any]) -> dict[str, Any]:
    """Return the hosts of the module's ``params``. Raises DomainError, TopologyError."""
    with Session(Login.of(params)) as session:
        site = VsphereCluster(session, params["cluster"])
        rows = []
        for host in site.chosen(params["hosts"]):
            model = site.model(host, params["accelerators"])
            holdings = read_back.holdings({item.name: item.config for item in host.machines.values()}, model)
            row: dict[str, Any] = {
                "name": host.name,
                "cluster": host.cluster,
                "topology": model.to_dict(),
                "machines": [
                    {
                        "name": item.name,
                        "state": item.state,
                        "memory_mib": item.config.hardware.memoryMB,
                        "vcpus": item.config.hardware.numCPU,
                        "devices": holdings[item.name].devices,
                    }
                    for _name, item in sorted(host.machines.items())
                ],
            }
            if params["record"]:
                row["recording"] = write_recording(model)
            rows.append(row)
    first: dict[str, Any] = (
        {key: rows[0][key] for key in ("topology", "recording") if key in rows[0]} if len(rows) == 1 else {}
    )
    return {"changed": False, "hosts": rows, **first}
