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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import (
    class_of,
    differences,
    expected,
    plan,
    read_nics,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.steps import Step, steps
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import ALL, LESS_PFC
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import read

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


def planned(given: dict[str, Any], seen: dict[str, Seen]) -> Planned:
    """Return, by RDMA device, its wanted settings, and why it cannot have the rest.

    Raises HostError where the policy is invalid or cannot be applied.
    """
    try:
        policy = read_policy(given["policy"])
        rdma_class = class_of(policy, given["rdma_class"])
        nics = read_nics(given["nics"])
        done: Planned = {}
        for name, one in seen.items():  # physical functions first
            parent = done[one.parent.name][0] if one.parent and one.parent.name in done else one.parent
            done[name] = plan(policy, rdma_class, nics[name], one, parent)
        return done
    except FabricError as error:
        raise HostError.of(error) from error


def ensure(system: System, given: dict[str, Any], check: bool = False, stage: str = ALL) -> Outcome:
    """Bring NICs to ``given`` (see ``settings``), up to ``stage`` (see ``stages``). Raises HostError."""
    seen = read.read(system, list(given["nics"]))
    return _bring(system, seen, planned(given, seen), check, stage)


def restore(system: System, nics: dict[str, Any], check: bool = False, stage: str = ALL) -> Outcome:
    """Bring NICs back to the settings that ``shown`` returned for them. Raises HostError."""
    seen = read.read(system, list(nics))
    try:
        want: Planned = {name: (nic_of(name, nics[name]), {}) for name in seen}
    except FabricError as error:
        raise HostError.of(error) from error
    return _bring(system, seen, want, check, stage)


def _as_far_as(stage: str, wanted: Nic, seen: Nic) -> Nic:
    if stage == ALL:
        return wanted
    staying = tuple(priority for priority in seen.pfc if priority in wanted.pfc)
    return replace(seen if stage == LESS_PFC else wanted, pfc=staying)


def _bring(system: System, seen: dict[str, Seen], whole: Planned, check: bool, stage: str) -> Outcome:
    want = {name: (_as_far_as(stage, wanted, seen[name].nic), cannot) for name, (wanted, cannot) in whole.items()}
    outcome = Outcome()
    for name, (wanted, _cannot) in want.items():
        for field, (before, after) in differences(wanted, seen[name]).items():
            outcome.differ(f"{name} {field}", before, after)
    try:  # before anything is written
        to_write = {name: steps(seen[name], wanted) for name, (wanted, _cannot) in want.items()}
    except FabricError as error:
        raise HostError.of(error) from error
    if outcome.changed and not check:
        done: list[str] = []
        for name, (wanted, _cannot) in want.items():
            todo = to_write[name]
            for at, step in enumerate(todo):
                later = {each.setting for each in todo[at:]}
                if step.setting == "pfc" and at > 0:  # the first step may remove PFC
                    # A driver may refuse a buffer or queue without an error; its priority must then stay lossy.
                    _check_kept(name, wanted, read.read(system, [name])[name], done, later)
                _write(system, name, step, done)
        seen = read.read(system, list(want))
        for name, (wanted, _cannot) in want.items():
            _check_kept(name, wanted, seen[name], done)
    outcome.facts = {
        "nics": {
            name: shown(replace(seen[name], nic=expected(wanted, seen[name])) if check else seen[name])
            for name, (wanted, _cannot) in want.items()
        },
        "cannot": {name: cannot for name, (_wanted, cannot) in want.items() if cannot},
    }
    return outcome


def shown(seen: Seen) -> dict[str, Any]:
    """Return a function as plain data: the fields of Nic, why some are missing, its driver, PCI address and speed."""
    return {
        **asdict(seen.nic),
        "cannot": dict(seen.cannot),
        "driver": seen.driver,
        "address": seen.address,
        "speed_gbit_s": seen.speed_gbit_s,
    }


def _write(system: System, name: str, step: Step, done: list[str]) -> None:
    try:
        _writers(step)(system, name, step)
    except HostError as error:
        before = f"done before: {', '.join(done)}" if done else "nothing was changed before"
        why = dcb.decoded_error(error.cause)
        raise HostError(f"{name}: {step.setting} was refused: {why}; {before}", "correct it and run again") from error
    if f"{name} {step.setting}" not in done:
        done.append(f"{name} {step.setting}")


def _writers(step: Step) -> Callable[[System, str, Step], object]:
    if step.argv:
        return _run_tool
    if step.path:
        return lambda system, _name, step: system.poke(step.path, step.text)
    return _write_connections


def _run_tool(system: System, _name: str, step: Step) -> None:
    """Run the step's command, again if it took the answer to an earlier request for its own."""
    for attempt in range(1, TRIES + 1):
        try:
            system.run(list(step.argv))
            return
        except HostError as error:
            if STALE_ANSWER not in error.cause or attempt == TRIES:
                raise


def _write_connections(system: System, name: str, step: Step) -> None:
    """Write RDMA-CM's ToS."""
    if not system.exists(read.CONNECTIONS):
        system.run(["modprobe", "rdma_cm"])
    if not system.exists(read.CONNECTIONS):
        raise HostError(f"there is no {read.CONNECTIONS}", "run 'mount -t configfs none /sys/kernel/config' first")
    with read.connections(system, name) as path:
        system.poke(path, step.text)


def _check_kept(name: str, wanted: Nic, seen: Seen, done: list[str], later: Collection[str] = ()) -> None:
    """Check that the settings read back, except those written ``later``: dcb before 6.2 reports no driver's refusal."""
    left = {field: values for field, values in differences(wanted, seen).items() if field not in later}
    if left:
        field, (now, then) = next(iter(left.items()))
        raise HostError(
            f"{name}: the driver was given {field}, but did not keep it: it reads back {now}, wanted {then}; "
            f"set so far: {', '.join(done)}",
            "see the kernel's log for its driver, and what else on this host sets it (lldpad, NetworkManager)",
        )
