# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of LSF for a small site: its hosts, groups, compute units and the health of nodes. No LSF has read them."""

from __future__ import annotations

import pytest
import sites
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan

NODES = ["gpu01", "gpu02", "gpu03", "gpu04"]
SETTINGS = {
    "scheduler": "lsf",
    "cluster": "vela",
    "controllers": ["c1", "c2"],
    "partitions": [{"name": "train", "groups": ["nodes"]}],
}
HEAD = "# Written by sailloft.fleet.slurm_plan; changes here are lost.\n"
GOLDEN = {
    "lsf.conf": """LSF_GPU_AUTOCONFIG=Y
LSB_GPU_NEW_SYNTAX=extend
LSF_GPU_RESOURCE_IGNORE=Y
LSF_MASTER_LIST="c1 c2"
""",
    "lsf.shared": """Begin Cluster
ClusterName
vela
End Cluster
Begin Resource
RESOURCENAME TYPE INTERVAL INCREASING DESCRIPTION
sailloft_health Numeric 60 Y (0 fit for work, 1 not, 2 not known)
End Resource
""",
    "lsf.cluster.vela": """Begin Host
HOSTNAME model type server RESOURCES
c1 ! ! 1 ()
c2 ! ! 1 ()
gpu01 ! ! 1 ()
gpu02 ! ! 1 ()
gpu03 ! ! 1 ()
gpu04 ! ! 1 ()
End Host
Begin ResourceMap
RESOURCENAME LOCATION
sailloft_health [default]
End ResourceMap
""",
    "lsb.params": """Begin Parameters
COMPUTE_UNIT_TYPES=layer1! layer2
End Parameters
""",
    "lsb.hosts": """Begin Host
HOST_NAME MXJ sailloft_health
c1 0 ()
c2 0 ()
default ! 0.5
End Host
Begin HostGroup
GROUP_NAME GROUP_MEMBER
train (gpu01 gpu02 gpu03 gpu04)
spares (gpu02)
End HostGroup
Begin ComputeUnit
NAME MEMBER TYPE
layer1-1 (gpu01 gpu02) layer1
layer1-2 (gpu03 gpu04) layer1
layer2-1 (layer1-1 layer1-2) layer2
End ComputeUnit
""",
}


def test_the_files_are_the_golden_ones():
    made = plan(SETTINGS, {"nodes": NODES}, {}, sites.site(), ["gpu02"])
    elim = made.files.pop("elim.sailloft_health")
    assert made.files == {name: HEAD + text for name, text in GOLDEN.items()}
    assert elim.splitlines()[-1] == "exec /usr/bin/sailloft-health --format lsf --every 60"


def test_without_a_blueprint_there_are_no_compute_units():
    texts = plan(SETTINGS, {"nodes": NODES}, {}).files
    assert "ComputeUnit" not in texts["lsb.hosts"]
    assert "COMPUTE_UNIT_TYPES" not in texts["lsb.params"]


@pytest.mark.parametrize("setting", [{"version": "25.05"}, {"options": {"A": "1"}}, {"prolog": "/opt/prolog"}])
def test_settings_of_slurm_are_refused(setting):
    with raises(SchedulerError, next(iter(setting)), "LSF"):
        plan({**SETTINGS, **setting}, {"nodes": NODES}, {})
