# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refuse a run whose check would have no host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_hosts
short_description: Return the hosts of the play that checks a run, or fail if there is none
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - M(sailloft.fleet.run_check) needs a host of the run, which may be localhost. An inventory that could not be read and
    C(--limit) leave none. Ansible then skips each play, and ends with success.
options:
  _input:
    description: The sources of the inventory, C(ansible_inventory_sources).
    type: list
    elements: str
    required: true
  hosts:
    description: All hosts of the inventory, C(groups.all).
    type: list
    elements: str
    required: true
  limit:
    description: The value of C(--limit), empty without one.
    type: str
    required: true
"""

EXAMPLES = r"""
hosts: "{{ ansible_inventory_sources | sailloft.fleet.run_hosts(groups.all, ansible_limit | default('')) }}"
"""

RETURN = r"""
_value:
  description: The pattern of localhost, or of all hosts and localhost if the run is limited.
  type: str
"""

import re
from typing import Any

from ansible import constants
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader


def run_hosts(sources: list[str], hosts: list[str], limit: str) -> str:
    """Return localhost, with a limit all hosts as well. Raises AnsibleFilterError if no host can match.

    A play of all hosts takes 0.25 ms of processor time a host, even if its only task is for one of them.
    """
    from ansible_collections.sailloft.fleet.plugins.plugin_utils.inventory_sources import cause, unread

    # Ansible itself refuses a limit that matches no host of an inventory with hosts.
    if not limit:
        return "localhost"
    if hosts or set(re.split("[,:]", limit)) & set(constants.LOCALHOST):
        return "all:localhost"
    causes = [text for source in unread(sources, []) if (text := cause(source, DataLoader()))]
    text = "; ".join(causes) or f"the inventory has no host: {', '.join(sources)}"
    raise AnsibleFilterError(f"{text}. Nothing was run: correct the inventory, or name another one with -i")


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"run_hosts": run_hosts}
