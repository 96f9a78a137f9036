# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring RoCE NICs to a policy: plan all NICs before the first is changed, and read them back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import dcb
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import check_name, nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import (
    class_of,
    differences,
    expected,
    plan,
    read_nics,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.steps import NicStep, steps
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import ALL, LESS_PFC
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import context, read

Planned = dict[str, "tuple[Nic, dict[str, str]]"]
# In iproute2 before 6.2, dcb takes the acknowledgement of its first request for the answer to its second. If the clock
# ticked in between, it ends with this error, although the kernel got the request (iproute2 d0e02f35).
STALE_ANSWER = "Protocol error"
TRIES = 3


def settings(policy: dict[str, Any], nics: dict[str, Any], rdma_class: str | None) -> dict[str, Any]:
    """Return the settings in the form that ``ensure`` takes and that is saved for the boot.

    The class is always named, because a file with sorted keys does not preserve which class is the policy's first.
    Raises HostError for settings that are not valid on any host.
    """
    try:
        read_nics(nics)
        return {"policy": policy, "nics": nics, "rdma_class": class_of(read_policy(policy), rdma_class).name}
    except FabricError as error:
        raise HostError.of(error) from error


def planned(request: dict[str, Any], seen: dict[str, SeenNic]) -> Planned:
    """Return, by RDMA device, its wanted settings, and why it cannot have the rest.

    Raises HostError where the policy is invalid or cannot be applied.
    """
    try:
        policy = read_policy(request["policy"])
        rdma_class = class_of(policy, request["rdma_class"])
        nics = read_nics(request["nics"])
        plans: Planned = {}
        for name, function in seen.items():  # physical functions first
            parent = (
                plans[function.parent.name][0] if function.parent and function.parent.name in plans else function.parent
            )
            plans[name] = plan(policy, rdma_class, nics[name], function, parent)
        return plans
    except FabricError as error:
        raise HostError.of(error) from error


def ensure(system: System, request: dict[str, Any], check: bool = False, stage: str = ALL) -> Outcome:
    """Bring NICs to ``request`` (see ``settings``), up to ``stage`` (see ``stages``). Raises HostError."""
    seen = context.read(system, list(request["nics"]))
    return _bring(system, seen, planned(request, seen), check, stage)


def restore(system: System, nics: dict[str, Any], check: bool = False, stage: str = ALL) -> Outcome:
    """Bring NICs back to the settings that ``shown`` returned for them. Raises HostError."""
    seen = read.read(system, list(nics))
    try:
        want: Planned = {name: (nic_of(name, nics[name]), {}) for name in seen}
        for name, (wanted, _cannot) in want.items():
            check_name(name, wanted, name)
    except FabricError as error:
        raise HostError.of(error) from error
    return _bring(system, seen, want, check, stage)


def _as_far_as(stage: str, wanted: Nic, seen: Nic) -> Nic:
    if stage == ALL:
        return wanted
    staying = tuple(priority for priority in seen.pfc if priority in wanted.pfc)
    return replace(seen if stage == LESS_PFC else wanted, pfc=staying)


def _bring(system: System, seen: dict[str, SeenNic], plans: Planned, check: bool, stage: str) -> Outcome:
    want = {name: (_as_far_as(stage, wanted, seen[name].nic), cannot) for name, (wanted, cannot) in plans.items()}
    outcome = Outcome(facts={"nics_before": {name: shown(nic) for name, nic in seen.items()}})
    for name, (wanted, _cannot) in want.items():
        for field, (old_value, new_value) in differences(wanted, seen[name]).items():
            outcome.differ(f"{name} {field}", old_value, new_value)
    try:  # before anything is written
        to_write = {name: steps(seen[name], wanted) for name, (wanted, _cannot) in want.items()}
    except FabricError as error:
        raise HostError.of(error) from error
    if outcome.changed and not check:
        settings_written: list[str] = []
        for name, (wanted, _cannot) in want.items():
            todo = to_write[name]
            for position, step in enumerate(todo):
                later = {pending_step.setting for pending_step in todo[position:]}
                if step.setting == "pfc" and position > 0:  # the first step may remove PFC
                    # A driver may refuse a buffer or queue without an error; its priority must then stay lossy.
                    _check_kept(name, wanted, read.read(system, [name])[name], settings_written, later)
                _write(system, name, step, settings_written)
        seen = context.read(system, list(want))
        for name, (wanted, _cannot) in want.items():
            _check_kept(name, wanted, seen[name], settings_written)
    outcome.facts["nics"] = {
        name: shown(replace(seen[name], nic=expected(wanted, seen[name])) if check else seen[name])
        for name, (wanted, _cannot) in want.items()
    }
    outcome.facts["cannot"] = {name: cannot for name, (_wanted, cannot) in want.items() if cannot}
    return outcome


def shown(seen: SeenNic) -> dict[str, Any]:
    """Return a function as plain data: the fields of Nic, why some are missing, and the other fields of Seen."""
    fields = asdict(seen.nic)
    for queue in filter(None, fields["queues"]):
        del queue["unknown_ecn"]  # of a switch
    return {
        **fields,
        "cannot": dict(seen.cannot),
        "driver": seen.driver,
        "address": seen.address,
        "speed_gbit_s": seen.speed_gbit_s,
        "mac": seen.mac,
        "gids": list(seen.gids or ()),
        "vfs": [asdict(vf) for vf in seen.vfs],
        "vfs_unread": seen.vfs_unread,
        "uncovered": list(seen.uncovered),
    }


def _write(system: System, name: str, step: NicStep, settings_written: list[str]) -> None:
    try:
        _writers(step)(system, name, step)
    except HostError as error:
        progress = f"done before: {', '.join(settings_written)}" if settings_written else "nothing was changed before"
        reason = dcb.decoded_error(error.cause)
        raise HostError(
            f"{name}: {step.setting} was refused: {reason}; {progress}", "correct it and run again"
        ) from error
    if f"{name} {step.setting}" not in settings_written:
        settings_written.append(f"{name} {step.setting}")


def _writers(step: NicStep) -> Callable[[System, str, NicStep], object]:
    if step.argv:
        return _run_tool
    if step.path:
        return lambda system, _name, step: system.poke(step.path, step.text)
    return _write_connections


def _run_tool(system: System, _name: str, step: NicStep) -> None:
    """Run the step's command, again if it took the answer to an earlier request for its own."""
    for attempt in range(1, TRIES + 1):
        try:
            system.run(list(step.argv))
            return
        except HostError as error:
            if STALE_ANSWER not in error.cause or attempt == TRIES:
                raise


def _write_connections(system: System, name: str, step: NicStep) -> None:
    """Write RDMA-CM's ToS."""
    if not system.exists(read.CONNECTIONS):
        system.run(["modprobe", "rdma_cm"])
    if not system.exists(read.CONNECTIONS):
        raise HostError(f"there is no {read.CONNECTIONS}", "run 'mount -t configfs none /sys/kernel/config' first")
    with read.connections(system, name) as path:
        system.poke(path, step.text)


def _check_kept(
    name: str, wanted: Nic, seen: SeenNic, settings_written: list[str], later: Collection[str] = ()
) -> None:
    """Check that the settings read back, except those written ``later``: dcb before 6.2 reports no driver's refusal."""
    differing = {field: values for field, values in differences(wanted, seen).items() if field not in later}
    if differing:
        field, (now, then) = next(iter(differing.items()))
        raise HostError(
            f"{name}: the driver was given {field}, but did not keep it: it reads back {now}, wanted {then}; "
            f"set so far: {', '.join(settings_written)}",
            "see the kernel's log for its driver, and what else on this host sets it (lldpad, NetworkManager)",
        )
