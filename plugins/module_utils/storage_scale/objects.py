# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The objects of IBM Storage Scale container native (CNSA) for the same request. Pure.

Kinds and fields: the CRDs of IBM/ibm-spectrum-scale-container-native 8ae739a, config/base/apis/scale/v1beta1, for which
they are valid. Its Cluster has no field for verbsPorts or GPUDirect Storage. Never applied to a cluster.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleRequest

API, NAMESPACE = "scale.spectrum.ibm.com/v1beta1", "ibm-spectrum-scale"
OBJECTS = "scale-objects.json"
CLUSTER = "ibm-spectrum-scale"


@dataclass(frozen=True)
class ContainerNative:
    """The settings that only the containers need. ``gui`` is the host of each remote cluster's REST API, by cluster.

    ``gui_secret`` and ``csi_secret`` name the secrets with its users, which the administrator makes.
    """

    license: str
    node_selector: dict[str, str]
    gui: dict[str, str]
    gui_secret: str
    csi_secret: str


def objects(request: ScaleRequest, native: ContainerNative) -> str:
    """Return the objects as one JSON list for kubectl and kubernetes.core."""
    spec = {
        "license": {"accept": True, "license": native.license},
        "daemon": {
            "nodeSelector": native.node_selector,
            "roles": [{"name": "client"}, *([{"name": "afm"}] if request.caches else [])],
        },
    }
    items = [_object("Cluster", CLUSTER, spec)]
    for cluster in sorted({item.remote_cluster for item in request.file_systems}):
        gui = {
            "host": native.gui.get(cluster, cluster),
            "secretName": native.gui_secret,
            "csiSecretName": native.csi_secret,
            "insecureSkipVerify": False,
        }
        items.append(_object("RemoteCluster", _label(cluster), {"gui": gui}))
    for item in request.file_systems:
        remote = {"cluster": _label(item.remote_cluster), "fs": item.remote_name}
        items.append(_object("Filesystem", _label(item.name), {"remote": remote}))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2, sort_keys=True) + "\n"


def _label(name: str) -> str:
    """Return the name of an object, which has lower-case letters, digits and "-" (RFC 1123)."""
    return name.lower().replace("_", "-").replace(".", "-").strip("-")


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    # A Cluster belongs to no namespace.
    place = {} if kind == "Cluster" else {"namespace": NAMESPACE}
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **place}, "spec": spec}
