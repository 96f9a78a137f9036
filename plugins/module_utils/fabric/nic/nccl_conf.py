# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""/etc/nccl.conf: the settings that follow from the RoCE policy, merged with all others, and the file's text.

Names and defaults: NCCL's user guide, "Environment Variables". Form of the file: NVIDIA/nccl, src/misc/param.cc
(setEnvFile): a line is NAME=VALUE up to its end, and '#' begins a comment only at the beginning of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import class_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy

NAME = re.compile(r"NCCL_[A-Z0-9_]+")
CONF = "/etc/nccl.conf"


def of_policy(
    policy: Policy, rdma_class: str | None, fifo_class: str | None, gid_index: int | None, queue_pairs: int | None
) -> dict[str, int]:
    """Return the settings of one policy. Raises FabricError.

    ``rdma_class`` names the class of the data, ``fifo_class`` that of NCCL's short control messages if it is another;
    without ``gid_index`` or ``queue_pairs`` NCCL's own choice stays. The traffic class is the whole ToS byte: with the
    DSCP alone (104 for DSCP 26) packets say that they are not ECN-capable, and switches drop instead of mark.
    """
    tos = class_of(policy, rdma_class).tos
    # Also where the device forces a ToS: queue pairs that a GPU drives go past the driver that forces it, and take
    # this one (NVIDIA/nccl#2383).
    settings = {"NCCL_IB_TC": tos}
    if fifo_class and class_of(policy, fifo_class).tos != tos:
        settings["NCCL_IB_FIFO_TC"] = class_of(policy, fifo_class).tos
    for name, value, most in (
        ("NCCL_IB_GID_INDEX", gid_index, 255),
        ("NCCL_IB_QPS_PER_CONNECTION", queue_pairs, 128),
    ):
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise FabricError(CONF, f"{name} {value!r} is not a whole number of 0 to {most}", "give one")
            settings[name] = value
    return settings


def merged(given: Mapping[str, Any], policy_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return both groups of settings together, by name. Raises FabricError where they contradict each other."""
    for name, value in policy_settings.items():
        if name in given and str(given[name]) != str(value):
            raise FabricError(
                CONF,
                f"{name} is set to {given[name]}, and by the RoCE policy of this host it is {value}",
                f"leave {name} out of the settings, or change the policy",
            )
    return dict(sorted({**given, **policy_settings}.items()))


def text(settings: Mapping[str, Any]) -> str:
    """Return the file's text. Raises FabricError for what is no setting of NCCL, or no line."""
    for name, value in settings.items():
        if not NAME.fullmatch(str(name)):
            raise FabricError(CONF, f"{name} is no setting of NCCL", "its settings begin with NCCL_")
        if not re.fullmatch(r"[^\r\n]+", str(value)):
            raise FabricError(CONF, f"the value of {name} is not one line", "give one line")
    lines = [f"{name}={value}" for name, value in sorted(settings.items())]
    return "\n".join(["# Written by sailloft.fleet; changes here are lost.", *lines, ""])
