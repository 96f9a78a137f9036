#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_certificate
short_description: Enrol the site's certificate in a node's firmware through its BMC
version_added: 0.1.0
description:
  - Adds a certificate to databases of the firmware's Secure Boot, by Redfish (SecureBootDatabases), reads it back, and
    turns Secure Boot on if requested. Nothing is removed.
  - The firmware may use it, and the BMC may show it, only after a restart of the node.
  - Tried with DMTF's mockup server, which only keeps what it gets, and with no BMC.
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.node_bmc]
options:
  certificate:
    description: The certificate in PEM, its text.
    type: str
    required: true
  databases:
    description: >-
      The databases, in this order. V(PK) ends the setup mode of the firmware, so it comes last.
    type: list
    elements: str
    choices: [db, KEK, PK, dbx]
    default: [db]
  enable:
    description: Whether to turn Secure Boot on, once the BMC shows the certificate in all of O(databases).
    type: bool
    default: false
seealso:
  - module: sailloft.fleet.node_boot_restart
"""

EXAMPLES = r"""
- name: Enrol the site's certificate, and turn Secure Boot on
  sailloft.fleet.node_boot_certificate:
    node: "{{ inventory_hostname }}"
    bmc: "{{ node_boot_bmc }}"
    certificate: "{{ lookup('file', '/etc/sailloft/boot.crt') }}"
    databases: [db, KEK, PK]
    enable: true
  delegate_to: localhost
"""

RETURN = r"""
databases:
  description: Whether each database has the certificate, as the BMC shows it; in check mode, as it would be.
  returned: success
  type: dict
  sample: {db: true, KEK: true, PK: true}
enabled:
  description: Whether Secure Boot is set to on.
  returned: success
  type: bool
pending:
  description: The databases that have taken the certificate and do not show it yet. Restart the node, and run it again.
  returned: success
  type: list
  elements: str
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_certificates
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS, BmcError, BootBmc


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "bmc": {"type": "dict", "required": True, "options": OPTIONS},
            "host": {"type": "str", "default": "localhost"},
            "certificate": {"type": "str", "required": True},
            "databases": {
                "type": "list",
                "elements": "str",
                "choices": ["db", "KEK", "PK", "dbx"],
                "default": ["db"],
            },
            "enable": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, bmc = module.params, BootBmc.of(module.params["bmc"])
    try:
        enrolment = bmc_certificates.enrol(
            bmc, params["certificate"], params["databases"], params["enable"], module.check_mode
        )
    except BmcError as error:
        refused = "did not take the certificate"
        module.fail_json(msg=str(bmc.failure(params["node"], params["host"], str(error), refused)))
    if enrolment.pending:
        module.warn(f"{params['node']}: its BMC does not show the certificate in {', '.join(enrolment.pending)} yet")
    module.exit_json(
        changed=enrolment.before != enrolment.after or bool(enrolment.pending),
        **asdict(enrolment.after),
        pending=list(enrolment.pending),
        diff={"before": asdict(enrolment.before), "after": asdict(enrolment.after)},
    )


if __name__ == "__main__":
    main()
