# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Steps from the current to the wanted QoS, in an order that never pauses a priority at one end of a link only. Pure.

The order itself drops no packet of a lossless class; what a change interrupts on its switch is in ``interruptions`` of
its system. If a NIC obeys pauses before switches have headroom, packets are lost; if a switch pauses a NIC that does
not obey, the switch's buffer fills. So a class that becomes lossless gets its buffers first, then the switches' PFC,
and the NICs' PFC last; for a class that becomes lossy, the order is reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, PortQos, Switch

NicName = tuple[str, str]  # host, NIC
End = TypeVar("End", PortQos, Nic)  # of a link

NICS_LESS_PFC = "NICs no longer pause what becomes lossy"
SWITCHES_LESS_PFC = "switches no longer pause what becomes lossy"
SWITCHES_SET = "switches have their classes, queues and headroom"
NICS_SET = "NICs have their classes and marks"
SWITCHES_ALL = "switches pause what is lossless"
NICS_ALL = "NICs pause what is lossless"
LESS_PFC, SETTINGS, ALL = "less_pfc", "settings", "all"
STEPS = {  # the stages in order, each with roce_host's value of "stage" for it
    NICS_LESS_PFC: LESS_PFC,
    SWITCHES_LESS_PFC: LESS_PFC,
    SWITCHES_SET: SETTINGS,
    NICS_SET: SETTINGS,
    SWITCHES_ALL: ALL,
    NICS_ALL: ALL,
}
ORDER = list(STEPS)
NIC_STAGES = (NICS_LESS_PFC, NICS_SET, NICS_ALL)


@dataclass(frozen=True)
class Qos:
    """The QoS of a whole fabric, current or wanted."""

    switches: Mapping[str, Switch] = field(default_factory=dict)
    nics: Mapping[NicName, Nic] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """One step, completed on every device before the next begins. It contains only what changes, in its new state."""

    name: str
    switches: dict[str, Switch] = field(default_factory=dict)
    nics: dict[NicName, Nic] = field(default_factory=dict)


def stages(now: Qos, wanted: Qos) -> list[Stage]:
    """Return the steps from ``now`` to ``wanted``, without steps that would change nothing.

    Devices and ports that ``wanted`` lacks stay as they are; a device that ``now`` lacks is treated as without QoS.
    """
    steps: dict[str, Callable[[Any, Any], Any]] = {
        NICS_LESS_PFC: _less_pfc,
        SWITCHES_LESS_PFC: _less_pfc,
        SWITCHES_SET: _all_but_new_pfc,
        NICS_SET: _all_but_new_pfc,
        SWITCHES_ALL: _wanted_state,
        NICS_ALL: _wanted_state,
    }
    changing = []
    switches = {name: now.switches.get(name, Switch(name, switch.system)) for name, switch in wanted.switches.items()}
    nics = {name: now.nics.get(name, Nic(nic.name, nic.interface)) for name, nic in wanted.nics.items()}
    for name, step in steps.items():
        stage = Stage(name)
        if name in NIC_STAGES:
            after_nics = {nic: step(nics[nic], goal) for nic, goal in wanted.nics.items()}
            stage.nics.update({nic: state for nic, state in after_nics.items() if state != nics[nic]})
        else:
            after_switches = {switch: _switch(switches[switch], goal, step) for switch, goal in wanted.switches.items()}
            stage.switches.update({name: state for name, state in after_switches.items() if state != switches[name]})
        switches.update(stage.switches)
        nics.update(stage.nics)
        if stage.switches or stage.nics:
            changing.append(stage)
    return changing


def _switch(now: Switch, wanted: Switch, step: Callable[[PortQos, PortQos], PortQos]) -> Switch:
    if step is _less_pfc:
        reduced = {name: step(qos, wanted.ports[name]) for name, qos in now.ports.items() if name in wanted.ports}
        return replace(now, ports={**now.ports, **reduced})
    ports = {name: step(now.ports.get(name, PortQos()), qos) for name, qos in wanted.ports.items()}
    return replace(now, ports={**now.ports, **ports}, ecmp_fields=wanted.ecmp_fields)


def _common_pfc(now: PortQos | Nic, wanted: PortQos | Nic) -> tuple[int, ...]:
    return tuple(priority for priority in now.pfc if priority in wanted.pfc)


def _less_pfc(now: End, wanted: End) -> End:
    return replace(now, pfc=_common_pfc(now, wanted))


def _all_but_new_pfc(now: End, wanted: End) -> End:
    return replace(wanted, pfc=_common_pfc(now, wanted))


def _wanted_state(_now: End, wanted: End) -> End:
    return wanted
