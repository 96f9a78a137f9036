# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The arguments of roce_fabric_proof for a fabric that complies with its policy."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
from inventories import inventory
from roce_path import nic, reading
from sonic_configs import default_config
from switches import OWN_ASICS, PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

LOSSY = {"classes": {"roce": {"mode": "lossy"}}}


def running(system: str, wanted: Any) -> str:
    """Return a whole running configuration that has the policy."""
    if system != "sonic":
        return SYSTEMS[system].render(wanted)
    config = default_config()
    for patch in SYSTEMS[system].remediation(json.dumps(config), wanted).split("\n\n"):
        config = jsonpatch.apply_patch(config, json.loads(patch))
    return json.dumps(config)


# Requests by system and policy: tests ask hundreds of times for the same, which takes tenths of a second to make.
MADE: dict[tuple[str, str], dict[str, Any]] = {}


def params(system: str, policy: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the module's arguments: two leaves, a spine and two hosts, all of which comply with the policy."""
    key = (system, repr(policy))
    if key not in MADE:
        MADE[key] = made(system, policy if policy is not None else LOSSY if system == "linux" else {})
    return {**copy.deepcopy(MADE[key]), **changes}


def made(system: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the same without changes, planned and rendered."""
    switches = inventory(system, PORTS[system])
    wanted = plan(read_policy(given), read_switches(switches, asics=OWN_ASICS))
    data = reading(nic(read_policy(given)))
    return {
        "name": "fabric",
        "policy": given,
        "switches": switches,
        "asics": OWN_ASICS,
        "hosts": None,
        "running": {name: running(system, each) for name, each in wanted.items()},
        "nics": {host: {"mlx5_0": data} for host in ("gpu1", "gpu2")},
        "applications": {host: [{"name": "NCCL", "tos": 106, "queue_pairs": 4}] for host in ("gpu1", "gpu2")},
    }


def judged(system: str, text: str) -> tuple[list[dict[str, Any]], list[Any], str]:
    """Return the faults of the path, and the failed claims and first failure of the proof, if spine1 has ``text``."""
    request = params(system)
    request["running"]["spine1"] = text
    path = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})
    proof, first = prove(request)
    return path["faults"], [claim for claim in proof.claims if claim.holds is False], first
