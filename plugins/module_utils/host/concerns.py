# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All settings that a reboot loses, in the order in which both a module's run and the boot apply them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import valid_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host import hugepages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import (
    pci_tuning,
    sriov,
    vf_request,
    vfio_binding,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

# Huge pages come first, while memory is not fragmented; VFs come before the settings that can name them.
ORDER = ("hugepages", "sriov", "vfio_binding", "pci_tuning", "kernel_settings")


def read_topology(system: System) -> Host:
    """Read the host of ``system``. Raises HostError."""
    try:
        return read_host(system.root)
    except TopologyError as error:
        raise HostError.of(error) from error


class ConcernPass:
    """One pass over the concerns of a host, which is read again only after it changed."""

    def __init__(self, system: System, check: bool) -> None:
        self.system = system
        self.check = check
        self._host: Host | None = None

    @property
    def host(self) -> Host:
        """Return the host as it was last read."""
        if self._host is None:
            self._host = read_topology(self.system)
        return self._host

    def read_again(self) -> Host:
        """Read the host again and return it."""
        self._host = None
        return self.host

    def one(self, concern: str, settings: Any) -> Outcome:
        """Apply the settings of one concern, or in check mode say what that would change.

        Failures are in the outcome's ``failed``. Raises RequestError for a mistake in the settings.
        """
        try:
            outcome = self._ensure()[concern](settings)
        except RequestError:
            raise
        except HostError as error:
            outcome = Outcome(failed=str(error))
        if concern in ("sriov", "vfio_binding") and (outcome.changed or outcome.failed):
            predicted = self.check and concern == "sriov" and not outcome.failed
            self._host = _without_vfs(self.host, outcome.facts["functions"]) if predicted else None
        return outcome

    def _ensure(self) -> dict[str, Callable[[Any], Outcome]]:
        return {
            "hugepages": lambda settings: hugepages.ensure(self.system, settings, self.check),
            "sriov": lambda settings: sriov.ensure(self.system, self.host, settings, self.check, self.read_again),
            "vfio_binding": lambda settings: vfio_binding.ensure(self.system, self.host, settings, self.check),
            "pci_tuning": lambda settings: pci_tuning.ensure(self.system, self.host, settings, self.check),
            "kernel_settings": lambda settings: kernel_settings.ensure(self.system, settings, self.check),
        }


def checked(settings: Any) -> dict[str, Any]:
    """Return the given settings by concern, in order. Raises RequestError for an unknown one."""
    unknown = sorted(set(settings) - set(ORDER))
    if unknown:
        raise RequestError(f"unknown setting {unknown[0]!r}", valid_settings(unknown[0], ORDER))
    return {concern: settings[concern] for concern in ORDER if settings.get(concern) is not None}


def check_form(settings: dict[str, Any]) -> None:
    """Refuse settings that no host could have; the presence of devices can be checked only on the host itself.

    Raises RequestError.
    """
    by_concern: dict[str, Callable[[Any], object]] = {
        "hugepages": hugepages.wanted,
        "sriov": lambda data: vf_request.wanted(data, None),
        "vfio_binding": lambda data: vfio_binding.wanted(data, None),
        "pci_tuning": lambda data: pci_tuning.wanted(data, None),
        "kernel_settings": kernel_settings.wanted,
    }
    for concern, data in checked(settings).items():
        by_concern[concern](data)


def ensure(system: System, settings: dict[str, Any], check: bool = False) -> dict[str, Outcome]:
    """Apply every concern in ``settings``. All are planned before the first is changed.

    Returns the outcome by concern: one that fails does not block the others. Raises RequestError for a mistake in
    ``settings``, with nothing changed.
    """
    request = checked(settings)
    check_form(request)
    planned = _each(ConcernPass(system, check=True), request)
    if check or not any(outcome.changed for outcome in planned.values()):
        return planned
    return _each(ConcernPass(system, check=False), request)


def _each(run: ConcernPass, request: dict[str, Any]) -> dict[str, Outcome]:
    return {concern: run.one(concern, settings) for concern, settings in request.items()}


def to_save(settings: dict[str, Any], results: dict[str, Outcome], saved: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings to apply at every boot; for a concern that failed, those that were saved before."""
    wanted_now = {concern: request for concern, request in settings.items() if concern not in failures(results)}
    if "vfio_binding" in wanted_now and "vfio_binding" in results:
        wanted_now["vfio_binding"] = vfio_binding.to_save(wanted_now["vfio_binding"], results["vfio_binding"].facts)
    former = {concern: request for concern, request in (saved or {}).items() if concern in failures(results)}
    lasting = {**wanted_now, **former}
    return {concern: lasting[concern] for concern in ORDER if concern in lasting}


def failures(results: dict[str, Outcome]) -> dict[str, str]:
    """Return the cause of each failure by concern."""
    return {concern: outcome.failed for concern, outcome in results.items() if outcome.failed}


def together(results: dict[str, Outcome], saved: Outcome, check: bool = False) -> Outcome:
    """Return one outcome of several concerns and of the service that restores them; ``check``: of a prediction."""
    failed = failures(results)
    total = Outcome(saved.before, saved.after, {**saved.facts, "outcomes": {}}, list(saved.pending))
    total.facts["failures"] = list(dict.fromkeys(failed.values()))
    for concern, outcome in results.items():
        for name, old_value in outcome.before.items():
            total.differ(f"{concern}: {name}", old_value, outcome.after[name])
        total.facts["outcomes"][concern] = outcome.facts
        total.pending += outcome.pending
    if failed:
        succeeded = [concern for concern in results if concern not in failed]
        total.failed = "\n".join(
            [
                f"{'would fail' if check else 'failed'}: {', '.join(failed)}; "
                + (
                    f"{'would be ' if check else ''}done and saved for every boot: {', '.join(succeeded)}"
                    if succeeded
                    else f"nothing new {'would be' if check else 'is'} saved for the boot"
                ),
                *(f"{number}. {line}" for number, line in enumerate(total.facts["failures"], 1)),
            ]
        )
    return total


def _without_vfs(host: Host, predicted: dict[str, dict[str, Any]]) -> Host:
    """Return the expected later state of the host: removed VFs are gone, new ones have no address yet.

    ``predicted``: the facts of ``sriov.ensure`` in check mode.
    """
    removed_vfs: set[str] = set()
    functions = []
    for function in host.functions:
        later = predicted.get(function.address)
        if later is not None and function.sriov is not None and function.sriov.vfs != later["vfs"]:
            removed_vfs |= set(function.sriov.vfs)
            function = replace(function, sriov=replace(function.sriov, now=later["count"], vfs=[]))
        functions.append(function)
    return replace(host, functions=[function for function in functions if function.address not in removed_vfs])
