#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The settings of a GPU node that a reboot loses."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_boot
short_description: Set MIG, clocks, NIC rings and ARP settings of a GPU node, now and at every boot
version_added: 0.1.0
description:
  - Turns MIG off, locks the clocks of all GPUs, sets the rings of ConnectX and BlueField interfaces and the ARP
    settings of rails on one subnet, and repeats this at every boot, with the same code, after the persistence daemon
    has started.
  - For the boot it saves the settings (C(/etc/sailloft/gpu_node.json)), its own code
    (C(/usr/lib/sailloft/gpu_node.pyz)) and a systemd unit (C(sailloft-gpu-node.service)).
  - If the driver is not loaded, for example after its installation, MIG and clocks wait for the next boot
    (RV(pending)).
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: V(absent) removes the unit and its files. The settings stay until the next boot.
    type: str
    choices: [present, absent]
    default: present
  mig_off:
    description: Whether to turn MIG off on all GPUs that have it.
    type: bool
    default: true
  clocks_mhz:
    description: The lowest and the highest clock of the GPUs in MHz. Empty leaves them unchanged.
    type: list
    elements: int
    default: []
  ring_entries:
    description:
      - Entries of receive and transmit rings, limited to the NIC's maximum. 0 leaves them unchanged.
    type: int
    default: 0
  rails_on_one_subnet:
    description: The same option as in M(sailloft.fleet.gpu_node_software).
    type: bool
    default: false
  now:
    description: Whether to apply the settings now. V(false) only saves them, for an image.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Turn MIG off, lock clocks and enlarge rings
  sailloft.fleet.gpu_node_boot:
    clocks_mhz: [1980, 1980]
    ring_entries: 8192
"""

RETURN = r"""
rings:
  description: The sizes of RX and TX rings by interface.
  returned: with O(ring_entries) and O(now)
  type: dict
gpus:
  description: The GPUs.
  returned: when their driver is loaded
  type: list
  elements: str
unit:
  description: The systemd unit.
  returned: when O(state=present)
  type: str
settings_file:
  description: The file of the saved settings.
  returned: when O(state=present)
  type: str
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot, service
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mig_off": {"type": "bool", "default": True},
            "clocks_mhz": {"type": "list", "elements": "int", "default": []},
            "ring_entries": {"type": "int", "default": 0},
            "rails_on_one_subnet": {"type": "bool", "default": False},
            "now": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    system = System()
    now, state = module.params.pop("now"), module.params.pop("state")

    def work() -> Outcome:
        if state == "absent":
            return unit.remove(system, service.SERVICE, module.check_mode)
        settings = boot.read(module.params)
        saved = unit.ensure(system, service.SERVICE, module.params, module.check_mode, running=now)
        return saved.and_then(boot.ensure(system, settings, module.check_mode)) if now else saved

    finish_on_host(module, work, live=now)


if __name__ == "__main__":
    main()
