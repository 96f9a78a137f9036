# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One wrong port of a correct fabric, in each system's configuration, is named by the path and the proof.

Changes that a system cannot represent or does not show are listed: none is skipped silently.
"""

from __future__ import annotations

import json
from dataclasses import replace

import jsonpatch
import pytest
from inventories import no_headroom
from proof_requests import params
from roce_path import at
from sonic_configs import default_config
from switches import PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


def _headroom(qos, **changes):
    headroom = qos.headroom[3]
    return {"headroom": at(qos.headroom, 3, headroom and replace(headroom, **changes))}


# The change of the port, and True if it is a fault only under a lossless policy.
MUTATIONS = {
    "DSCP 27 in RoCE's class, and 26 not": (
        lambda qos: {"dscp_to_class": at(at(qos.dscp_to_class, 26, 0), 27, 3)},
        False,
    ),
    "another DSCP in RoCE's class": (lambda qos: {"dscp_to_class": at(qos.dscp_to_class, 3, 3)}, False),
    "CNPs in another class": (lambda qos: {"dscp_to_class": at(qos.dscp_to_class, 48, 0)}, False),
    "no ECN": (lambda qos: {"queues": at(qos.queues, 3, Queue(False, 50))}, False),
    "ECN much later": (
        lambda qos: {"queues": at(qos.queues, 3, Queue(False, 50, Ecn(4_000_000, 8_000_000, 100)))},
        False,
    ),
    "CNPs with a share": (
        lambda qos: {"queues": at(at(at(qos.queues, 6, Queue(False, 20)), 0, Queue(False, 30)), 3, qos.queues[3])},
        False,
    ),
    "an MTU of 1500": (lambda _qos: {"ip_mtu_bytes": 1500}, False),
    "no PFC": (lambda _qos: {"pfc": (), "headroom": (None,) * 8, "watchdog": None}, True),
    "PFC for one priority more": (
        lambda qos: {"pfc": (0, 3), "headroom": at(qos.headroom, 0, qos.headroom[3])},
        True,
    ),
    "no watchdog": (lambda _qos: {"watchdog": None}, True),
    "headroom of 10,000 bytes": (lambda qos: _headroom(qos, xoff_bytes=10_000), True),
    "another alpha": (lambda qos: _headroom(qos, alpha_exponent=-3), True),
}
# Changes that cannot be configured on a system that computes headroom itself.
OF_HEADROOM = {"headroom of 10,000 bytes", "another alpha"}


def written(system, wanted):
    """Return a running configuration that has ``wanted``, or None if the system cannot represent it."""
    try:
        text = SYSTEMS[system].render(wanted)
        if system == "sonic":
            config = default_config()
            for patch in SYSTEMS[system].remediation(json.dumps(config), wanted).split("\n\n"):
                config = jsonpatch.apply_patch(config, json.loads(patch))
            text = json.dumps(config)
    except FabricError:
        return None
    return text


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_wrong_port_is_named_by_the_path_and_the_proof(system, name):
    change, lossless = MUTATIONS[name]
    if system == "linux" and lossless:
        return  # a policy with a lossless class is refused earlier
    request = params(system)
    wanted = plan(read_policy(request["policy"]), read_switches(request["switches"], asics=request["asics"]))["spine1"]
    ports = {port: replace(qos, **change(qos)) for port, qos in wanted.ports.items()}
    text = written(system, replace(wanted, ports=ports))
    seen = text and SYSTEMS[system].parse(text, "spine1")
    right = SYSTEMS[system].parse(request["running"]["spine1"], "spine1")
    detected = bool(text) and {port: seen.ports[port] for port in ports} != {port: right.ports[port] for port in ports}
    assert detected == (name not in OF_HEADROOM or not no_headroom(system))
    if not detected:
        return
    request["running"]["spine1"] = text
    path = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})
    assert path["faults"], "the path names it"
    assert all("spine1" in fault["where"] for fault in path["faults"])  # or on the cables to it
    proof, first = prove(request)
    assert not proof.holds
    assert first.startswith(f"spine1: {next(iter(PORTS[system]))}")
