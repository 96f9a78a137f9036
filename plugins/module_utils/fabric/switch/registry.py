# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch systems that a policy can be rendered for and read back from, by name.

A system has a module of ``systems`` that ends with its SwitchSystem (fabric/model/switch_system.py says what each field
means), a reader in ``running``, a directory of task files in the role ``roce_switch``, and a place in ``SYSTEMS``.
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

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.cumulus import CUMULUS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.dell_sonic import DELL_SONIC
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.eos import EOS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.junos import JUNOS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.linux import LINUX
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.nxos import NXOS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.sonic import SONIC

SYSTEMS: dict[str, SwitchSystem] = {
    system.name: system for system in (CUMULUS, DELL_SONIC, EOS, JUNOS, LINUX, NXOS, SONIC)
}
