# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cufile.json, the settings of NVIDIA's cuFile library, with each key in its place. Pure.

cuFile silently ignores a key in another place, as ``fs.block.nvme.use_pci_p2pdma`` for ``block.nvme.use_pci_p2pdma``.
So settings are given by their full path, and only paths of PATHS are valid: those that libcufile looks up (version 1.20
of the wheel nvidia-cufile, with which a test compares them); their meaning is in NVIDIA's GDS Configuration Guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import Check
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import P2PDMA

PATH = "/etc/cufile.json"
# cuFile reads // comments, which its own file has.
HEAD = "// Written by sailloft.fleet.gpu_node; changes here are lost.\n"
ADDRESSES = "rdma_dev_addr_list"
# The value of an address list that stands for the node's own rails.
RAILS = "rails"
SIZE = values.within(0, 1 << 40)
SIZES = values.each(SIZE)


def _addresses(value: Any) -> Any:
    return RAILS if value == RAILS else values.texts(value)


def _of(prefix: str, check: Check, *names: str) -> dict[str, Check]:
    return {f"{prefix}.{name}": check for name in names}


_NETWORKED = ("lustre", "beegfs", "scatefs", "nfs", "gpfs", "panfs")
PATHS: dict[str, Check] = {
    **_of("logging", values.text, "level", "dir"),
    "logging.max_file_size_mb": SIZE,
    "profile.cufile_stats": values.within(0, 3),
    **_of("execution", values.flag, "parallel_io"),
    **_of("execution", SIZE, "max_io_queue_depth", "max_io_threads", "min_io_threshold_size_kb"),
    "execution.max_request_parallelism": SIZE,
    **_of("properties", values.flag, "use_poll_mode", "allow_compat_mode", "force_compat_mode", "use_pci_p2pdma"),
    **_of("properties", values.flag, "gds_rdma_write_support", "allow_system_memory", "force_odirect_mode"),
    **_of("properties", values.flag, "prefer_iouring", "rdma_dynamic_routing", "gds_fallback_io"),
    **_of("properties", SIZE, "max_direct_io_size_kb", "max_device_cache_size_kb", "max_device_pinned_mem_size_kb"),
    **_of("properties", SIZE, "per_buffer_cache_size_kb", "poll_mode_max_size_kb", "max_batch_io_timeout_msecs"),
    **_of("properties", SIZE, "io_batchsize"),
    **_of("properties", SIZES, "posix_pool_slab_size_kb", "posix_pool_slab_count"),
    **_of("properties", values.text, "rdma_load_balancing_policy", "rdma_peer_type", "io_priority"),
    "properties.rdma_dynamic_routing_order": values.texts,
    f"properties.{ADDRESSES}": _addresses,
    "fs.generic.posix_unaligned_writes": values.flag,
    **{f"fs.{name}.{ADDRESSES}": _addresses for name in (*_NETWORKED, "weka")},
    **_of("fs", SIZE, "lustre.posix_gds_min_kb", "beegfs.posix_gds_min_kb", "scatefs.posix_gds_min_kb"),
    **_of("fs", values.flag, "gpfs.gds_write_support", "gpfs.gds_async_support", "weka.rdma_write_support"),
    "fs.virtiofs.use_pci_p2pdma": values.flag,
    **_of("block", values.flag, "nvme.use_pci_p2pdma", "nvmeof.use_pci_p2pdma", "raid.use_pci_p2pdma"),
    **_of("denylist", values.texts, "drivers", "devices", "mounts", "filesystems"),
    **_of("miscellaneous", values.flag, "api_check_aggressive", "skip_topology_detection"),
}


def settings(request: Settings, mode: str) -> dict[str, Any]:
    """Return all settings by path: those that the mode needs, and the user's, which are checked and take precedence.

    The error of ``request`` names an unknown path with the nearest valid one.
    """
    request.only(*PATHS)
    chosen = {path: request.value(path, check) for path, check in PATHS.items() if path in request.data}
    direct = mode == P2PDMA
    needed = {
        "properties.allow_compat_mode": True,
        "properties.use_pci_p2pdma": direct,
        "block.nvme.use_pci_p2pdma": direct,
    }
    for path in ("properties.use_pci_p2pdma", "block.nvme.use_pci_p2pdma"):
        if chosen.get(path, direct) != direct:
            raise request.refuse_setting(path, "the mode decides on it", "set gpu_node_storage, and remove this")
    return {**needed, **chosen}


def render(chosen: Mapping[str, Any], rails: Sequence[str]) -> str:
    """Return the text of cufile.json. ``rails`` are the addresses of the node's RDMA interfaces, by rail."""
    document: dict[str, Any] = {}
    for path, value in chosen.items():
        *sections, name = path.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = list(rails) if value == RAILS else value
    return HEAD + json.dumps(document, indent=2, sort_keys=True) + "\n"


def needs_rails(chosen: Mapping[str, Any]) -> bool:
    """Return whether a setting stands for the node's rails."""
    return RAILS in [value for path, value in chosen.items() if path.endswith(ADDRESSES)]
