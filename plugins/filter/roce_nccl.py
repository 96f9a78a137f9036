# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Add the settings that follow from the RoCE policy to NCCL's settings."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_nccl
short_description: Return NCCL's settings with those that follow from the RoCE policy
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Adds C(NCCL_IB_TC) (the class's whole ToS byte), C(NCCL_IB_FIFO_TC), C(NCCL_IB_GID_INDEX) and
    C(NCCL_IB_QPS_PER_CONNECTION) to other settings of NCCL.
  - Settings that contradict the policy are refused.
positional: policy, choices
options:
  _input:
    description: The other settings, by name.
    type: dict
    required: true
  policy:
    description: The fabric's C(roce_policy).
    type: dict
    required: true
  choices:
    description: What the policy leaves open.
    type: dict
    suboptions:
      rdma_class:
        description: The policy's class for NCCL's data. The first class by default.
        type: str
      fifo_class:
        description: The policy's class for NCCL's control messages. The class of the data by default.
        type: str
      gid_index:
        description: The GID that NCCL uses; with V(-1) NCCL chooses.
        type: int
        default: -1
      queue_pairs:
        description: The queue pairs of a connection; with V(0) NCCL's default.
        type: int
        default: 0
"""

EXAMPLES = r"""
# {NCCL_IB_GID_INDEX: 3, NCCL_IB_TC: 106, NCCL_IB_TIMEOUT: 22}
settings: "{{ {'NCCL_IB_TIMEOUT': 22} | sailloft.fleet.roce_nccl(roce_policy, {'gid_index': 3}) }}"
"""

RETURN = r"""
_value:
  description: All settings, by name.
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def roce_nccl(settings: Any, policy: Any, choices: Any = None) -> dict[str, Any]:
    """Return ``settings`` with the policy's settings. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import nccl_conf
    from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

    try:
        of_policy = nccl_conf.of_policy(read_policy(policy), nccl_conf.read_choices(choices or {}))
        return nccl_conf.merged(settings, of_policy)
    except FabricError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_nccl": roce_nccl}
