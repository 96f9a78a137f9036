# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lossy to lossless and back: no step pauses a priority without headroom, or lets one side alone pause for longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from roce_path import nic
from switches import policies, port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import Qos, stages

HEADROOM = "switches have their classes, queues and headroom"
SWITCH_ON, NIC_ON = "switches pause what is lossless", "NICs pause what is lossless"
SWITCH_OFF, NIC_OFF = "switches no longer pause what becomes lossy", "NICs no longer pause what becomes lossy"
LOSSY, LOSSLESS = ({"classes": {"roce": {"mode": mode}}} for mode in ("lossy", "lossless"))


def qos(policy_given):
    policy = read_policy(policy_given)
    port = port_qos(policy)
    switches = {name: Switch(name, "any", {"p1": port, "p2": port}, policy.ecmp_fields) for name in ("leaf", "spine")}
    buffers = dict.fromkeys(("priority_to_buffer", "buffer_bytes"), (None,) * 8)  # left to the driver
    return Qos(switches, {(host, "mlx5_0"): replace(nic(policy), **buffers) for host in ("gpu1", "gpu2")})


def names(now, wanted):
    return [stage.name for stage in stages(now, wanted)]


def run(now, steps):
    """Yield the state after each stage."""
    for stage in steps:
        now = Qos({**now.switches, **stage.switches}, {**now.nics, **stage.nics})
        yield now


def test_migration_to_lossless_sets_headroom_first_and_nic_pfc_last():
    assert names(qos(LOSSY), qos(LOSSLESS)) == [HEADROOM, SWITCH_ON, NIC_ON]


def test_migration_to_lossy_removes_nic_pfc_first_and_headroom_last():
    assert names(qos(LOSSLESS), qos(LOSSY)) == [NIC_OFF, SWITCH_OFF, HEADROOM]


def test_there_are_no_stages_if_all_settings_are_as_wanted():
    assert stages(qos(LOSSLESS), qos(LOSSLESS)) == []


def test_an_unconfigured_fabric_gets_all_stages():
    steps = stages(Qos(), qos(LOSSLESS))
    assert [stage.name for stage in steps] == [HEADROOM, "NICs have their classes and marks", SWITCH_ON, NIC_ON]
    assert list(run(Qos(), steps))[-1] == qos(LOSSLESS)


def test_ports_outside_the_policy_are_kept():
    now = qos(LOSSY)
    changed = replace(
        now.switches["leaf"], ports={**now.switches["leaf"].ports, "other": port_qos(read_policy(LOSSLESS))}
    )
    now = replace(now, switches={**now.switches, "leaf": changed})
    *_rest, end = run(now, stages(now, qos(LOSSLESS)))
    assert end.switches["leaf"].ports["other"] == changed.ports["other"]


@given(policies(), policies())
def test_paused_priorities_have_headroom_at_every_step(first, second):
    now, wanted = qos(first), qos(second)
    steps = stages(now, wanted)
    states = [now, *run(now, steps)]
    assert states[-1] == wanted
    for state in states:
        for switch in state.switches.values():
            for port in switch.ports.values():
                assert all(port.headroom[priority] for priority in port.pfc)
        # NICs begin to pause after the switches, and stop before them.
        everywhere = set.intersection(
            *(set(port.pfc) for switch in state.switches.values() for port in switch.ports.values())
        )
        assert all(set(nic_state.pfc) <= everywhere for nic_state in state.nics.values())


@pytest.mark.parametrize("given_policy", [LOSSY, LOSSLESS])
def test_the_same_input_gives_the_same_stages(given_policy):
    assert stages(Qos(), qos(given_policy)) == stages(Qos(), qos(given_policy))
