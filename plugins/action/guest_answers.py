# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait until a guest answers, as long as its disk and network counters in libvirt increase and it does not refuse."""

from __future__ import annotations

import os
import re
import shlex
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import connection_loader
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.action.reached import Refusal, cause, refusal_of

PAUSE_S = 2
SHOWN_EVERY_S = 15
# A hypervisor that reboots, or whose emulator restarts, is back within this time.
UNREACHED_S = 300
# Counters of virDomainListGetStats that increase only when the guest makes progress. Received packets are sent by the
# network, and a processor that spins uses time as well.
COUNTERS = re.compile(r"^\s*(block\.\d+\.(?:rd|wr)\.bytes|net\.\d+\.tx\.bytes)=(\d+)$", re.MULTILINE)
STATE = re.compile(r"^\s*state\.state=(\d+)$", re.MULTILINE)
RUNNING = 1  # VIR_DOMAIN_RUNNING
# What virsh prints in the locale C for a name that no domain has (virshLookupDomainInternal in tools/virsh-util.c).
NO_DOMAIN = "failed to get domain"
UNDEFINED = -1  # no value of virDomainState
CORRECT = "correct the name of the guest or its gpu_guest_host"
DEFINE = "define it on the hypervisor first: playbooks/gpu_vms.yml"

display = Display()


class ActionModule(ActionBase):
    """Retry the guest's connection; between two tries, read on its hypervisor whether the guest makes progress."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        _checked, options = self.validate_argument_spec(
            argument_spec={
                "hypervisor": {"type": "str", "required": True},
                "silent_s": {"type": "int", "default": 600},
                "boot_stall_s": {"type": "int", "default": 0},
            }
        )
        name, hypervisor = variables["inventory_hostname"], options["hypervisor"]
        if hypervisor not in variables["hostvars"]:
            result.update(failed=True, msg=f"{hypervisor}, the hypervisor of {name}, is no host; {CORRECT}")
            return result
        start_s = moved = shown = reached = time.monotonic()
        seen: dict[str, int] | None = None
        refused_since: tuple[Refusal | None, float] = (None, start_s)
        while reason := self._reason():
            now = time.monotonic()
            refusal = refusal_of(reason)
            if refused_since[0] != refusal:
                refused_since = (refusal, now)
            try:
                state, counters = self._activity(hypervisor, name, variables)
                reached = now
            except AnsibleConnectionFailure as error:
                # The guest's progress is unknown while its hypervisor is not reached.
                state, counters, moved = None, None, now
                if now - reached > UNREACHED_S * load():
                    result.update(failed=True, msg=gone(name, hypervisor, now - reached, error))
                    return result
            if counters is not None and counters != seen:
                seen, moved = counters, now
            if state == UNDEFINED:
                result.update(failed=True, msg=f"{hypervisor} has no virtual machine {name}; {CORRECT}, and {DEFINE}")
                return result
            if state not in (None, RUNNING):
                result.update(failed=True, msg=f"{name} is not running on {hypervisor}; start it: virsh start {name}")
                return result
            if refusal and now - refused_since[1] >= refusal.boot_s * load():
                result.update(
                    failed=True, msg=f"{name} refuses the connection ({reason}). {refusal.remedy}, then run again"
                )
                return result
            if now - moved > (options["silent_s"] + options["boot_stall_s"]) * load():
                result.update(failed=True, msg=stalled(name, hypervisor, now - moved, seen, reason))
                return result
            if now - shown >= SHOWN_EVERY_S:
                shown = now
                does = activity(seen) if reached == now else f"its hypervisor {hypervisor} cannot be reached"
                display.display(f"{name} boots, {now - start_s:.0f} s: {does}; {reason.partition('; ')[0]}")
            time.sleep(PAUSE_S)
        result.update(changed=False, elapsed_s=round(time.monotonic() - start_s))
        return result

    def _reason(self) -> str | None:
        """Return the reason why the guest's connection fails, or None."""
        try:
            self._connection.reset()
            self._low_level_execute_command("true", sudoable=False)
        except AnsibleConnectionFailure as error:
            return cause(str(error))
        return None

    def _activity(
        self, hypervisor: str, name: str, hypervisor_variables: dict[str, Any]
    ) -> tuple[int | None, dict[str, int] | None]:
        """Return the guest's state and counters, None if the hypervisor does not report them; raise if unreached.

        The state is UNDEFINED if the hypervisor has no such domain.
        """
        variables = hypervisor_variables["hostvars"][hypervisor]
        if variables.get("gpu_vm_backend") == "vsphere":
            # The collection does not log in to ESXi.
            return None, None
        kind = variables.get("ansible_connection") or "ssh"
        context = self._play_context.copy()
        context.remote_addr = variables.get("ansible_host") or hypervisor
        command = f"LC_ALL=C virsh --connect qemu:///system domstats --state --block --interface {shlex.quote(name)}"
        try:
            connection = connection_loader.get(kind, context, new_stdin=None)
            connection.set_options(var_options=variables)
            status, output, errors = connection.exec_command(command, sudoable=False)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError:
            return None, None
        text = to_text(output)
        state = STATE.search(text)
        if status and NO_DOMAIN in to_text(errors):
            return UNDEFINED, None
        if status or not state:
            return None, None
        return int(state.group(1)), {counter: int(value) for counter, value in COUNTERS.findall(text)}


def load() -> float:
    """Return the controller's load average per processor, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def activity(counters: dict[str, int] | None) -> str:
    """Return the guest's progress so far, in words."""
    if counters is None:
        return "its hypervisor does not report its activity"
    read, written, sent = (
        sum(value for counter, value in counters.items() if counter.endswith(end))
        for end in ("rd.bytes", "wr.bytes", "tx.bytes")
    )
    return f"{read / 1e6:.1f} MB read from its disks, {written / 1e6:.1f} MB written, {sent / 1e3:.1f} kB sent"


def stalled(name: str, hypervisor: str, silent_s: float, counters: dict[str, int] | None, reason: str) -> str:
    """Return the message for a guest that makes no progress, with the cause of its last failed connection."""
    return (
        f"{name} does not answer ({reason}), and has shown no activity for {silent_s:.0f} s ({activity(counters)}). "
        f"Compare its address with ansible_host (libvirt: virsh domifaddr {name} --source arp), read its console "
        f"(libvirt: /var/log/libvirt/qemu/{name}-console.log on {hypervisor}), reset it there "
        f"(libvirt: virsh reset {name}), and run again"
    )


def gone(name: str, hypervisor: str, unreached_s: float, error: Exception) -> str:
    """Return the message for a hypervisor that is no longer reached."""
    return (
        f"{hypervisor}, the hypervisor of {name}, has not been reached for {unreached_s:.0f} s: {error}. "
        f"Read {hypervisor}'s console, bring it up, and run again"
    )
