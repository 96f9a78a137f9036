# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""/etc/nccl.conf: the settings that follow from the RoCE policy, merged with all others, and the file's text.

Names and defaults: NCCL's user guide, "Environment Variables". Form of the file: NVIDIA/nccl, src/misc/param.cc
(setEnvFile): a line is NAME=VALUE up to its end, and '#' begins a comment only at the beginning of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import class_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy

NAME = re.compile(r"NCCL_[A-Z0-9_]+")
CONF = "/etc/nccl.conf"


@dataclass(frozen=True)
class Choices:
    """The settings of a host that the policy leaves open.

    ``rdma_class`` names the class of the data ("": the policy's first), ``fifo_class`` the class of NCCL's short
    control messages if it differs. ``gid_index`` -1 and ``queue_pairs`` 0 leave the choice to NCCL.
    """

    rdma_class: str
    fifo_class: str
    gid_index: int
    queue_pairs: int


def read_choices(variables: Mapping[str, Any]) -> Choices:
    """Return the choices from role variables by name. Raises FabricError.

    Numbers may be text, as they are when they come from the command line.
    """
    names = [field.name for field in fields(Choices)]
    unknown = sorted(set(variables) - set(names))
    if unknown:
        raise FabricError(f"unknown choices {', '.join(unknown)}", f"use {', '.join(names)}", subject=CONF)
    return Choices(
        rdma_class=str(variables.get("rdma_class") or ""),
        fifo_class=str(variables.get("fifo_class") or ""),
        gid_index=_number("NCCL_IB_GID_INDEX", variables.get("gid_index", -1), -1, 255),
        queue_pairs=_number("NCCL_IB_QPS_PER_CONNECTION", variables.get("queue_pairs", 0), 0, 128),
    )


def _number(name: str, value: Any, minimum: int, maximum: int) -> int:
    if not isinstance(value, bool) and re.fullmatch(r"-?[0-9]{1,4}", str(value)) and minimum <= int(value) <= maximum:
        return int(value)
    raise FabricError(f"{name} {value!r} is not a whole number from {minimum} to {maximum}", "give one", subject=CONF)


def of_policy(policy: Policy, choices: Choices) -> dict[str, int]:
    """Return the settings of one policy. Raises FabricError.

    NCCL's traffic class is the whole ToS byte. With the DSCP alone (104 for DSCP 26), packets declare that they are not
    ECN-capable, and switches drop them instead of marking them.
    """
    tos = class_of(policy, choices.rdma_class).tos
    # It is set even where the device forces a ToS: queue pairs that a GPU drives bypass the driver that forces it, and
    # use this one (NVIDIA/nccl#2383).
    settings = {"NCCL_IB_TC": tos}
    if choices.fifo_class and class_of(policy, choices.fifo_class).tos != tos:
        settings["NCCL_IB_FIFO_TC"] = class_of(policy, choices.fifo_class).tos
    if choices.gid_index >= 0:
        settings["NCCL_IB_GID_INDEX"] = choices.gid_index
    if choices.queue_pairs:
        settings["NCCL_IB_QPS_PER_CONNECTION"] = choices.queue_pairs
    return settings


def merged(settings: Mapping[str, Any], policy_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return both groups of settings together, by name. Raises FabricError where they contradict each other."""
    for name, value in policy_settings.items():
        if name in settings and str(settings[name]) != str(value):
            raise FabricError(
                f"{name} is set to {settings[name]}, but to {value} by this host's RoCE policy",
                f"remove {name} from the settings, or change the policy",
                subject=CONF,
            )
    return dict(sorted({**settings, **policy_settings}.items()))


def text(settings: Mapping[str, Any]) -> str:
    """Return the file's text. Raises FabricError for a name that is not NCCL's, or a value with a line end."""
    for name, value in settings.items():
        if not NAME.fullmatch(str(name)):
            raise FabricError(f"{name} is not a setting of NCCL", "its settings begin with NCCL_", subject=CONF)
        if not re.fullmatch(r"[^\r\n]+", str(value)):
            raise FabricError(f"the value of {name} is not one line", "give one line", subject=CONF)
    lines = [f"{name}={value}" for name, value in sorted(settings.items())]
    return "\n".join(["# Written by sailloft.fleet; changes here are lost.", *lines, ""])


def settings_in(content: str) -> dict[str, str]:
    """Return the settings in the file's text, as NCCL reads it."""
    lines = (line.partition("=") for line in content.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in lines if equals}
