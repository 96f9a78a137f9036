# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Environment variables by which programs that use RDMA are told their traffic class, their GID and their paths.

Read in documents and sources of September 2026; NCCL's alone are written by a role. docs/reference/roce-policy.md shows
this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PathSetting:
    """A variable by which a program spreads one connection over several paths, ``value`` for this, and its source."""

    variable: str
    value: str
    effect: str
    source: str


@dataclass(frozen=True)
class Program:
    """The variables of a program; "" where it has none or is not in the table.

    ``traffic_class``: the whole ToS byte, which is ``default_tos`` without the variable.
    """

    traffic_class: str = ""
    gid_index: str = ""
    default_tos: int = 0
    paths: tuple[PathSetting, ...] = ()


# Only useful with several queue pairs; adaptive routing needs it on the switches, too. NVIDIA/cluster-readiness-engine
# #287: on four ports of 800 Gbit/s, both together raised the bandwidth by 70%, more queue pairs did not.
_NCCL = (
    PathSetting("NCCL_IB_SPLIT_DATA_ON_QPS", "1", "each message is divided among the queue pairs", "NVIDIA/nccl#1401"),
    PathSetting(
        "NCCL_IB_ADAPTIVE_ROUTING", "1", "data has no immediate data, which would take one path", "NVIDIA/nccl#850"
    ),
)
PROGRAMS = {
    # NVIDIA/nccl, NCCL_PARAM in src/transport/net_ib; RCCL has the same.
    "NCCL": Program("NCCL_IB_TC", "NCCL_IB_GID_INDEX", paths=_NCCL),
    "RCCL": Program("NCCL_IB_TC", "NCCL_IB_GID_INDEX", paths=_NCCL),
    # NVIDIA/nvshmem, NVSHMEMI_ENV_DEF: IB_TRAFFIC_CLASS, IB_GID_INDEX. Queue pairs of a GPU bypass the kernel's driver,
    # and so the ToS that it forces (nvshmem#25). The first generation of DeepEP sends through NVSHMEM.
    "NVSHMEM": Program("NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM_IB_GID_INDEX"),
    "DeepEP": Program("NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM_IB_GID_INDEX"),
    # openucx/ucx, src/uct/ib/base/ib_iface.c.
    "UCX": Program(
        "UCX_IB_TRAFFIC_CLASS",
        "UCX_IB_GID_INDEX",
        106,
        (PathSetting("UCX_IB_AR_ENABLE", "yes", "adaptive routing on RoCE", "openucx/ucx#10149"),),
    ),
}


def to_set(program: str, setting: str, value: object) -> str:
    """Return "; set NCCL_IB_TC=106" for a field of Program; "" for a program that is not in the table."""
    variable = getattr(PROGRAMS.get(program, Program()), setting)
    return f"; set {variable}={value}" if variable else ""
