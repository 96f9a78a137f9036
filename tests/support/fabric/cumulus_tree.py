# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cumulus configurations as trees of NVUE."""

from __future__ import annotations

import json
from typing import Any

import pytest
import switches

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus

PORTS = ["swp1", "swp2", "swp3s0"]


# The output of `nv config show` if an engineer has typed `nv set qos roce` and little else.
BY_HAND = """- header:
    model: MSN4600C
    nvue-api-version: nvue_v1
    rev-id: 1.0
    version: Cumulus Linux 5.9.2
- set:
    bridge:
      domain:
        br_default:
          vlan:
            '10':
              vni:
                '10': {}
    interface:
      eth0:
        ip:
          address:
            dhcp: {}
          vrf: mgmt
        type: eth
      swp1-3,5:
        link:
          mtu: 9216
        type: swp
      swp2:
        description: 'to gpu02: mlx5_0'
    qos:
      roce:
        enable: on
        mode: lossless
    system:
      config:
        snippet:
          frr.conf: |
            dump bgp routes-mrt /tmp/x
      hostname: leaf1
"""


def reference(**changes: Any) -> Switch:
    return switches.switch("cumulus", PORTS, **changes)


def tree_of(switch: Switch) -> dict[str, Any]:
    return json.loads(cumulus.render(switch))[0]["set"]


def as_text(tree: dict[str, Any]) -> str:
    return json.dumps([{"header": {"version": "Cumulus Linux 5.9.2"}}, {"set": tree}])


def read(tree: dict[str, Any]) -> Switch:
    return cumulus.parse(json.dumps(tree), "leaf1")


def refused(tree: dict[str, Any]) -> str:
    """Return why a tree is refused, without the name of the switch."""
    with pytest.raises(FabricError) as error:
        read(tree)
    return str(error.value).removeprefix("leaf1: NVUE configuration: ")
