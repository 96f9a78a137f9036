# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the packages and sockets of a host with the required ones; nothing is installed."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_states

RELEASE = "/etc/os-release"
# The words in ID and ID_LIKE (os-release(5)) by Ansible's os_family.
FAMILIES = {"Debian": {"debian", "ubuntu"}, "RedHat": {"rhel", "fedora", "centos"}}


def options() -> dict[str, Any]:
    """Return the options as an argument_spec: names by os_family of Ansible."""
    return {"installed": {"type": "dict", "default": {}}, "sockets": {"type": "dict", "default": {}}}


def observe(system: System, request: dict[str, Any]) -> Outcome:
    """Return the packages of ``installed`` and the sockets of ``sockets`` (lists by os_family) that are not as wanted.

    A socket must be enabled and active. Raises HostError on a host of another family, and for a package that its
    package manager does not know.
    """
    outcome = Outcome()
    if not request["installed"] and not request["sockets"]:
        return outcome
    family = _family(system)
    wanted = request["installed"].get(family, [])
    if family == "Debian" and wanted:
        states = _of_dpkg(system, wanted)
        for name in wanted:
            if "installed" not in states.get(name, ()):
                outcome.differ(name, sorted(states.get(name, ())), "installed")
    elif wanted:
        # rpm fails if no installed package provides one of the names, and reports the name.
        system.run(["rpm", "--query", "--whatprovides", *wanted])
    sockets = request["sockets"].get(family, [])
    for state in unit_states(system, sockets) if sockets else []:
        present = f"{state.active_state} {state.file_state}"
        if present != "active enabled":
            outcome.differ(state.name, present, "active enabled")
    return outcome


def _family(system: System) -> str:
    """Return Ansible's os_family of the host, if it is in FAMILIES. Raises HostError for any other."""
    text = system.read(RELEASE) or ""
    identifiers = {
        word for value in re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', text, re.MULTILINE) for word in value.split()
    }
    for family, members in FAMILIES.items():
        if identifiers & members:
            return family
    raise HostError(f"{RELEASE} does not name a distribution whose packages are known", "install them manually")


def _of_dpkg(system: System, names: list[str]) -> dict[str, set[str]]:
    """Return the states of each package, one for each architecture: dpkg-query(1), db:Status-Status."""
    states: dict[str, set[str]] = {}
    output = system.run(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *names])
    for line in output.splitlines():
        name, _space, state = line.partition(" ")
        states.setdefault(name, set()).add(state)
    return states
