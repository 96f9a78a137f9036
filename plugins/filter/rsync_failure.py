# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report the cause of a failed copy by rsync, and the remedy."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rsync_failure
short_description: Report why rsync could not copy a store
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads the result of a task of M(ansible.posix.synchronize) that failed, and names the host, the cause and the next
    step.
options:
  _input:
    description: The task's result.
    type: dict
    required: true
  host:
    description: The host that was copied to.
    type: str
    required: true
  folder:
    description: The directory that was copied to.
    type: str
    required: true
"""

EXAMPLES = r"""
msg: "{{ ansible_failed_result | sailloft.fleet.rsync_failure(inventory_hostname, '/srv/sailloft') }}"
"""

RETURN = r"""
_value:
  description: A sentence.
  type: str
"""

from collections.abc import Mapping
from typing import Any

# A message of rsync, and its exit values: rsync(1), EXIT VALUES.
NO_SPACE = "No space left on device"
TIMEOUT = 30
UNREACHABLE = 255  # ssh(1)


def rsync_failure(result: Mapping[str, Any], host: str, folder: str) -> str:
    """Return the sentence."""
    message = " ".join(str(result.get("msg") or "").split())
    status = result.get("rc")
    if NO_SPACE in message:
        cause, remedy = f"no space is left where {folder} is", "free some, or remove old images with collect_images.yml"
    elif status == TIMEOUT:
        cause = "it accepted no data for a minute, or did not receive all data within an hour"
        remedy = "check its network and its disk"
    elif status == UNREACHABLE:
        cause = f"it is not reachable by ssh from the build host: {message}"
        remedy = "correct its connection or its host key"
    else:
        cause, remedy = f"rsync failed: {message}", "correct that"
    return f"{host}: {cause}; {remedy}, and run again: complete files are kept"


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"rsync_failure": rsync_failure}
