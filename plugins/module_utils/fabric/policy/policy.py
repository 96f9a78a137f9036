# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``roce_policy``: the RoCE settings of every hop. It is checked once, here; later code relies on that.

The defaults are NVIDIA's `nv set qos roce` with one DSCP instead of eight per class (Cumulus Linux user guide, "RDMA
over Converged Ethernet": RoCE in traffic class 3 with half of the bandwidth and PFC on priority 3, CNP strict in 6).
DSCP 26 and 48 are the ones that NVIDIA's and IBM's hosts send in these classes (arXiv 2407.05467).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    ECMP_FIELDS,
    Ecn,
    Watchdog,
)

POLICY = "roce_policy"
LOSSLESS, LOSSY = "lossless", "lossy"
NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")  # becomes part of profiles' names on switches
ECT0, ECT1 = 2, 1  # RFC 3168
# The bytes that an interface must carry for an InfiniBand MTU: its payload, and the headers that the kernel counts
# (iboe_get_mtu in include/rdma/ib_addr.h: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4).
ROCE_HEADER_BYTES = 40 + 8 + 12 + 4 + 28 + 4
PATH_MTUS_BYTES = (256, 512, 1024, 2048, 4096)  # InfiniBand Architecture Specification, volume 1, PathMTU
IP_MTU = values.within(PATH_MTUS_BYTES[0] + ROCE_HEADER_BYTES, 9216)
# Queue lengths at which marking can make sense. Less than a kilobyte must be a number in kilobytes; more than the
# largest buffer (Jericho 2's 6.4 GB) must be a number in bits.
ECN_BYTES = values.within(1_000, 7 * 10**9)
CLASS, DSCP = values.within(0, CLASSES - 1), values.within(0, DSCPS - 1)
PERCENT = values.within(1, 99)


@dataclass(frozen=True)
class RdmaClass:
    """One class of RoCE traffic. ``ecn`` None: compiled for each switch from its ASIC and each port's speed."""

    name: str
    mode: str  # LOSSLESS or LOSSY
    dscp: int
    ect: int  # the ECN field that senders set: ECT0 or ECT1
    traffic_class: int
    priority: int
    queue: int
    bandwidth_percent: int
    ecn: Ecn | None

    @property
    def tos(self) -> int:
        """Return the ToS byte that senders set (NCCL_IB_TC)."""
        return self.dscp << 2 | self.ect


@dataclass(frozen=True)
class CnpClass:
    """Congestion notification packets: always strict, never paused, never marked."""

    dscp: int
    traffic_class: int
    priority: int
    queue: int


@dataclass(frozen=True)
class DefaultClass:
    """All other traffic: every DSCP that no other class names."""

    traffic_class: int
    priority: int
    queue: int
    bandwidth_percent: int


AnyClass = Union[RdmaClass, CnpClass, DefaultClass]


@dataclass(frozen=True)
class Policy:
    """One policy of one fabric. ``classes`` are in the order given; hosts use the first unless another is named.

    ``ip_mtu_bytes``: the hosts' largest IP packet; ``switch_ip_mtu_bytes``: what switches let pass.
    ``path_mtu_bytes``: the largest payload of a RoCE packet.
    """

    classes: tuple[RdmaClass, ...]
    cnp: CnpClass
    default: DefaultClass
    ip_mtu_bytes: int
    switch_ip_mtu_bytes: int
    path_mtu_bytes: int
    watchdog: Watchdog | None  # of lossless priorities
    ecmp_fields: tuple[str, ...]

    @property
    def roce_packet_bytes(self) -> int:
        """Return the bytes of the largest IP packet of RoCE."""
        return self.path_mtu_bytes + ROCE_HEADER_BYTES

    @property
    def lossless(self) -> tuple[RdmaClass, ...]:
        """Return the classes that need PFC and headroom."""
        return tuple(rdma_class for rdma_class in self.classes if rdma_class.mode == LOSSLESS)

    @property
    def named(self) -> tuple[tuple[str, AnyClass], ...]:
        """Return all classes with their names, the CNP class and the default class last."""
        return (
            *((rdma_class.name, rdma_class) for rdma_class in self.classes),
            ("cnp", self.cnp),
            ("default", self.default),
        )

    @property
    def all_classes(self) -> tuple[AnyClass, ...]:
        """Return all classes, in the order of ``named``."""
        return tuple(traffic for _name, traffic in self.named)

    @property
    def with_dscp(self) -> tuple[RdmaClass | CnpClass, ...]:
        """Return the classes that have a DSCP of their own."""
        return (*self.classes, self.cnp)

    @property
    def with_share(self) -> tuple[RdmaClass | DefaultClass, ...]:
        """Return the classes that share the bandwidth left by strict classes."""
        return (*self.classes, self.default)

    def dscp_to_class(self) -> tuple[int, ...]:
        """Return the traffic class of each of the 64 DSCPs."""
        classes = [self.default.traffic_class] * DSCPS
        for traffic in self.with_dscp:
            classes[traffic.dscp] = traffic.traffic_class
        return tuple(classes)


def read_policy(variable: Mapping[str, Any] | None) -> Policy:
    """Read the variable ``roce_policy``, with defaults for omitted settings. Raises FabricError for the first error.

    Without ``classes`` there is one class, "roce". Traffic class, priority and queue of a class have the same number
    unless they are given separately.
    """
    record = Settings(FabricError, POLICY, variable or {})
    record.only(
        "classes", "cnp", "default", "mtu_bytes", "switch_mtu_bytes", "path_mtu_bytes", "pfc_watchdog", "ecmp_fields"
    )
    by_name = record.data.get("classes", {"roce": {}})
    if not isinstance(by_name, Mapping) or not by_name:
        raise record.refuse("classes is not a dictionary of at least one class", "write it as roce: {mode: lossless}")
    classes = tuple(_rdma_class(name, data) for name, data in by_name.items())
    cnp = _cnp(record.part("cnp"))
    left_percent = 100 - sum(rdma_class.bandwidth_percent for rdma_class in classes)
    default = _default(record.part("default"), left_percent)
    path_mtu = record.value("path_mtu_bytes", values.among(*PATH_MTUS_BYTES), 4096)
    mtu = record.value("mtu_bytes", IP_MTU, max(9000, path_mtu + ROCE_HEADER_BYTES))
    switch_mtu = record.value("switch_mtu_bytes", IP_MTU, max(9100, mtu))
    _check_mtus(record, path_mtu, mtu, switch_mtu)
    fields = record.data.get("ecmp_fields", list(ECMP_FIELDS))
    if not isinstance(fields, list) or any(field not in ECMP_FIELDS for field in fields) or "source_port" not in fields:
        raise record.refuse(
            f"ecmp_fields {fields!r} cannot spread RoCE's flows, which differ in their UDP source port",
            f"include source_port; valid values: {', '.join(ECMP_FIELDS)}",
        )
    watchdog = _watchdog(record, any(rdma_class.mode == LOSSLESS for rdma_class in classes))
    policy = Policy(classes, cnp, default, mtu, switch_mtu, path_mtu, watchdog, tuple(sorted(set(fields))))
    _check_distinct(policy)
    return policy


def _check_mtus(record: Settings, path_mtu: int, mtu: int, switch_mtu: int) -> None:
    """Check that what each MTU must carry fits into it."""
    packet = path_mtu + ROCE_HEADER_BYTES
    if mtu < packet:
        fitting = max(size for size in PATH_MTUS_BYTES if size + ROCE_HEADER_BYTES <= mtu)
        raise record.refuse(
            f"mtu_bytes {mtu} is less than a packet of path_mtu_bytes {path_mtu} and its headers, {packet} bytes",
            f"set path_mtu_bytes to {fitting}, or mtu_bytes to {packet} or more",
        )
    if switch_mtu < mtu:
        raise record.refuse(
            f"switch_mtu_bytes {switch_mtu} is less than mtu_bytes {mtu}",
            f"set it to {mtu} or more, or lower mtu_bytes",
        )


def _rdma_class(name: Any, settings: Any) -> RdmaClass:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in ("cnp", "default"):
        raise FabricError(
            "not a valid name for a RoCE class",
            "use at most 16 lower-case letters, digits and '_', starting with a letter; cnp and default are reserved",
            subject=f"{POLICY}: class {name!r}",
        )
    record = Settings(FabricError, f"{POLICY}: class {name}", settings)
    record.only("mode", "dscp", "ect", "traffic_class", "priority", "queue", "bandwidth_percent", "ecn")
    return RdmaClass(
        name,
        record.value("mode", values.among(LOSSLESS, LOSSY), LOSSLESS),
        record.value("dscp", DSCP, 26),
        record.value("ect", values.within(ECT1, ECT0), ECT0),
        *_numbers(record, 3),
        record.value("bandwidth_percent", PERCENT, 50),
        _ecn(record.part("ecn")) if "ecn" in record.data else None,
    )


def _numbers(record: Settings, traffic_class: int) -> tuple[int, int, int]:
    """Return traffic class, priority and queue of a class, by default all the same number."""
    number = record.value("traffic_class", CLASS, traffic_class)
    return number, record.value("priority", CLASS, number), record.value("queue", CLASS, number)


def _ecn(record: Settings) -> Ecn:
    checks = {"minimum_bytes": ECN_BYTES, "maximum_bytes": ECN_BYTES, "probability_percent": values.within(1, 100)}
    ecn: Ecn = record.load(Ecn, checks, probability_percent=100)
    if ecn.minimum_bytes > ecn.maximum_bytes:
        raise record.refuse(
            f"minimum_bytes {ecn.minimum_bytes} is above maximum_bytes {ecn.maximum_bytes}",
            "make minimum_bytes the lower one: marking begins there",
        )
    return ecn


def _watchdog(record: Settings, lossless: bool) -> Watchdog | None:
    setting = record.data.get("pfc_watchdog", lossless)
    if setting and not lossless:
        raise record.refuse("pfc_watchdog is set, but no class is lossless", "remove it, or make a class lossless")
    if setting is False:
        return None
    # The default of SONiC's `pfcwd start_default`, and the range that it takes (sonic-utilities, pfcwd/main.py).
    checks = {
        "detection_ms": values.within(100, 5000),
        "restoration_ms": values.within(100, 60000),
        "action": values.among("drop", "forward"),
    }
    settings = Settings(FabricError, f"{POLICY}.pfc_watchdog", {} if setting is True else setting)
    watchdog: Watchdog = settings.load(Watchdog, checks, detection_ms=200, restoration_ms=200, action="drop")
    return watchdog


def _cnp(record: Settings) -> CnpClass:
    record.only("dscp", "traffic_class", "priority", "queue")
    return CnpClass(record.value("dscp", DSCP, 48), *_numbers(record, 6))


def _default(record: Settings, left_percent: int) -> DefaultClass:
    record.only("traffic_class", "priority", "queue", "bandwidth_percent")
    if left_percent < 1:
        raise record.refuse(
            f"the classes of RoCE take {100 - left_percent}% of the bandwidth and leave nothing for other traffic",
            "lower a class's bandwidth_percent",
        )
    percent = record.value("bandwidth_percent", PERCENT, left_percent)
    if percent != left_percent:
        raise record.refuse(
            f"bandwidth_percent {percent} and the RoCE classes add up to {100 - left_percent + percent}%",
            f"set it to {left_percent}, or omit it",
        )
    return DefaultClass(*_numbers(record, 0), percent)


def _check_distinct(policy: Policy) -> None:
    """Check that no two classes share a value that must separate them."""
    for setting in ("dscp", "traffic_class", "priority", "queue"):
        owners: dict[int, str] = {}
        for name, traffic in policy.named:
            number = getattr(traffic, setting, None)
            if number is None:
                continue
            if number in owners:
                raise FabricError(
                    f"{owners[number]} and {name} have the same {setting} {number}, so no switch can tell them apart",
                    f"give one of them another {setting}",
                    subject=POLICY,
                )
            owners[number] = name
