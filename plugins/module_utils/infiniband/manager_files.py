# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the files of a subnet manager: opensm.conf, partitions.conf, root GUIDs, node names, topoconfig.conf. Pure.

opensm keeps its own default where a file has no value. A GUID that is not known is a comment, or is left out of
topoconfig.conf, which has no comments.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.guids import Guids
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import (
    DEFAULT_PKEY,
    FULL,
    MTU_CODES,
    NVIDIA,
    TOP_PRIORITY,
    InfinibandPartition,
    Request,
)

PARTITIONS, ROOTS, NAMES, TOPOCONFIG = "partitions.conf", "root_guids.conf", "node_names", "topoconfig.conf"
# The name of a manager's own opensm.conf on its host.
CONF = "opensm.conf"
# Each fabric has its own directory of log and dumps below this one, which the unit of ib_manager makes.
LOGS = "/var/log/opensm"
# PortInfo.OperationalVLs: highest virtual lane -> code (IBA volume 1).
_LANE_CODES = ((0, 1), (1, 2), (3, 3), (7, 4), (14, 5))
_LEVELS = range(16)
_WRITTEN_BY = "planned from the blueprint by sailloft.fleet.ib_plan"


def files(fabric: Fabric, request: Request, guids: Guids) -> dict[str, str]:
    """Return all files by name. Each subnet manager has its own opensm.conf, which differs in GUID and priority."""
    texts = {
        PARTITIONS: _partitions(fabric, request, guids),
        ROOTS: _roots(fabric, guids),
        NAMES: "".join(f'{guids.known[name]} "{name}"\n' for name in fabric.switches if name in guids.known),
    }
    for rank, manager in enumerate(request.managers):
        texts[opensm_file(manager)] = _opensm(fabric, request, guids, manager, TOP_PRIORITY - rank)
    if not request.managers:
        texts[CONF] = _opensm(fabric, request, guids, None, 0)
    if request.manager == NVIDIA:
        texts[TOPOCONFIG] = _topoconfig(fabric, guids)
    return texts


def opensm_file(manager: Hca) -> str:
    """Return the name of a subnet manager's opensm.conf."""
    return f"opensm-{manager.host}.conf"


def _opensm(fabric: Fabric, request: Request, guids: Guids, manager: Hca | None, priority: int) -> str:
    lines = [f"# Fabric {fabric.name}, {_WRITTEN_BY}"]
    settings: dict[str, str] = {}
    if manager:
        settings["guid"] = guids.known.get(manager, "")
        settings["sm_priority"] = str(priority)
        if not settings["guid"]:
            del settings["guid"]
            lines.append(f"# guid: {manager}: the GUID is not known")
    settings["routing_engine"] = ",".join(request.routing)
    unknown_roots = [root for root in fabric.roots if root not in guids.known]
    if unknown_roots:
        # With some of the roots only, opensm would rank the others as lower switches.
        lines.append(f"# root_guid_file: the GUIDs of {len(unknown_roots)} of {len(fabric.roots)} roots are not known")
    else:
        settings["root_guid_file"] = f"{request.folder}/{ROOTS}"
    settings["partition_config_file"] = f"{request.folder}/{PARTITIONS}"
    settings["node_name_map_name"] = f"{request.folder}/{NAMES}"
    if request.manager == NVIDIA:
        settings["use_ucast_cache"] = "TRUE"
    settings.update(_qos(request))
    # The proof reads the tables that opensm writes with 0x40 (0x03 is the default), and the engine in its log.
    settings["log_flags"] = "0x43"
    settings["force_log_flush"] = "TRUE"
    settings["dump_files_dir"] = f"{LOGS}/{fabric.name}"
    settings["log_file"] = f"{LOGS}/{fabric.name}/opensm.log"
    settings["log_max_size"] = "256"  # MB
    settings.update(request.options)
    return "\n".join([*lines, *(f"{name} {value}" for name, value in settings.items())]) + "\n"


def _qos(request: Request) -> dict[str, str]:
    """Return the settings of QoS: lanes by service level, and both tables of the arbitration (IBA volume 1, 7.6)."""
    if not request.service_levels:
        return {}
    weights = {level.lane: level for level in request.service_levels.values()}
    default = request.service_levels[0].lane
    lanes = [request.service_levels[sl].lane if sl in request.service_levels else default for sl in _LEVELS]
    return {
        "max_op_vls": str(next(code for lanes_max, code in _LANE_CODES if max(weights) <= lanes_max)),
        "qos": "TRUE",
        "qos_max_vls": str(max(weights) + 1),
        # Units of 4,096 bytes that the high table may send before one packet of the low table goes.
        "qos_high_limit": "4",
        "qos_vlarb_high": ",".join(f"{lane}:{row.weight if row.high else 0}" for lane, row in sorted(weights.items())),
        "qos_vlarb_low": ",".join(f"{lane}:{0 if row.high else row.weight}" for lane, row in sorted(weights.items())),
        "qos_sl2vl": ",".join(map(str, lanes)),
    }


def _partitions(fabric: Fabric, request: Request, guids: Guids) -> str:
    """Return partitions.conf, with one member on each line.

    A rule for the default partition is always there: without one opensm makes all ports limited members. The form,
    one definition of the same P_Key for each member, needs no separator between members, so a changed HCA is one
    changed line.
    """
    mtu = max((partition.mtu for partition in request.partitions), default=0)
    ipoib = f", ipoib{f', mtu={MTU_CODES[mtu]}' if mtu else ''}" if request.default_ipoib else ""
    lines = [
        f"# Partitions of the fabric {fabric.name}, {_WRITTEN_BY}",
        f"Default=0x{DEFAULT_PKEY:04x}{ipoib} : ALL={request.default}, ALL_SWITCHES=full, SELF=full ;",
    ]
    if request.default != FULL:
        # A standby manager that takes over keeps its membership.
        lines += [_member("Default", DEFAULT_PKEY, "", hca, FULL, guids) for hca in request.managers]
    for partition in request.partitions:
        # opensm takes both anew from each definition of a partition (osm_prtn_config.c).
        flags = ", indx0" if partition.index0 else ""
        flags += f", sl={partition.service_level}" if partition.service_level else ""
        lines.append(f"{partition.name}=0x{partition.pkey:04x}{flags}{_broadcast(partition)} : ;")
        lines += [
            _member(partition.name, partition.pkey, flags, hca, membership, guids)
            for hca, membership in partition.members.items()
        ]
    return "\n".join(lines) + "\n"


def _broadcast(partition: InfinibandPartition) -> str:
    """Return the flags of the partition's broadcast group."""
    flags = ["ipoib"] if partition.ipoib else []
    flags += [f"mtu={MTU_CODES[partition.mtu]}"] if partition.mtu else []
    return "".join(f", {flag}" for flag in flags)


def _member(name: str, pkey: int, flags: str, hca: Hca, membership: str, guids: Guids) -> str:
    guid = guids.known.get(hca)
    if not guid:
        return f"# {name}: {hca}={membership}: the GUID is not known"
    return f"{name}=0x{pkey:04x}{flags} : {guid}={membership} ; # {hca}"


def _roots(fabric: Fabric, guids: Guids) -> str:
    lines = [guids.known.get(root, f"# {root}: the GUID is not known") for root in fabric.roots]
    return "".join(f"{line}\n" for line in lines)


def _topoconfig(fabric: Fabric, guids: Guids) -> str:
    """Return the links with two known GUIDs, in the form and directions of UFM's REST API guide (6.19).

    The links between switches are listed from both ends, those to HCAs from the switch.
    """
    lines = []
    for low, up in fabric.uplinks:
        if low.switch in guids.known and up.switch in guids.known:
            ends = f"{guids.known[low.switch]},{low.number}", f"{guids.known[up.switch]},{up.number}"
            lines += [f"{ends[0]},{ends[1]},Any,Active", f"{ends[1]},{ends[0]},Any,Active"]
    for hca, port in fabric.hcas.items():
        if hca in guids.known and port.switch in guids.known:
            lines.append(f"{guids.known[port.switch]},{port.number},{guids.known[hca]},1,Any,Active")
    return "".join(f"{line}\n" for line in lines)
