# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch systems that a policy can be rendered for and read back from, by name.

A system has a module of ``systems`` with the names below, a reader in ``running``, a directory of task files in the
role ``roce_switch``, and a row in ``SYSTEMS``. All texts are in the system's own format. All functions are pure: the
same input gives the same bytes. Examples: systems/eos.py, running/eos.py and tasks/eos; for a system without its own
rollback, tasks/linux and ``restoration`` of systems/linux.py; for ``SAVES_WITH_CHANGE``, junos.
``syntax/cli.py`` reads and refuses lines, nested or not.

Required names of the module:

``SYSTEM``: the name, the same as in ``SYSTEMS`` and in ``roce_switch_system``.
``NOT_HELD``: field of PortQos, or ``ecmp_fields`` -> why this system's configuration does not hold it (the system
decides it itself); ``{}`` if it holds all.
``PORT`` and ``PORT_EXAMPLE``: the form of a port's name, and an example for the error about an invalid name; it
begins with a valid name that ends in a number, which the tests use.
``render(switch) -> str``: the configuration of a planned switch; only what concerns QoS.
``parse(text, name) -> Switch``: a running configuration (all of it or only its QoS), also one that ``render`` did not
write, in the same terms; FabricError if it is not of this system. An empty text is a configuration only where a switch
without QoS shows nothing; ``read.yml`` must then fail if its command failed. ``parse(render(switch), switch.name)``
is ``switch``, without NOT_HELD.
``remediation(running, wanted) -> str``: the change from a running configuration to ``wanted``; "" where nothing
differs. It removes only what is this project's or contradicts the policy, as does each setting of a wanted port that
the policy does not have. Ports that are not in ``wanted`` stay as they are, and ``ecmp_fields`` None changes nothing.
FabricError if ``running`` cannot be read.
``restoration(before, now, name) -> str``: the change from the configuration ``now`` back to ``before``, in all that a
policy can change; "" where nothing differs. It has the form of ``remediation``'s change.

Optional names, with the meaning of their absence in parentheses:

``ASICS``: the rows of ``asic_table`` that switches with this system have (all); ``NOT_ASICS``: row -> why nothing is
rendered for it (no reasons).
``SIZES_HEADROOM = True``: the system computes headroom without any row or cable (bytes are planned).
``check_cable(subject, cable_m)``: raises FabricError where a lossless port cannot have that cable (all can).
``held_cable_m(cable_m)``: the cable length for which the system keeps headroom if the cable has ``cable_m``
(``cable_m``).
``attainable(qos, queue_buffer_bytes)``: ``qos`` with the nearest thresholds that the system can hold, none above its
earlier value; it makes ``roce_switch_queue_buffer_bytes`` mandatory (all thresholds are attainable).
``BUFFER_SHARES``: the parts into which it is configured to divide the buffer; ``DEFAULT_SHARES``: its own division,
used unless the user gives the ASIC's pools (the pools are the ASIC's).
``HAS_POOLS = True``: ``Switch.pools`` has the requirements for the system's pools (it has no pools of its own).
``CLASSIFIES_AT_EGRESS = True``: a port's ``dscp_to_class`` is for the packets that leave by it (that enter by it).
``LOST_AT_BOOT = True``: a reboot loses the change; save.yml makes the system apply ``render``'s text at every boot, and
``boot_configuration(text, name) -> str`` returns that text for the configuration ``text``, "" for one without QoS (the
system can save its configuration).
``SAVES_WITH_CHANGE = True``: the switch itself saves every change, and there is no save.yml (save.yml saves).

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

import re
from typing import Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import (
    cumulus,
    dell_sonic,
    eos,
    junos,
    linux,
    nxos,
    sonic,
)


class SwitchSystem(Protocol):
    """The required names. The optional ones are read with getattr and the default above."""

    SYSTEM: str
    NOT_HELD: dict[str, str]
    PORT: re.Pattern[str]
    PORT_EXAMPLE: str

    def render(self, switch: Switch) -> str: ...

    def parse(self, text: str, name: str) -> Switch: ...

    def remediation(self, running: str, wanted: Switch) -> str: ...

    def restoration(self, before: str, now: str, name: str) -> str: ...


SYSTEMS: dict[str, SwitchSystem] = {
    "cumulus": cumulus,
    "dell_sonic": dell_sonic,
    "eos": eos,
    "junos": junos,
    "linux": linux,
    "nxos": nxos,
    "sonic": sonic,
}
