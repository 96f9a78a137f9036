# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The objects are valid for Kubernetes and, where their originals are at hand, for the operators' definitions."""

from __future__ import annotations

import copy

import jsonschema
import pytest
import schemas
from planned_clusters import WITH_RAILS, recorded, small

from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.request import PARTS

ALL = {"parts": list(PARTS), "multinic_subnet": "10.200.0.0/16", "ipam": {"type": "nv-ipam", "poolName": "{rail}"}}
needs_originals = pytest.mark.skipif(
    not schemas.ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals"
)


def objects_of(planned):
    return [item for items in planned.objects.values() for item in items]


def test_kubernetes_own_objects_are_valid():
    checked = {item["kind"] for item in objects_of(small(ALL)) if schemas.check(item)}
    assert checked >= {"Node", "DeviceClass", "ConfigMap", "DaemonSet", "ServiceAccount", "ClusterRoleBinding"}


@needs_originals
@pytest.mark.parametrize("name", WITH_RAILS)
def test_all_objects_are_valid_for_all_recorded_servers(name):
    planned = plan(ALL, {"gpu_nodes": ["a"]}, {"a": recorded(name)}, {})
    assert all(schemas.check(item) for item in objects_of(planned))


@needs_originals
def test_a_site_with_all_parts_is_valid_and_a_wrong_field_is_not():
    nics = {f"mlx5_{number}": {"speed_gbit_s": 400, "cable_m": 5} for number in range(8)}
    planned = small(ALL, {"roce_host_nics": nics})
    assert set(planned.objects) == set(PARTS) - {"kubelet"}
    for part, items in planned.objects.items():
        assert items, part
        assert all(schemas.check(item) for item in items)
    for kind in ("SriovNetworkNodePolicy", "NicConfigurationTemplate", "ResourceFlavor", "ClusterPolicy"):
        wrong = copy.deepcopy(next(item for item in objects_of(planned) if item["kind"] == kind))
        wrong["spec"]["cableLength"] = 5
        with pytest.raises(jsonschema.ValidationError):
            schemas.check(wrong)
