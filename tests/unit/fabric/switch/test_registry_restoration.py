# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each system's change back to a backup, after policies were applied to it; Linux's is in test_linux_restoration.py."""

from __future__ import annotations

import json
from typing import Any

import eos_switch
import jsonpatch
import junos_switch
import nxos_switch
import pytest
import sonic_configs
import switches

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running import eos as eos_running
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running import nxos as nxos_running
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

LOSSY = {"classes": {"roce": {"mode": "lossy", "dscp": 24}}}
EOS = """\
hostname leaf1
qos map dscp 46 to traffic-class 5 drop-precedence 1
qos map dscp 26 to traffic-class 1
qos rewrite dscp
ip load-sharing trident fields ip source-ip
ip load-sharing trident fields ipv6 source-ip source-port
qos profile USER
   qos trust cos
   uc-tx-queue 3
      bandwidth percent 20
interface Ethernet1/1
   description to gpu01
   mtu 1500
   no switchport
   service-profile USER
   uc-tx-queue 3
      bandwidth percent 30
interface Ethernet2/1
   priority-flow-control on
   priority-flow-control priority 4 no-drop
"""


def eos(running: str, change: str) -> str:
    box = eos_switch.Box(running)
    box.apply(change.splitlines())
    return box.text()


def sonic(running: str, change: str) -> str:
    config = json.loads(running)
    for part in change.split("\n\n"):
        config = jsonpatch.apply_patch(config, json.loads(part))
    return json.dumps(config)


# hier-config does not divide a range of ports.
NXOS = nxos_switch.BY_HAND.replace("interface Ethernet1/1-3, Ethernet1/5", "interface Ethernet1/1")
SONIC = sonic_configs.default_config()
SONIC_IN_RANGES = {
    **SONIC,
    "QUEUE": {"Ethernet0,Ethernet8|0-2": {"scheduler": "scheduler.0"}, "Ethernet4|3-4": {"scheduler": "scheduler.1"}},
}
# System, the effect of a change, the ports of the policies, the configuration before them.
STARTS = {
    "eos without QoS": (
        "eos",
        eos,
        ["Ethernet1/1", "Ethernet2/1"],
        "hostname leaf1\ninterface Ethernet1/1\ninterface Ethernet2/1\n   mtu 1500\n",
    ),
    "eos with QoS": ("eos", eos, ["Ethernet1/1", "Ethernet2/1"], EOS),
    "nxos without QoS": (
        "nxos",
        nxos_switch.apply,
        ["Ethernet1/1"],
        "hostname leaf1\ninterface Ethernet1/1\n  mtu 1500\n",
    ),
    "nxos with QoS": ("nxos", nxos_switch.apply, ["Ethernet1/1"], NXOS),
    "junos without QoS": (
        "junos",
        junos_switch.commit,
        ["et-0/0/0"],
        "set system host-name leaf1\nset interfaces et-0/0/0 mtu 1514\n",
    ),
    "junos with QoS": ("junos", junos_switch.commit, ["et-0/0/0", "et-0/0/1"], junos_switch.BY_HAND),
    "sonic": ("sonic", sonic, ["Ethernet0", "Ethernet8"], json.dumps(SONIC)),
    "sonic with keys of several ports": (
        "sonic",
        sonic,
        ["Ethernet0", "Ethernet8"],
        json.dumps(sonic_configs.with_brackets(SONIC)),
    ),
    "sonic with ranges": ("sonic", sonic, ["Ethernet0", "Ethernet8"], json.dumps(SONIC_IN_RANGES)),
}


def lines(text: str) -> Any:
    """Return a configuration in a form that does not depend on the order of its lines, without lines of defaults."""
    if text.startswith("{"):
        return json.loads(text)
    defaults = {
        *(
            f"qos map dscp {dscp} to traffic-class {traffic_class}"
            for dscp, traffic_class in enumerate(eos_running.DEFAULT_DSCP_MAP)
        ),
        *(f"{key} {number}" for key, number in nxos_running.WATCHDOG_DEFAULTS.items()),
        f"{nxos_running.WATCHDOG} off",
        nxos_running.LOAD_SHARING,
        "system qos",  # without a line below it
    }
    return sorted(set(filter(None, map(str.rstrip, text.splitlines()))) - defaults)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("policies", [({},), (LOSSY,), (LOSSY, {})], ids=["lossless", "lossy", "both"])
def test_a_configuration_is_restored_exactly(start, policies):
    name, apply, ports, original = STARTS[start]
    system = SYSTEMS[name]
    original = apply(original, "") if name != "sonic" else original  # as the switch prints it
    changed = original
    for policy in policies:
        changed = apply(changed, system.remediation(changed, switches.switch(name, ports, policy)))
    change = system.restoration(original, changed, "leaf1")
    back = apply(changed, change)
    assert system.parse(back, "leaf1") == system.parse(original, "leaf1")
    assert lines(back) == lines(original)
    assert system.restoration(original, back, "leaf1") == ""
    assert system.restoration(changed, changed, "leaf1") == ""
