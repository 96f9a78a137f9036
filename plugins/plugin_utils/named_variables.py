# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read variables of many hosts in one task, where the error of a template names its host and its variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError


@contextmanager
def naming(host: str, variable: str) -> Iterator[None]:
    """Let an error of Ansible name the host and the variable. Raises AnsibleActionFail."""
    try:
        yield
    except AnsibleError as error:
        # The last line has the cause. A chain of errors would show it again.
        cause = (str(error).strip().splitlines() or ["its template cannot be read"])[-1]
        raise AnsibleActionFail(f"{host}: {variable}: {cause}; correct the variable") from None


class VariablesOfHosts(Mapping[str, Mapping[str, Any]]):
    """The ``hostvars`` of a task."""

    def __init__(self, hostvars: Mapping[str, Any]) -> None:
        self._hostvars = hostvars

    def __getitem__(self, host: str) -> VariablesOfHost:
        """Return a host's variables. Raises KeyError."""
        return VariablesOfHost(host, self._hostvars[host])

    def __contains__(self, host: object) -> bool:
        """Return whether there is such a host."""
        return host in self._hostvars

    def __iter__(self) -> Iterator[str]:
        """Return the hosts."""
        return iter(self._hostvars)

    def __len__(self) -> int:
        """Return the number of hosts."""
        return len(self._hostvars)


class VariablesOfHost(Mapping[str, Any]):
    """The variables of a host."""

    def __init__(self, host: str, variables: Mapping[str, Any]) -> None:
        self._host, self._variables = host, variables

    def __getitem__(self, name: str) -> Any:
        """Return a value. Raises KeyError, and AnsibleActionFail for a template that cannot be read."""
        with naming(self._host, name):
            return self._variables[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the variable is set, without reading it."""
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._variables)

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self._variables)
