# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report why a BMC did not restart its node, with the next step."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_bmc_failure
short_description: Report why a BMC did not restart its node
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads the result of a task of community.general's modules for Redfish and IPMI that failed, and names the node, its
    BMC, the cause and the next step.
options:
  _input:
    description: The task's result.
    type: dict
    required: true
  node:
    description: The name of the node.
    type: str
    required: true
  bmc:
    description: The node's C(node_boot_bmc).
    type: dict
    required: true
  controller:
    description: The host that speaks to the BMC.
    type: str
    required: true
"""

EXAMPLES = r"""
msg: "{{ ansible_failed_result | sailloft.fleet.node_boot_bmc_failure('bm01', node_boot_bmc, 'localhost') }}"
"""

RETURN = r"""
_value:
  description: Two sentences.
  type: str
"""

import re
from collections.abc import Mapping
from typing import Any

# Messages of community.general's modules, pyghmi and the role's own checks, and the next step for each.
REMEDIES = (
    ("Error 401|Unauthorized name", "See node_boot_bmc.username and password."),
    ("Incorrect password", "See node_boot_bmc.password; some BMCs keep only 16 characters of it for IPMI."),
    ("certificate", "Name its certificate authority in node_boot_bmc.ca, or set verify_tls to false."),
    ("it has the systems", "See node_boot_bmc.system."),
    ("pyghmi", "Install pyghmi on {controller}, for the Python that Ansible runs there."),
)
OTHER = "See whether {controller} reaches that address, and whether the BMC needs a restart."


def node_boot_bmc_failure(result: Mapping[str, Any], node: str, bmc: Mapping[str, Any], controller: str) -> str:
    """Return the sentences."""
    said = str(result.get("msg", result))
    # pyghmi reports a BMC that does not answer as None.
    why = "it did not answer" if said == "None" else said
    remedy = next((text for pattern, text in REMEDIES if re.search(pattern, why)), OTHER).format(controller=controller)
    return f"{node}: its BMC {bmc.get('address') or '(none)'} did not restart it: {why}. {remedy}"


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_bmc_failure": node_boot_bmc_failure}
