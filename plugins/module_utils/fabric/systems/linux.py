# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Linux machine as the switch: ``tc`` (iproute2 6.1, kernel 6.1 or later).

The text is a shell script of ``ip``, ``tc`` and ``sysctl`` commands. The script may run again, because it rebuilds a
port's queueing. parse reads such a script, or what the script READING prints on the machine: one JSON document of
``ip -j link show``, ``tc -d -j qdisc show``, ``tc -j filter show`` by device, and sysctls.

A port's egress: ``ets`` at the root, strict bands first (the highest queue number first), then those that share the
bandwidth by DRR with a quantum of 100 bytes per percent (tc-ets(8)). ``flower`` filters lead the IPv4 and IPv6 packets
of a DSCP to a band. A priomap of one number leads all other packets to the band of the class with the most DSCPs. A
band's qdisc is ``red`` with ECN or ``pfifo``; its handle 10QC: gives the queue (Q) and the traffic class (C). In trees
that others made, queue and class are 7 minus the band's number, as the drivers of switches count bands (band 0 is
served first).

RED, from tc-red(8) and tc_red_eval_ewma in iproute2's tc/tc_red.c:

* ``min``, ``max``: Ecn's. ``probability``: Ecn's, but 0.9999999 for 100%, because tc converts 1.0 to 2^32, which is 0
  in the 32 bits that it sends (seen: it then shows "Plog 21", which between 150,000 and 1,500,000 bytes is 64%).
* ``burst`` and ``avpkt`` set only the weight of the average, 2^-wlog: the first wlog of 1, 2, … with
  burst + 1 - min/avpkt <= (1 - (1 - 2^-wlog)^burst) * 2^wlog. ASICs at weight 0 mark by the current queue length. The
  nearest value that tc can request is wlog 1, with which each packet moves the average half of the way. The manual's
  avpkt 1000 results in wlog 1 with burst = ceil(min/1000) where min is above 10,000; below that,
  burst = max(1, round(min/1000)) with avpkt = ceil(min/burst) does (tested for all).
* tc refuses a curve that is too flat (tc_red_eval_P): max - min must be below probability * 2^31 bytes.
* ``limit``: 4 * max, the inverse of tc's default max = limit/4; the manual requires "a few times higher than max".
* ``bandwidth`` affects only the average after an idle time; it is 10gbit, whatever the link's speed.
* Packets without ECT are dropped where others are marked ("nodrop" is not set).

The kernel accepts thresholds below 2^30 at wlog 1 (red_check_params in include/net/red.h: fls(max) + wlog < 32).
``pfifo limit 1000``: the queue that an Ethernet device has by default (its txqueuelen).

MTU: a Linux device's is the IP packet's; no header is added to it. ECMP: ``fib_multipath_hash_policy`` 3 and a mask of
fields (Documentation/networking/ip-sysctl.rst: 1 source address, 2 destination address, 4 protocol, 16 source port,
32 destination port; policy 0 is addresses, 1 all five).
"""

from __future__ import annotations

import math
import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Ecn, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux import (
    ECMP_BITS,
    FAMILIES,
    HASH,
    PROTOCOLS,
    SYSTEM,
    LinuxPort,
    ecmp_of,
    read_model,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_overrides import (
    hashed_fields,
    lags,
    overrides,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import (
    COMPARED,
    PRIORITIES,
    Model,
    Script,
)

NO_PFC = "the kernel's bridge and router send and obey no PFC"
QUANTUM_BYTES_A_PERCENT = 100
MOST_BYTES = 1 << 30
FLATTEST_BYTES = 1 << 31  # at 100%
ALMOST_ALL = 0.9999999
DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
# The default qdisc of a device, restored when its root qdisc is deleted (sch_generic.c, net.core.default_qdisc).
DEFAULTS = ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "bfifo", "sfq")

# The exceptions raised when input of another shape is read as tc's output.
NOT_OF_TC = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def render(switch: Switch) -> str:
    """Return the script of ``switch``; see the module. Raises FabricError for what Linux cannot hold."""
    lines = ["#!/bin/sh", "set -eu"]
    by_qos: dict[int, list[str]] = {}
    for port, wanted in switch.ports.items():
        if not DEVICE.fullmatch(port):
            raise FabricError(
                "not a valid Linux device name",
                "give it as `ip link` shows it",
                subject=f"{switch.name}: port {port!r}",
            )
        if id(wanted) not in by_qos:
            by_qos[id(wanted)] = _port_lines(f"{switch.name}: {port}", wanted)
        lines += [line.replace("DEV", port) for line in by_qos[id(wanted)]]
    return "\n".join([*lines, *_ecmp_lines(switch)]) + "\n"


def _ecmp_lines(switch: Switch) -> list[str]:
    if switch.ecmp_fields is None:
        return []
    mask = sum(ECMP_BITS[field] for field in switch.ecmp_fields)
    lines = []
    for family in FAMILIES:  # the fields first: policy 3 takes those that are there
        lines.append(f"sysctl -q -w {HASH.format(family, 'fields')}={mask}")
        lines.append(f"sysctl -q -w {HASH.format(family, 'policy')}=3")
    return lines


def _port_lines(subject: str, wanted: PortQos) -> list[str]:
    """Return a port's commands, with DEV in place of its name."""
    lines = [] if wanted.ip_mtu_bytes is None else [f"ip link set dev DEV mtu {wanted.ip_mtu_bytes}"]
    queues = {number: queue for number, queue in enumerate(wanted.queues) if queue is not None}
    if not queues and not any(entry is not None for entry in wanted.dscp_to_class):
        return lines
    classes = {queue: traffic_class for traffic_class, queue in enumerate(wanted.class_to_queue) if queue is not None}
    class_of = [traffic_class for traffic_class in wanted.dscp_to_class if traffic_class is not None]  # by DSCP
    _check_classes(subject, wanted, set(queues), classes, class_of)
    strict, sharing = (
        sorted((number for number, queue in queues.items() if queue.strict is kind), reverse=True)
        for kind in (True, False)
    )
    shares = _shares(subject, [queues[number].bandwidth_percent or 0 for number in sharing])
    band = {number: position for position, number in enumerate(strict + sharing)}
    band_of = {classes[number]: position for number, position in band.items()}  # by class
    default = max(sorted(set(class_of)), key=class_of.count)
    root = f"tc qdisc add dev DEV root handle 1: ets bands {len(band)}"
    if strict:
        root += f" strict {len(strict)}"
    if sharing:
        root += " quanta " + " ".join(str(share * QUANTUM_BYTES_A_PERCENT) for share in shares)
    root += " priomap " + " ".join([str(band_of[default])] * PRIORITIES)
    lines += ["tc qdisc del dev DEV root 2>/dev/null || true", root]
    for number, position in band.items():
        prefix = f"tc qdisc add dev DEV parent 1:{position + 1:x} handle 10{number}{classes[number]}:"
        lines.append(f"{prefix} {band_qdisc(subject, queues[number].ecn)}")
    return lines + _filters(class_of, band_of, default)


def _check_classes(
    subject: str, wanted: PortQos, queues: set[int], classes: dict[int, int], class_of: list[int]
) -> None:
    """Refuse queues and DSCPs that the bands of ets cannot have. ``classes``: by queue; ``class_of``: by DSCP."""
    if len(classes) != CLASSES - wanted.class_to_queue.count(None) or set(classes) != queues:
        raise FabricError(
            "not every queue has a class of its own, as tc's bands require",
            "give each class its queue",
            subject=subject,
        )
    if len(class_of) < len(wanted.dscp_to_class) or not set(class_of) <= set(classes.values()):
        raise FabricError("a DSCP has no class with a queue", "give every DSCP one", subject=subject)


def _shares(subject: str, shares: list[int]) -> list[int]:
    """Return the percentages of the queues that are not strict. Raises FabricError unless they add up to 100%."""
    if shares and (min(shares) < 1 or sum(shares) != 100):
        raise FabricError(
            f"the queues that are not strict share {sum(shares)}% ({', '.join(map(str, shares))})",
            "set shares of at least 1% that add up to 100%",
            subject=subject,
        )
    return shares


def _filters(class_of: list[int], band_of: dict[int, int], default: int) -> list[str]:
    """Return the filters of all DSCPs whose class is not the ``default``."""
    return [
        f"tc filter add dev DEV parent 1: protocol {protocol} pref {preference} "
        f"flower ip_tos {dscp << 2:#04x}/0xfc classid 1:{band_of[traffic_class] + 1:x}"
        for protocol, preference in PROTOCOLS.items()
        for dscp, traffic_class in enumerate(class_of)
        if traffic_class != default
    ]


def band_qdisc(subject: str, ecn: Ecn | None) -> str:
    """Return tc's words for the qdisc of a band: RED that marks, or a plain queue. Raises FabricError."""
    if ecn is None:
        return "pfifo limit 1000"
    if not 1 <= ecn.minimum_bytes <= ecn.maximum_bytes < MOST_BYTES or not 1 <= ecn.probability_percent <= 100:
        raise FabricError(
            f"RED cannot mark between {ecn.minimum_bytes} and {ecn.maximum_bytes} bytes with "
            f"{ecn.probability_percent}%",
            f"give 1 <= minimum_bytes <= maximum_bytes < {MOST_BYTES} and 1% to 100%",
            subject=subject,
        )
    probability = ALMOST_ALL if ecn.probability_percent == 100 else ecn.probability_percent / 100
    if ecn.maximum_bytes - ecn.minimum_bytes >= probability * FLATTEST_BYTES:
        raise FabricError(
            f"{ecn.probability_percent}% over {ecn.maximum_bytes - ecn.minimum_bytes} bytes is too flat for tc's RED",
            "raise probability_percent, or bring minimum_bytes and maximum_bytes closer together",
            subject=subject,
        )
    burst, average = math.ceil(ecn.minimum_bytes / 1000), 1000
    if ecn.minimum_bytes <= 10_000:
        burst = max(1, round(ecn.minimum_bytes / 1000))
        average = math.ceil(ecn.minimum_bytes / burst)
    return (
        f"red limit {4 * ecn.maximum_bytes} min {ecn.minimum_bytes} max {ecn.maximum_bytes} "
        f"avpkt {average} burst {burst} bandwidth 10gbit probability {probability} ecn"
    )


def parse(text: str, name: str) -> Switch:
    """Parse the switch ``name`` from READING's output on it, or from a script of commands. Raises FabricError.

    ``ports`` are all devices except loopback. A DSCP's class is None where its packets do not all go to one band, or
    its IPv4 and IPv6 packets go to different bands. RED counts as ECN only if it also marks above its maximum (no
    "harddrop") and its probability is constant (no "adaptive").
    """
    model = read_model(text, name)
    ports = {}
    for port in model["links"]:
        try:
            ports[port] = LinuxPort(name, port, model).qos()
        except NOT_OF_TC as error:
            raise FabricError(
                f"its qdiscs and filters are not in the form that tc prints ({error!r})",
                "read them again",
                subject=f"{name}: {port}",
            ) from None
    ecmp = ecmp_of(model["sysctl"], name)
    return Switch(
        name,
        SYSTEM,
        ports,
        ecmp,
        overrides=overrides(model),
        lags=lags(model),
        lag_fields=hashed_fields(model),
    )


def remediation(running: str, wanted: Switch) -> str:
    """Return the commands that change a machine to ``wanted``; "" where nothing differs.

    ``running``: READING's output on the machine, or a script. A port is rebuilt if its queueing differs in any way;
    other ports and devices are not changed.
    """
    seen = read_model(running, wanted.name)
    missing = [port for port in wanted.ports if port not in seen["links"]]
    if missing and running.lstrip()[:1] == "{":  # a script may omit devices, READING's output has all
        raise FabricError(
            "the machine has no such device",
            f"it has {', '.join(seen['links'])}",
            subject=f"{wanted.name}: {missing[0]}",
        )
    script = render(wanted)
    wanted_model = Script(script, wanted.name).model
    unchanged: dict[str, bool] = {}
    lines = []
    for line in script.splitlines()[2:]:
        words = line.split()
        if words[0] == "sysctl":
            key, _equals, value = words[-1].partition("=")
            if str(seen["sysctl"].get(key)) != value:
                lines.append(line)
            continue
        port = words[words.index("dev") + 1]
        if words[0] == "ip":
            if seen["links"].get(port) != wanted_model["links"][port]:
                lines.append(line)
        elif port not in unchanged:
            try:
                unchanged[port] = _shape(seen, port) == _shape(wanted_model, port)
            except NOT_OF_TC as error:
                raise FabricError(
                    f"not in the form that tc prints ({error!r})", "read it again", subject=f"{wanted.name}: {port}"
                ) from None
        if words[0] == "tc" and not unchanged[port]:
            lines.append(line)
    return "\n".join([*script.splitlines()[:2], *lines]) + "\n" if lines else ""


def restoration(backup: str, running: str, name: str) -> str:
    """Return the commands that bring a machine back from ``running`` to ``backup``; "" where nothing differs.

    Both are READING's output. Raises FabricError for a device whose qdiscs this project did not build, because it
    cannot rebuild them.
    """
    old, new = read_model(backup, name), read_model(running, name)
    lines = []
    for port, mtu in old["links"].items():
        if port not in new["links"]:
            continue  # removed automatically
        if new["links"][port] != mtu:
            lines.append(f"ip link set dev {port} mtu {mtu}")
        if _shape(old, port) != _shape(new, port):
            lines += _queueing(old, port, name)
    for key, value in old["sysctl"].items():
        if new["sysctl"].get(key) != value:
            lines.append(f"sysctl -q -w {key}={value}")
    return "\n".join(["#!/bin/sh", "set -eu", *lines]) + "\n" if lines else ""


def boot_configuration(text: str, name: str) -> str:
    """Return the script that gives a machine the QoS of READING's output ``text`` at every boot; "" if it has none."""
    seen, model = parse(text, name), read_model(text, name)
    ports = {port: qos for port, qos in seen.ports.items() if _has_queueing(model, port)}
    return render(Switch(name, SYSTEM, ports, seen.ecmp_fields)) if ports else ""


def _has_queueing(model: Model, port: str) -> bool:
    """Return true where this project built the port's queueing."""
    try:
        return len(_queueing(model, port, port)) > 1
    except FabricError:
        return False


def _queueing(model: Model, port: str, name: str) -> list[str]:
    root = next((qdisc for qdisc in model["qdiscs"].get(port, []) if qdisc.get("root")), None)
    if root is None or root.get("kind") in DEFAULTS:
        return [f"tc qdisc del dev {port} root 2>/dev/null || true"]
    qos = LinuxPort(name, port, model).qos()
    script = render(Switch(name, SYSTEM, {port: qos}))
    if _shape(Script(script, name).model, port) != _shape(model, port):
        raise FabricError(
            f"its qdisc {root.get('kind')} was not created by this project",
            "set it up again manually",
            subject=f"{name}: {port}",
        )
    return [line for line in script.splitlines()[2:] if line.startswith("tc ")]


def _shape(model: Model, port: str) -> Any:
    """Return all relevant parts of a port's queueing, in a fixed order; parts that are off or missing are left out."""
    qdiscs = []
    for qdisc in model["qdiscs"].get(port, []):
        if qdisc.get("kind") in ("ingress", "clsact"):
            continue
        options = qdisc.get("options") or {}
        options_compared = {key: options[key] for key in COMPARED.get(qdisc.get("kind", ""), ()) if options.get(key)}
        if "probability" in options_compared:
            options_compared["probability"] = round(options_compared["probability"] * 100)
        place = "root" if qdisc.get("root") else qdisc.get("parent")
        qdiscs.append((qdisc.get("kind"), qdisc.get("handle"), place, sorted(options_compared.items())))
    filters = []
    for filter_entry in model["filters"].get(port) or []:
        options = filter_entry["options"]
        keys = {key: value for key, value in (options.get("keys") or {}).items() if key != "eth_type"}
        mask = int(str(keys.pop("ip_tos_mask", "ff")), 16)
        filters.append(
            (filter_entry.get("protocol"), filter_entry.get("kind"), options.get("classid"), mask, sorted(keys.items()))
        )
    return sorted(qdiscs, key=str), sorted(filters, key=str)


LINUX = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=DEVICE,
    port_example="enp1s0f0np0: 15 letters, digits, '_', '.' and '-' at most",
    not_held=dict.fromkeys(
        ("class_to_priority", "priority_to_queue", "pfc", "headroom", "cable_m", "watchdog"),
        "the kernel's bridge and router send and obey no PFC",
    ),
    # The filters of the port where a packet leaves classify its DSCP, whichever port it entered by.
    classifies_at_egress=True,
    boot_configuration=boot_configuration,
)
