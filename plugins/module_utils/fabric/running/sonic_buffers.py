# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the buffers of a SONiC ConfigDB: its ingress pools, its profiles of lossless groups, and what it lacks for them.

An image takes its pools from a file of its SKU and the switch's type (sonic-buildimage,
device/*/*/*/buffers_defaults_*.j2). Some of these files have no pools, or pools for lossy packets only. The headroom of
a speed and cable is in ``pg_lossless_SPEED_CABLE_profile``, which the image adds when a port first needs it
(sonic-swss, cfgmgr/buffermgr.cpp). Where ``buffer_model`` is dynamic (NVIDIA), a group has the profile "NULL" in
ConfigDB, and that profile and the sizes of pools are in APPL_DB (cfgmgr/buffermgrdyn.cpp).
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Buffers, Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import ConfigDb

INGRESS_POOL = "ingress_lossless_pool"
EGRESS_LOSSLESS, EGRESS_LOSSY_POOL = "egress_lossless_profile", "egress_lossy_pool"
MOST_BYTES = (1 << 64) - 1  # uint64 in the models
COMPUTED = "NULL"  # the profile of a group whose headroom the image computes
_COMPUTED_GROUP = re.compile(r"BUFFER_PG_TABLE:([^:]+):([0-7])(?:-([0-7]))?")
IMAGE_PROFILE = re.compile(r"pg_lossless_([0-9]{1,7})000_([0-9]{1,6})m_profile")


def computes_headroom(db: ConfigDb) -> bool:
    """Return whether the image computes headroom and pools itself (init_cfg.json.j2: default_buffer_model)."""
    return db.text("DEVICE_METADATA", "localhost", "buffer_model") == "dynamic"


def read_buffers(db: ConfigDb) -> Buffers | None:
    """Return the buffers that the switch has; None where the ConfigDB is a part, such as the rendered one."""
    if "DEVICE_METADATA" not in db.tables:
        return None
    refusal = lossless_refusal(db)
    if refusal is not None:
        return Buffers(refusal=refusal)
    cables = next(iter(db.table("CABLE_LENGTH").values()), {})
    lines = [(fields.get("speed"), cables.get(port)) for port, fields in db.table("PORT").items()]
    sizes: dict[str, list[int]] = {"ingress": [], "egress": []}
    for name in db.table("BUFFER_POOL"):
        if name != INGRESS_POOL:
            size = db.number("BUFFER_POOL", name, "size", 0, MOST_BYTES)
            sizes.setdefault(db.text("BUFFER_POOL", name, "type") or "", []).append(size or 0)
    lossless = db.number("BUFFER_POOL", INGRESS_POOL, "size", 0, MOST_BYTES)
    headroom_pool = db.number("BUFFER_POOL", INGRESS_POOL, "xoff", 0, MOST_BYTES) or 0
    if lossless is not None and lossless + headroom_pool > max(sizes["egress"], default=0):
        lossless = max(0, lossless - headroom_pool)  # the size includes the headroom pool
    rows = _image_rows(db)
    ports_xoff = sum(row.xoff_bytes * lines.count((f"{speed}000", f"{cable}m")) for (speed, cable), row in rows.items())
    return Buffers(
        lossless,
        headroom_pool,
        sum(sizes["ingress"]),
        max(sizes["egress"], default=0),
        rows,
        ports_xoff,
        computed_xoff_bytes=_computed_xoff_bytes(db) if computes_headroom(db) else None,
    )


def _image_rows(db: ConfigDb) -> dict[tuple[int, int], Headroom]:
    """Return the headroom of the image's own profiles, by speed in Gbit/s and cable in m."""
    rows = {}
    for name in db.table("BUFFER_PROFILE"):
        match = IMAGE_PROFILE.fullmatch(name)
        headroom = read_headroom(db, name, False) if match else None
        if match and headroom is not None:
            rows[int(match[1]), int(match[2])] = headroom
    return rows


def _computed_xoff_bytes(db: ConfigDb) -> dict[tuple[str, int], int]:
    """Return the xoff that the image computed, by port and priority group, as far as the dump of APPL_DB shows it."""
    dump = db.dump if isinstance(db.dump, dict) else {}
    fields = {key: row.get("value") for key, row in dump.items() if isinstance(row, dict)}
    computed = {}
    for key, group in fields.items():
        match = _COMPUTED_GROUP.fullmatch(key)
        if match and isinstance(group, dict):
            profile = str(group.get("profile")).strip("[]").rpartition(":")[2]  # "[TABLE:name]" until 2021
            settings = fields.get(f"BUFFER_PROFILE_TABLE:{profile}")
            xoff = str(settings.get("xoff")) if isinstance(settings, dict) else ""
            for number in range(int(match[2]), int(match[3] or match[2]) + 1) if xoff.isdecimal() else ():
                computed[match[1], number] = int(xoff)
    return computed


def lossless_refusal(db: ConfigDb) -> FabricError | None:
    """Return why lossless classes are impossible with the switch's buffers, with a remedy; None where they are not."""
    pools, sku = db.table("BUFFER_POOL"), sku_of(db)
    if not pools:
        return db.refuse("BUFFER_POOL", INGRESS_POOL, f"headroom needs this pool, but {sku} has no pools", remedy(db))
    if INGRESS_POOL not in pools:
        cause = f"headroom needs this pool, but {sku} has only {', '.join(sorted(pools))}"
        return db.refuse("BUFFER_POOL", INGRESS_POOL, cause, remedy(db))
    mode = db.text("BUFFER_POOL", INGRESS_POOL, "mode")
    if mode != "dynamic":
        cause = f"its mode is {mode!r}, but an alpha needs a dynamic pool"
        return db.refuse("BUFFER_POOL", INGRESS_POOL, cause, remedy(db))
    kind = db.text("BUFFER_POOL", INGRESS_POOL, "type")
    if kind == "egress":
        return db.refuse("BUFFER_POOL", INGRESS_POOL, f"its type is {kind!r}, so no port's group uses it", remedy(db))
    try:
        egress_cause = _egress_cause(db)
    except FabricError as error:
        return error
    return db.refuse("BUFFER_PROFILE", EGRESS_LOSSLESS, egress_cause, remedy(db)) if egress_cause else None


def _egress_cause(db: ConfigDb) -> str | None:
    """Return the reason why lossless queues can drop before senders pause, or None.

    One queue may get the packets of all ports, so it needs about the whole ingress pool. The images of 086b03bd70 give
    it 57% or more, except for one (INVENTEC-D6332, 17%), and no alpha below 1 (dynamic_th 0).
    """
    table, profile = "BUFFER_PROFILE", EGRESS_LOSSLESS
    if not db.entry(table, profile):
        return f"lossless queues need this profile, but {sku_of(db)} has none: its queues are lossy"
    pool = db.reference(table, profile, "pool", "BUFFER_POOL")
    alpha = db.number(table, profile, "dynamic_th", -8, 7)
    limits = [
        db.number(table, profile, "static_th", 0, MOST_BYTES),
        db.number("BUFFER_POOL", pool or "", "size", 0, MOST_BYTES),
    ]
    if pool in (None, EGRESS_LOSSY_POOL):
        return f"it has the pool {pool}, so lossless queues share the buffer of lossy ones"
    if alpha is None and limits[0] is None:
        return "it has neither dynamic_th nor static_th"
    if alpha is not None and alpha < 0:
        return f"its dynamic_th is {alpha}, so queues drop before senders pause"
    lossless = db.number("BUFFER_POOL", INGRESS_POOL, "size", 0, MOST_BYTES) or 0
    lossless -= db.number("BUFFER_POOL", INGRESS_POOL, "xoff", 0, MOST_BYTES) or 0
    limit = min((limit for limit in limits if limit is not None), default=lossless)
    if 2 * limit < lossless:
        return f"a queue drops above {limit} bytes, less than half of the {lossless} that fill before all senders pause"
    return None


def sku_of(db: ConfigDb) -> str:
    """Return the SKU and type for which the image chose the buffers, in words."""
    sku, kind = (db.text("DEVICE_METADATA", "localhost", field) for field in ("hwsku", "type"))
    return f"{sku or 'the switch'} as {kind or 'a switch without type'}"


def remedy(db: ConfigDb) -> str:
    """Return a next step that can help: the image's buffers are loaded again only if they never were."""
    if "CABLE_LENGTH" not in db.tables:  # buffers_config.j2 writes this table with all buffers
        return "run `config qos reload` on the switch, which loads the buffers that its image has for its SKU and type"
    return (
        "make the classes lossy (roce_policy: classes: mode), choose a SKU or type (DEVICE_METADATA) for which the "
        "image has lossless buffers, or load the vendor's pools and profiles for them with `config load`"
    )


def read_headroom(db: ConfigDb, name: str, image_left_out: bool) -> Headroom | None:
    """Return the headroom of a profile; None where it is a lossy group's, or has no alpha (a static threshold).

    ``image_left_out``: the ConfigDB is a part that has no pools.
    """
    table = "BUFFER_PROFILE"
    alpha = db.number(table, name, "dynamic_th", -8, 7)  # ranges of sonic-buffer-profile.yang
    size, xoff, xon, offset = (
        db.number(table, name, field, 0, MOST_BYTES) for field in ("size", "xoff", "xon", "xon_offset")
    )
    if size is None or xoff is None or alpha is None:
        return None
    pool = None if image_left_out else db.reference(table, name, "pool", "BUFFER_POOL")
    if not db.text(table, name, "pool"):
        raise db.refuse(table, name, "no pool is named", "name the ingress pool of lossless traffic")
    # If the pool does not hold the headroom, each group's size includes it (see ``wanted_port``).
    bare = pool is not None and db.text("BUFFER_POOL", pool, "xoff") in (None, "0")
    reserved = size - xoff if size >= xoff + (0 if bare else xon or 0) else size
    if offset is None:
        offset = 0 if xon is None else max(0, reserved - xon)
    return Headroom(reserved, xoff, offset, alpha, xon or 0)
