# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the history of repairs, and the failures that were counted."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_repair_history
short_description: Read the history of repairs, and the failures that were counted
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads C(repair-log.jsonl), which C(playbooks/heal.yml) writes on the controller.
  - A failure is a fault that took a node out of service and was not planned. Nodes are counted from the first run on.
options:
  _input:
    description: The directory of the log, C(node_repair_path).
    type: path
    required: true
"""

EXAMPLES = r"""
counted: "{{ 'repair' | realpath | sailloft.fleet.node_repair_history }}"
advice: "{{ 96 | sailloft.fleet.checkpoint_interval(300, 10, failures=counted.failures, node_days=counted.node_days) }}"
"""

RETURN = r"""
_value:
  description: C(lines), the last decisions and the count in words, none without a log; C(failures) and C(node_days).
  type: dict
"""

import time
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


def node_repair_history(path: str) -> dict[str, Any]:
    """Return the history. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.repair.history import counted, history
    from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log_file import opened

    try:
        with opened(path, write=False) as log:
            lines = log.lines
    except SailloftError as error:
        raise AnsibleFilterError(str(error)) from error
    count = counted(lines, time.time())
    return {"lines": history(lines, time.time()), "failures": count.failures, "node_days": count.node_days}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_repair_history": node_repair_history}
