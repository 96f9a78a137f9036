# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the text of /etc/nccl.conf."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_conf
short_description: Return the text of /etc/nccl.conf
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns the file with these settings and no others, sorted. A name that does not begin with C(NCCL_), and a value of
    several lines, are refused.
options:
  _input:
    description: The settings, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
text: "{{ {'NCCL_IB_TC': 106} | sailloft.fleet.nccl_conf }}"
"""

RETURN = r"""
_value:
  description: The file's text.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def nccl_conf(settings: Any) -> str:
    """Return the file's text. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import nccl_conf as nccl

    try:
        return nccl.text(settings)
    except FabricError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nccl_conf": nccl_conf}
