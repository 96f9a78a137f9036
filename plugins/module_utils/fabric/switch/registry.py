# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch systems that a policy can be rendered for and read back from, by name.

A system has a module of ``systems`` that ends with its SwitchSystem (fabric/model/switch_system.py says what each field
means), a reader in ``running``, a directory of task files in the role ``roce_switch``, and a place in ``SYSTEMS``. It
is imported when it is first used: each run of a module compiles all that it imports, and a site has one system or two.
Examples: systems/eos.py, running/eos.py and tasks/eos; for a system without its own rollback, tasks/linux and
``restoration`` of systems/linux.py; for ``saves_with_change``, junos. ``syntax/cli.py`` reads and refuses lines, nested
or not.

Files in ``roles/roce_switch/tasks/SYSTEM``; errors begin with the name of the switch and end with the next step:

``read.yml``: sets ``roce_switch_running`` to the text for ``parse``, in check mode too, and changes nothing. It reports
an unreachable switch once. Only where the output may contain secrets, the task that reads it has ``no_log`` and
``failed_when: false``, and the task after it imports ``was_read.yml`` of the role, which reports the cause: see
eos/read.yml; linux/read.yml simply fails.
``apply.yml``: sends ``__roce_switch_change``, the text of ``remediation`` or ``restoration`` (``__roce_switch_lines``:
its lines without indentation), and saves it. It is applied completely or not at all if the system can do that;
otherwise the role restores the backup after a failure. A failed task is enough: the role adds the switch and the task
to its error. In a ``rescue``, ``__roce_switch_cause`` is the cause. A system with a rollback of its own records the
state before the run's first change in ``__roce_switch_restore_point``.
``restore.yml``: returns to ``__roce_switch_restore_point``, if it is set, and saves; for a system without a rollback of
its own, it only includes ``restore/computed.yml`` of the role, which runs ``apply.yml`` with the text of
``restoration``.
``save.yml``: saves the running configuration, which an interrupted run may have changed without saving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem


class SwitchSystems(MutableMapping[str, SwitchSystem]):
    """Systems by name, each with the function that imports it."""

    def __init__(self, **imports: Callable[[], SwitchSystem]) -> None:
        self._imports = imports

    def __getitem__(self, name: str) -> SwitchSystem:
        return self._imports[name]()

    def __setitem__(self, name: str, system: SwitchSystem) -> None:
        self._imports[name] = lambda: system

    def __delitem__(self, name: str) -> None:
        del self._imports[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._imports)

    def __len__(self) -> int:
        return len(self._imports)

    def __contains__(self, name: object) -> bool:
        return name in self._imports


def _cumulus() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.cumulus import CUMULUS

    return CUMULUS


def _dell_sonic() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.dell_sonic import DELL_SONIC

    return DELL_SONIC


def _eos() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.eos import EOS

    return EOS


def _junos() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.junos import JUNOS

    return JUNOS


def _linux() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.linux import LINUX

    return LINUX


def _nxos() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.nxos import NXOS

    return NXOS


def _sonic() -> SwitchSystem:
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.sonic import SONIC

    return SONIC


SYSTEMS = SwitchSystems(
    cumulus=_cumulus,
    dell_sonic=_dell_sonic,
    eos=_eos,
    junos=_junos,
    linux=_linux,
    nxos=_nxos,
    sonic=_sonic,
)
