# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Environment variables by which programs that use RDMA are told their traffic class and GID.

docs/reference/roce-policy.md has their defaults. Read in documents and sources; NCCL's alone are written by a role.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """The variables of a program; "" where it is not in the table. The traffic class is the whole ToS byte."""

    traffic_class: str = ""
    gid_index: str = ""


PROGRAMS = {
    # NVIDIA/nccl, NCCL_PARAM in src/transport/net_ib; RCCL has the same.
    "NCCL": Program("NCCL_IB_TC", "NCCL_IB_GID_INDEX"),
    "RCCL": Program("NCCL_IB_TC", "NCCL_IB_GID_INDEX"),
    # NVIDIA/nvshmem, NVSHMEMI_ENV_DEF: IB_TRAFFIC_CLASS, IB_GID_INDEX. Queue pairs of a GPU bypass the kernel's driver,
    # and so the ToS that it forces (nvshmem#25). The first generation of DeepEP sends through NVSHMEM.
    "NVSHMEM": Program("NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM_IB_GID_INDEX"),
    "DeepEP": Program("NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM_IB_GID_INDEX"),
    # openucx/ucx, src/uct/ib/base/ib_iface.c.
    "UCX": Program("UCX_IB_TRAFFIC_CLASS", "UCX_IB_GID_INDEX"),
}


def to_set(program: str, setting: str, value: object) -> str:
    """Return "; set NCCL_IB_TC=106" for a field of Program; "" for a program that is not in the table."""
    variable = getattr(PROGRAMS.get(program, Program()), setting)
    return f"; set {variable}={value}" if variable else ""
