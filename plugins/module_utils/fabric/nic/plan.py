# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan the policy for one function of a NIC: its wanted settings, and why it cannot have the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, DSCPS, Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.buffers import buffers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass

NICS = "roce_host_nics"
# A physical function must have these, or RoCE would get less than the policy requires. Other missing settings are only
# reported.
NEEDED = ("trust", "dscp_to_priority", "priority_to_class", "queues", "ip_mtu_bytes")
# These describe a function and are not set.
DESCRIBES = ("name", "interface", "is_vf", "may_mark")
# These belong to the port, and so to its physical function.
OF_THE_PORT = (
    "trust",
    "dscp_to_priority",
    "priority_to_class",
    "queues",
    "pfc",
    "notification",
    "reaction",
    "cnp_dscp",
    "dcbx_by_host",
    "priority_to_buffer",
    "buffer_bytes",
    "cable_m",
)
SPEED_GBIT_S_AT_MOST = 1600
CABLE_M_AT_MOST = 1000  # mlx5's limit (MLX5E_MAX_CABLE_LENGTH in en_dcbnl.c)
LIMITS = {
    "speed_gbit_s": values.within(1, SPEED_GBIT_S_AT_MOST),
    "cable_m": values.within(1, CABLE_M_AT_MOST),
}


@dataclass(frozen=True)
class NicRequest:
    """The inventory's settings of a NIC. With ``cable_m``, its lossless priorities get buffers of their own."""

    speed_gbit_s: int | None = None
    cable_m: int | None = None


def read_nics(variable: Any) -> dict[str, NicRequest]:
    """Read the variable ``roce_host_nics``: ``{"mlx5_0": {"speed_gbit_s": 400, "cable_m": 5}}``. Raises FabricError."""
    if not isinstance(variable, Mapping) or not variable:
        raise FabricError(
            "not a dictionary of at least one NIC", "write it as mlx5_0: {speed_gbit_s: 400}", subject=NICS
        )
    return {name: _request(name, data) for name, data in variable.items()}


def _request(name: Any, data: Any) -> NicRequest:
    subject = f"{NICS}: {name}"
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise FabricError("not the name of an RDMA device", "'ls /sys/class/infiniband' shows them", subject=subject)
    settings_of_nic = Settings(FabricError, subject, {} if data is None else data)
    request: NicRequest = settings_of_nic.load(NicRequest, LIMITS)
    if request.cable_m is not None and request.speed_gbit_s is None:
        raise FabricError("cable_m without speed_gbit_s", "give both: headroom follows from the two", subject=subject)
    return request


def class_of(policy: Policy, name: str | None) -> RdmaClass:
    """Return the RoCE class of this name, or the policy's first class where no name is given. Raises FabricError."""
    if not name:
        return policy.classes[0]
    for rdma_class in policy.classes:
        if rdma_class.name == name:
            return rdma_class
    names = ", ".join(rdma_class.name for rdma_class in policy.classes)
    raise FabricError(f"there is no class {name!r}", f"valid names: {names}", subject="roce_policy")


def plan(
    policy: Policy, rdma_class: RdmaClass, request: NicRequest, seen: SeenNic, parent: Nic | None
) -> tuple[Nic, dict[str, str]]:
    """Return what ``requested`` does. ``parent``: a VF's physical function as it will be, where it can be seen.

    Raises FabricError where the policy would not hold.
    """
    wanted, cannot = requested(policy, rdma_class, request, seen)
    if seen.nic.is_vf:
        _check_marks(seen, parent)
    else:
        _check_capabilities(policy, cannot, seen)
    return replace(wanted, may_mark=None if seen.nic.is_vf and parent is None else True), cannot


def requested(policy: Policy, rdma_class: RdmaClass, request: NicRequest, seen: SeenNic) -> tuple[Nic, dict[str, str]]:
    """Return the wanted settings of the function, and the reason for each field of Nic that it cannot have.

    ``rdma_class``: the class of RDMA-CM's connections. A field is None where the function has no such setting. Raises
    FabricError where its buffers are too small.
    """
    full = _full_settings(policy, rdma_class, request, seen)
    names = [nic_field.name for nic_field in fields(Nic)]
    cannot = {
        name: reason for name, reason in seen.cannot.items() if name in names and getattr(full, name) != _unset(name)
    }
    return replace(full, **{name: _unset(name) for name in cannot}), cannot


def _unset(name: str) -> Any:
    return next(nic_field.default for nic_field in fields(Nic) if nic_field.name == name)


def _full_settings(policy: Policy, rdma_class: RdmaClass, request: NicRequest, seen: SeenNic) -> Nic:
    """Return the settings of a function that supports all of them."""
    priority_of_dscp = {traffic.dscp: traffic.priority for traffic in policy.with_dscp}
    class_of_priority = {traffic.priority: traffic.traffic_class for traffic in policy.all_classes}
    class_count = seen.dcb.classes_at_most if seen.dcb else CLASSES
    # Traffic classes without a priority are strict and have no share, so the shares of the others add up to 100%.
    queues: list[Queue | None] = [
        Queue(True) if traffic_class < class_count else None for traffic_class in range(CLASSES)
    ]
    for traffic in policy.with_share:
        queues[traffic.traffic_class] = Queue(False, traffic.bandwidth_percent)
    marked = tuple(sorted(rdma_class.priority for rdma_class in policy.classes))
    lossless = tuple(sorted(rdma_class.priority for rdma_class in policy.lossless))
    nic = Nic(
        name=seen.nic.name,
        interface=seen.nic.interface,
        is_vf=seen.nic.is_vf,
        trust="dscp",
        dscp_to_priority=tuple(priority_of_dscp.get(dscp, policy.default.priority) for dscp in range(DSCPS)),
        priority_to_class=tuple(
            class_of_priority.get(priority, policy.default.traffic_class) for priority in range(CLASSES)
        ),
        queues=tuple(queues),
        pfc=lossless,
        notification=marked,
        reaction=marked,
        cnp_dscp=policy.cnp.dscp,
        cm_tos=rdma_class.tos,
        # With several classes, the application chooses one of them; a forced ToS would prevent that.
        forced_tos=rdma_class.tos if len(policy.classes) == 1 else None,
        ip_mtu_bytes=policy.ip_mtu_bytes,
        dcbx_by_host=True,
    )
    if (
        request.cable_m is None
        or not lossless
        or "buffer_bytes" in seen.cannot
        or not (seen.dcb or any(seen.nic.buffer_bytes))
    ):
        return nic
    priority_to_buffer, buffer_bytes = buffers(
        seen, lossless, request.speed_gbit_s or 0, request.cable_m, nic.ip_mtu_bytes or 0
    )
    return replace(nic, priority_to_buffer=priority_to_buffer, buffer_bytes=buffer_bytes, cable_m=request.cable_m)


def _check_marks(seen: SeenNic, parent: Nic | None) -> None:
    if parent and parent.trust != "dscp":
        raise FabricError(
            f"its packets' DSCP does not choose their priority, since {parent.name} trusts {parent.trust or 'no DSCP'}",
            f"add {parent.name} to {NICS} too",
            subject=f"{seen.nic.name} (VF of {parent.name})",
        )


def _check_capabilities(policy: Policy, cannot: dict[str, str], seen: SeenNic) -> None:
    for name in (*NEEDED, *(["pfc"] if policy.lossless else [])):
        if name in cannot:
            raise FabricError(
                f"it cannot have {name}: {cannot[name]}",
                f"leave it out of {NICS}, or use a driver that supports it",
                subject=f"{seen.nic.name} ({seen.nic.interface})",
            )
    dcb = seen.dcb
    if dcb is None:
        return
    for traffic in policy.all_classes:
        if traffic.traffic_class >= dcb.classes_at_most:
            raise FabricError(
                f"it has {dcb.classes_at_most} traffic classes (0 to {dcb.classes_at_most - 1}), but the policy uses "
                f"{traffic.traffic_class}",
                "give the policy's classes lower traffic classes",
                subject=f"{seen.nic.name} ({seen.nic.interface})",
            )
    if len(policy.lossless) > dcb.lossless_at_most:
        raise FabricError(
            f"it can have {dcb.lossless_at_most} lossless priorities, but the policy has {len(policy.lossless)}",
            "make one of its classes lossy",
            subject=f"{seen.nic.name} ({seen.nic.interface})",
        )


def expected(wanted: Nic, seen: SeenNic) -> Nic:
    """Return the expected reading after the function is set.

    Each setting has its requested value, or its current value where none is requested.
    """
    values = {}
    for nic_field in fields(Nic):
        seen_value, wanted_value = getattr(seen.nic, nic_field.name), getattr(wanted, nic_field.name)
        if nic_field.name in ("pfc", "forced_tos"):
            values[nic_field.name] = seen_value if nic_field.name in seen.cannot else wanted_value
        elif isinstance(wanted_value, tuple) and nic_field.name not in ("notification", "reaction"):
            values[nic_field.name] = tuple(old if new is None else new for old, new in zip(seen_value, wanted_value))
        else:
            values[nic_field.name] = seen_value if wanted_value is None else wanted_value
    return Nic(**values)


def differences(wanted: Nic, seen: SeenNic) -> dict[str, tuple[Any, Any]]:
    """Return, by field of Nic, (before, after) as text for each difference from ``wanted``.

    None in ``wanted`` requests nothing, except in ``forced_tos``, where it requests that applications choose.
    """
    changes: dict[str, tuple[Any, Any]] = {}
    for nic_field in fields(Nic):
        if nic_field.name in DESCRIBES:
            continue
        seen_value, wanted_value = getattr(seen.nic, nic_field.name), getattr(wanted, nic_field.name)
        if nic_field.name == "pfc":
            if "pfc" not in seen.cannot and seen_value != wanted_value:
                changes["pfc"] = list(seen_value), list(wanted_value)
        elif isinstance(wanted_value, tuple) and nic_field.name not in ("notification", "reaction"):
            differing = [
                index for index, value in enumerate(wanted_value) if value is not None and value != seen_value[index]
            ]
            if differing:
                changes[nic_field.name] = (
                    _shown(nic_field.name, seen_value, differing, seen),
                    _shown(nic_field.name, wanted_value, differing, None),
                )
        elif seen_value != wanted_value and (wanted_value is not None or nic_field.name == "forced_tos"):
            changes[nic_field.name] = _listed(seen_value), _listed(wanted_value)
    return changes


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(name: str, values: tuple[Any, ...], indices: list[int], seen: SeenNic | None) -> dict[str, Any]:
    """Return DSCPs by priority ({"priority 3": "DSCP 26"}), and all other values by their index."""
    if name != "dscp_to_priority":
        return {str(index): _plain(values[index]) for index in indices}
    several = seen.dcb.dscp_priorities or {} if seen and seen.dcb else {}
    groups: dict[str, list[int]] = {}
    for dscp in indices:
        priorities = several.get(dscp, ()) if values[dscp] is None else (values[dscp],)
        group = f"priority {' and '.join(map(str, priorities))}" if priorities else "no priority"
        groups.setdefault(group, []).append(dscp)
    return {group: f"DSCP {format_ranges(dscps)}" for group, dscps in sorted(groups.items())}


def _plain(value: Any) -> Any:
    if isinstance(value, Queue):
        return "strict" if value.strict else f"{value.bandwidth_percent}%"
    return value
