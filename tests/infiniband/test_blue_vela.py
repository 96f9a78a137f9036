# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Blue Vela, 4,096 HCAs on 8 rails, with the real opensm and ibsim."""

from __future__ import annotations

import ib_sites
import pytest
import simulated_subnet
from simulated_subnet import Subnet

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove

MASTER = "node-0001 mlx5_0"


@pytest.mark.long
def test_blue_vela_is_proved(tmp_path):
    site = ib_sites.blue_vela()
    cables = simulated_subnet.cables(fabric_of(site, "compute"))
    settings = {"managers": [MASTER], "partitions": {"jobs": {"pkey": 1, "members": {"nodes": "full"}}}}
    planned = plan(site, "compute", settings, simulated_subnet.guids_of(cables))
    with (
        Subnet(tmp_path / "subnet", cables) as subnet,
        subnet.manager(MASTER, subnet.configure(MASTER, planned.files, "opensm-node-0001.conf")) as home,
    ):
        proof = prove(planned, subnet.readings(MASTER, home, {"node-0001": planned.files}))
    assert [claim for claim in proof.claims if claim.holds is not True] == []
    layers = {layer: len(claims) for layer, claims in proof.by_layer().items()}
    # 256 leaves, 64 spines, 512 nodes.
    assert layers == {"cables": 1 + 256 + 64, "routes": 7 + 256, "partitions": 512, "managers": 2}
