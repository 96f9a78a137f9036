# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Juniper Junos and Junos Evolved on QFX: class of service as ``set`` lines (``show configuration | display set``).

Sources: Juniper's DCQCN configlet for QFX (Apstra 6.1, RNIC configurator guide), the statement pages of
[edit class-of-service] (classifiers, forwarding-classes, pfc-priority, congestion-notification-profile, schedulers,
drop-profiles, fill-level, priority, cable-length), "Configuring DSCP-based PFC for Layer 3 Untagged Traffic",
"Configure CoS PFC with Congestion Notification Profiles", "PFC Watchdog", [edit forwarding-options enhanced-hash-key],
apply-macro, and "Encapsulation Overhead by Encapsulation Type".

Forwarding classes and profiles: a forwarding class is a traffic class. Its name contains its number and priority
(``sailloft-tc3-pri3``), because a class that does not pause has no priority in Junos. Other users' classes are numbered
by their queue. Forwarding classes belong to the whole switch. Classifier, scheduler map and congestion notification
profile belong to a port and are named after a digest of their content, so that ports that are alike share them. PFC is
on for a priority of a port where the class is ``no-loss`` with that ``pfc-priority``, all its DSCPs are in the
profile's input, and the profile's output stops the class's queue. As in Juniper's configlet, one ``dscp`` classifier is
applied to ``unit *``.

Thresholds are in percent of the bytes (B) that a queue can fill. Only the switch's planner knows this number:
``Switch.queue_buffer_bytes``. It is written as ``apply-macro sailloft queue-buffer-bytes B``, which has no effect on a
switch, and is read from there where the inventory's number is not given. render accepts only thresholds that are whole
percents of B, rounded up to a byte, with 1 <= lower < upper <= 99: from 0% on, an empty queue is marked, and Juniper
says "do not configure the last fill level as 100 percent". So the values read back are exact. ``attainable`` makes such
thresholds from others by rounding both down, or, where the lower one would be 0, by moving both, so that ECN still acts
before PFC. render refuses thresholds that are not attainable, and names attainable ones.

Headroom: Junos computes it from the cable's length (default 100 m) and the MRU, the largest packet in bytes, which is
2500 by default (statement pages cable-length and mru of the profile's input). Both are written, the MRU as the port's
MTU. Where the MRU that is read is below the port's packets, headroom is for no cable: 0 m.
Watchdog: ``pfc-watchdog`` alone means 100 ms, 2 intervals, 200 ms of recovery and drop; other times are written as
multiples of that interval. The statement page has only ``drop`` as ``watchdog-action``, "PFC Watchdog" of Junos OS
Evolved also ``forward``, the same on all ports; the ranges of the times were not found. Without an output, a profile
stops queue 3 for priority 3 and queue 4 for priority 4.

All classes of a queue are lossless, or none is ("Defining CoS Forwarding Classes", QFX), so a change moves a class of
others that would be of the other kind to another queue, where its scheduler follows it. Two classes may have the same
``pfc-priority``, as far as documents say.

MTU: ``interfaces X mtu`` counts the Ethernet header, not the FCS: IP MTU + 14 (untagged; read as + 18 where the port
has vlan-tagging, + 22 with flexible-vlan-tagging), 9216 at most. A smaller ``family inet mtu`` is read as it stands.

A port without it has 1514, or 1518 with tags: IP packets of 1500 bytes. Juniper's statement page says "the default
depends on the device type", and gives 1514 for EX ("Configuring the Media MTU", also for ACX and PTX); Juniper's
TechPosts show 1514 for ports of 10 to 800 Gbit/s of ACX7100 and PTX10008. None was found for QFX. ``irb`` has the same.

Hash: without a line it has all five fields (statement pages hash-mode, inet and inet6 of enhanced-hash-key); QFX has
one hash for ECMP and aggregated interfaces (statement enhanced-hash-key). Those of ``hash-key``, and of layer2-header,
are not understood.

From memory, without a source: the aliases of code points. Not tested on a switch: classes of this project on a queue
that a default class (fcoe 3, no-loss 4) also has.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.systems import JUNOS_COUNTERS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos import (
    PORT,
    SYSTEM,
    TAGGED_BYTES,
    JunosReader,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import (
    COS,
    ETHERNET_BYTES,
    HASH,
    HASH_MODE,
    MACRO,
    OURS,
    Line,
    effective,
    in_other_order,
    rewrites_dscps,
    set_lines,
    without,
    written,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.parts.junos_buffers import (
    DEFAULT_SHARES,
    HEADROOM,
    LOSSLESS,
    PARTS,
    shares_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.junos_render import (
    MOST_MTU,
    attainable,
    wanted_lines,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.junos_restoration import restoration

CLASSES = (*COS, "forwarding-classes", "class")
# Queue -> whether it is lossless, of the classes that a QFX has by default ("Understanding Default CoS Settings").
DEFAULT_KINDS = {"0": False, "3": True, "4": True, "7": False}


def render(switch: Switch) -> str:
    """Return the lines of ``switch``; see the module. Raises FabricError for what Junos cannot hold."""
    return "".join(f"set {' '.join(line)}\n" for line in wanted_lines(switch))


def parse(text: str, name: str, queue_buffer_bytes: int | None = None) -> Switch:
    """Parse the switch ``name`` from ``show configuration | display set``, all of it or its class of service.

    ``ports`` are those of [edit class-of-service interfaces] and the physical ports of [edit interfaces]; wildcards
    count for the ports that are named somewhere. A DSCP that a classifier does not name has no class here.
    With the part that has groups and interface-ranges expanded, that part is parsed: it is what acts.
    ``queue_buffer_bytes`` replaces the number in the configuration. Raises FabricError where ``text`` is no such
    configuration.
    """
    return JunosReader(text, name, queue_buffer_bytes).switch()


def remediation(running: str, wanted: Switch) -> str:
    """Return the lines that change a running configuration to ``wanted``; "" where nothing differs.

    The lines (delete, activate, set) are for one commit. They delete what is this project's and not wanted, and what
    contradicts the policy on a wanted port, and move other classes out of queues that would be partly lossless. Raises
    FabricError where that is not possible, and for a port that is deactivated with all that others configured on it.
    """
    want = wanted_lines(wanted)
    text = effective(running)
    running_lines, inactive = set_lines(text, wanted.name)
    off = [path for path in inactive if any(line[: len(path)] == path for line in want)]
    for path in off:
        if path[0] == "interfaces" and len(path) <= 2:
            raise FabricError(
                "all settings of the port are off, also addresses and VLANs, and only its operator knows why",
                f"`activate {' '.join(path)}` on the switch, or take the port out of roce_switch_ports",
                subject=f"{wanted.name}: deactivate {' '.join(path)}",
            )
    hidden = {f"deactivate {' '.join(path)}" for path in off}  # activation restores the lines that they hide
    reader = JunosReader(
        "\n".join(line for line in text.splitlines() if " ".join(line.split()) not in hidden), wanted.name
    )
    _check_partitions(shares_of(reader.lines, running), wanted)
    want = [_as_tagged(reader, line) for line in want]
    lines = [f"activate {' '.join(path)}" for path in off]
    reordered = in_other_order(reader.lines, want)
    deleted = [*reordered, *without(_unwanted(reader, wanted, set(want)), reordered)]
    _check_written(deleted, set_lines(written(running), wanted.name)[0], wanted.name)
    lines += [f"delete {' '.join(path)}" for path in deleted]
    lines += [f"set {' '.join(line)}" for line in _moves(reader, want)]
    remaining = without(running_lines, deleted)
    # A statement that has others below it is shown only with these ("pfc-watchdog detection 3").
    shown = {line[:length] for line in remaining for length in range(2, len(line) + 1)}
    lines += [f"set {' '.join(line)}" for line in want if line not in shown]
    return "".join(f"{line}\n" for line in lines)


def _moves(reader: JunosReader, want: list[Line]) -> list[Line]:
    """Return the lines that move lossy classes of others out of wanted lossless queues, and lossless ones out of lossy.

    They go to a queue without a class, or to one of their kind. They are not deleted, because classifiers and scheduler
    maps of others refer to them. Raises FabricError where there is no such queue.
    """
    kinds = {line[5]: (*line[:4], "no-loss") in want for line in want if line[:3] == CLASSES and line[4] == "queue-num"}
    foreign_classes = {name: traits for name, traits in reader.classes.items() if not name.startswith(OURS)}
    misplaced = {
        name: traits
        for name, traits in foreign_classes.items()
        if kinds.get(str(traits["queue"]), traits["lossless"]) != traits["lossless"]
    }
    for name, traits in foreign_classes.items():
        if name not in misplaced:
            kinds.setdefault(str(traits["queue"]), traits["lossless"])
    free = [queue for queue in ("1", "2", "5", "6") if queue not in kinds]
    lines: list[Line] = []
    for name, traits in misplaced.items():
        queues = [queue for queue, lossless in {**DEFAULT_KINDS, **kinds}.items() if lossless == traits["lossless"]]
        if not free + queues:
            raise FabricError(
                f"the policy's class of queue {traits['queue']} differs from it in no-loss, and all queues are in use",
                "delete the class and what refers to it, or move it to a queue of its kind",
                subject=f"{reader.name}: class-of-service forwarding-classes class {name}",
            )
        queue = free.pop(0) if free else queues[0]
        lines.append((*CLASSES, name, "queue-num", queue))
    return lines


def _check_partitions(seen: BufferShares, wanted: Switch) -> None:
    """Refuse partitions of the ingress buffer that are smaller than those of the plan, or that nothing says.

    Partitions are not rendered: changing them stops the traffic of all ports (Juniper, "buffer-partition (Ingress)").
    """
    planned = wanted.shares
    if planned is None:
        return
    for part, planned_percent, seen_percent in (
        (LOSSLESS, planned.lossless_percent or 0, seen.lossless_percent),
        (HEADROOM, planned.headroom_percent or 0, seen.headroom_percent),
    ):
        if seen_percent is None and planned.default_of:
            continue  # the plan is for a switch that has the default
        if planned_percent > (seen_percent or 0):
            raise FabricError(
                f"it is {'the default of an unknown model' if seen_percent is None else seen_percent}, but the plan "
                f"assumes {planned_percent}",
                "describe the switch's pools in roce_asics (like, source, pool_bytes, headroom_pool_bytes), or set it "
                "while no traffic has to pass, because changing it stops all ports",
                subject=f"{wanted.name}: {' '.join((*PARTS, *part, 'percent'))}",
            )


def _check_written(deleted: list[Line], lines: list[Line], name: str) -> None:
    """Refuse to delete what a group or an interface-range has: it is not there to delete."""
    for path in deleted:
        if not any(line[: len(path)] == path for line in lines):
            raise FabricError(
                "it contradicts the policy, and is inherited from a group or an interface-range",
                "change it in the group or the range, which may be of other ports, too",
                subject=f"{name}: {' '.join(path)}",
            )


def _as_tagged(reader: JunosReader, line: Line) -> Line:
    """Return a wanted line, with the MTU for a port that tags its frames."""
    if line[0] != "interfaces":
        return line
    header = max(
        TAGGED_BYTES.get(line_of_port[0], ETHERNET_BYTES) for line_of_port in reader.interfaces.get(line[1], [("mtu",)])
    )
    mtu = int(line[-1]) - ETHERNET_BYTES + header
    if mtu > MOST_MTU:
        raise FabricError(
            f"it tags its frames, so its MTU would be {mtu} bytes, but a QFX has at most {MOST_MTU}",
            f"give {MOST_MTU - header} or less as roce_policy's switch_mtu_bytes",
            subject=f"{reader.name}: {line[1]}",
        )
    return (*line[:-1], str(mtu))


def _unwanted(reader: JunosReader, wanted: Switch, wanted_lines_set: set[Line]) -> list[Line]:
    """Return the paths to delete, each once."""
    to_delete: dict[Line, None] = {}
    for line in reader.lines:
        if line in wanted_lines_set:
            continue
        prefix_end = next((prefix_end for prefix_end, word in enumerate(line) if word.startswith(OURS)), None)
        if line[:1] == COS and line[1:2] != ("interfaces",) and prefix_end is not None and prefix_end <= 3:
            whole_object = line[: prefix_end + 1]
            to_delete[
                whole_object
                if not any(wanted_line[: prefix_end + 1] == whole_object for wanted_line in wanted_lines_set)
                else line
            ] = None
        elif _is_of_switch(line) or _is_contrary(line, wanted, wanted_lines_set) or _is_small_mtu(line, wanted):
            to_delete[line] = None
    return list(to_delete)


def _is_of_switch(line: Line) -> bool:
    """Return true for a setting of the whole switch that the policy replaces: the macro, or the fields of the hash."""
    is_of_fields = line[:2] == HASH and line[2:3] in (("hash-mode",), ("family",), ("inet",), ("inet6",))
    return line[:3] == MACRO[:3] or (is_of_fields and line != HASH_MODE)


def _is_contrary(line: Line, wanted: Switch, wanted_lines_set: set[Line]) -> bool:
    """Return true for a class-of-service line that contradicts the policy on a wanted port."""
    if line[: len(COS) + 1] != (*COS, "interfaces") or len(line) <= 3:
        return False
    return any(_contradicts(line, port, wanted_lines_set) for port in wanted.ports if _names(line[2], port))


def _is_small_mtu(line: Line, wanted: Switch) -> bool:
    """Return true for an MTU of a unit that is smaller than the wanted one of its port."""
    if line[0] != "interfaces" or len(line) < 3 or line[1] not in wanted.ports or line[-2:-1] != ("mtu",):
        return False
    mtu = wanted.ports[line[1]].ip_mtu_bytes
    return line[2] == "unit" and mtu is not None and line[-1].isdecimal() and int(line[-1]) < mtu


def _names(pattern: str, port: str) -> bool:
    return pattern in (port, "all") or fnmatchcase(port, pattern)


def _contradicts(line: Line, port: str, wanted_lines_set: set[Line]) -> bool:
    """Return true where a line on a port (or on a pattern of ports) prevents the wanted setting from taking effect."""
    statement = line[3]
    if rewrites_dscps(line[3:]):
        return True
    port_statements = {
        wanted_line[3] for wanted_line in wanted_lines_set if wanted_line[:3] == (*COS, "interfaces", port)
    }
    if statement in ("scheduler-map", "congestion-notification-profile"):
        return statement not in port_statements  # else the port's setting replaces it
    if statement in ("forwarding-class-set", "output-traffic-control-profile"):
        return "scheduler-map" in port_statements  # hierarchical scheduling would replace the port's
    if statement == "unit" and line[5:7] == ("classifiers", "dscp"):
        return line[4] != "*" or "unit" not in port_statements
    return statement == "classifiers"


JUNOS = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=PORT,
    port_example="et-0/0/1, or ae1",
    not_held={"headroom": "Junos computes it from cable length and MRU"},
    # QFX5210 to QFX5240, QFX5120 and QFX5130, by their buffers: 42, 64, 112, 165, 32 and 132 MB (Juniper,
    # "Understanding CoS Buffer Configuration", table 1).
    asics=("tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"),
    default_shares=DEFAULT_SHARES,
    configuration=written,
    saves_with_change=True,  # a commit survives a reboot
    attainable=attainable,
    parse_sized=parse,
    # Juniper, statement congestion-notification-profile of [edit class-of-service].
    interruptions={"congestion-notification-profile": "a port is blocked while its PFC changes; no time is given"},
    counters=JUNOS_COUNTERS,
)
