# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switch systems: how a configuration is rendered, read back and changed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import CounterTable
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, PortQos, Switch


def _any_cable(subject: str, cable_m: int | None) -> None:
    """Accept every cable."""


def _whole(text: str) -> str:
    return text


def _same_length(cable_m: int) -> int:
    return cable_m


@dataclass(frozen=True)
class SwitchSystem:
    """A switch system. All texts are in its own format; all functions are pure: the same input gives the same bytes."""

    # As in roce_switch_system, and the directory of its tasks in the role roce_switch.
    name: str
    # The configuration of a planned switch; only what concerns QoS. FabricError for what the system cannot hold.
    render: Callable[[Switch], str]
    # parse(text, name): a running configuration (all of it or only its QoS), also one that ``render`` did not write;
    # FabricError if it is not of this system. An empty text is a configuration only where a switch without QoS shows
    # nothing; read.yml must then fail if its command failed. ``parse(render(switch), switch.name)`` is ``switch``,
    # without ``not_held``.
    parse: Callable[[str, str], Switch]
    # remediation(running, wanted): the change from a running configuration to ``wanted``; "" where nothing differs. It
    # removes only what is this project's or contradicts the policy, as does each setting of a wanted port that the
    # policy does not have. Ports that are not in ``wanted`` stay as they are, and ``ecmp_fields`` None changes nothing.
    # FabricError if ``running`` cannot be read.
    remediation: Callable[[str, Switch], str]
    # restoration(backup, running, name): the change from ``running`` back to ``backup``, in all that a policy can
    # change; "" where nothing differs. It has the form of ``remediation``'s change.
    restoration: Callable[[str, str, str], str]
    # The form of a port's name, and an example for errors, which begins with a valid name that ends in a number.
    port: re.Pattern[str]
    port_example: str
    # Field of PortQos, or ``ecmp_fields`` -> why the configuration does not hold it (the system decides it itself).
    not_held: Mapping[str, str] = field(default_factory=dict)
    # Rows of ``asic_table`` that switches with this system have, None for all; row -> why nothing is rendered for it.
    asics: tuple[str, ...] | None = None
    not_asics: Mapping[str, str] = field(default_factory=dict)
    # Whether the system computes headroom without any row or cable, so that no bytes are planned.
    sizes_headroom: bool = False
    # check_cable(subject, cable_m): FabricError where a lossless port cannot have that cable.
    check_cable: Callable[[str, int | None], None] = _any_cable
    # The cable length in m for which the system keeps headroom if the cable has this one.
    held_cable_m: Callable[[int], int] = _same_length
    # attainable(qos, queue_buffer_bytes): ``qos`` with the nearest thresholds that the system can hold, none above its
    # earlier value. It makes roce_switch_queue_buffer_bytes mandatory. None: all thresholds are attainable.
    attainable: Callable[[PortQos, int], PortQos] | None = None
    # parse_sized(text, name, queue_buffer_bytes): ``parse`` with the inventory's bytes of a queue, for a system with
    # ``attainable``. Of a text that does not have that number, ``parse`` returns thresholds as ``unknown_ecn``.
    parse_sized: Callable[[str, str, int], Switch] | None = None
    # The parts into which it is configured to divide the buffer; its own division by ASIC, used for what the switch
    # does not say, unless the user gives the ASIC's pools. None, and no entry: the pools are the ASIC's.
    buffer_shares: BufferShares | None = None
    default_shares: Mapping[str, BufferShares] = field(default_factory=dict)
    # Whether a port's ``dscp_to_class`` is for the packets that leave by it, not those that enter by it.
    classifies_at_egress: bool = False
    # boot_configuration(text, name), for a system whose reboot loses the change: what save.yml makes it apply at every
    # boot, for the configuration ``text``; "" for one without QoS. None: the system can save its configuration.
    boot_configuration: Callable[[str, str], str] | None = None
    # configuration(text): the part of a reading that is the switch's configuration, for backups.
    configuration: Callable[[str], str] = _whole
    # applied(running, change): the running configuration after ``change``. None: ``remediation`` accepts ``render`` of
    # the state that the change leads to in its place.
    applied: Callable[[str, str], str] | None = None
    # Whether the switch itself saves every change, so that there is no save.yml.
    saves_with_change: bool = False
    # What a change interrupts, and for how long, by a pattern of its text: what the vendor's documents say, or what
    # follows from its own steps.
    interruptions: Mapping[str, str] = field(default_factory=dict)
    # What its ports count, and where it shows that; counters.yml asks for it. None: no document says how.
    counters: CounterTable | None = None
