# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The actions that bring a domain into its state. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    XmlDifference,
    acted_on,
    differences,
    running_differences,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


@dataclass
class DomainDecision:
    """The decision on one domain.

    ``actions`` are some of stop, undefine, remove_disks, make_disks, define, autostart, no_autostart, start, resume.
    ``differences`` are those of the definition, ``live_differences`` those of the running domain. ``restart_required``
    is True if the running domain will still differ from its definition after ``actions``.
    """

    actions: list[str] = field(default_factory=list)
    differences: list[XmlDifference] = field(default_factory=list)
    live_differences: list[XmlDifference] = field(default_factory=list)
    restart_required: bool = False

    @property
    def changed(self) -> bool:
        """Return True if there is anything to do."""
        return bool(self.actions)


def disk_actions(spec: DomainSpec, state: str, missing: set[str], removable: list[str]) -> list[str]:
    """Return the actions on disks that are made; ``removable`` are those of ``disk_use.removable``."""
    if state == "absent":
        return ["remove_disks"] if removable else []
    return ["make_disks"] if {disk.path for disk in spec.disks if disk.is_made} & missing else []


def decide(
    name: str,
    state: str,
    have: ObservedDomain | None,
    wanted_xml: str | None,
    wanted_uuid: str,
    autostart: bool,
    allow_restart: bool,
) -> DomainDecision:
    """Return the actions that are needed. ``wanted_xml`` is None for state absent only.

    Raises DomainError if libvirt has a domain of that name that was made by something else.
    """
    if have is not None and have.uuid != wanted_uuid:
        raise DomainError(
            f"libvirt has a domain of this name with another uuid ({have.uuid}), so it was created by something else",
            "choose another name, or remove it with virsh undefine",
            domain=name,
        )
    decision = DomainDecision()
    if state == "absent":
        if have is not None:
            decision.actions = [*(["stop"] if have.running else []), "undefine"]
        return decision
    if wanted_xml is None:
        raise ValueError(f"domain {name}: state {state} needs the wanted XML")
    if have is None:
        decision.actions.append("define")
    else:
        decision.differences = differences(wanted_xml, have.inactive_xml)
        if acted_on(decision.differences):
            decision.actions.append("define")
    if autostart != (have is not None and have.autostart):
        decision.actions.append("autostart" if autostart else "no_autostart")

    live_xml = have.live_xml if have is not None else None
    running = live_xml is not None
    if live_xml is not None:
        decision.live_differences = running_differences(wanted_xml, live_xml)
    if state == "stopped" and running:
        decision.actions.append("stop")
    if state == "running" and not running:
        decision.actions.append("start")
    if state == "running" and have is not None and have.running and have.state == "paused":
        decision.actions.append("resume")
    if state in ("present", "running") and acted_on(decision.live_differences):
        if allow_restart:
            decision.actions = [action for action in decision.actions if action != "resume"] + ["stop", "start"]
        else:
            decision.restart_required = True
    return decision
