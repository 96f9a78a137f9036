# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write a site's objects to NetBox: read each kind, then create and change what differs, many objects at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi, incomplete
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import Key, Objects, Ref, cable_key

Raw = dict[str, Any]
INTERFACE = "dcim.interface"
# A field of devices that is written after the addresses.
PRIMARY = "primary_addresses"
# The most cables that an error message lists.
MOST_TOLD = 8


class ObjectKind(NamedTuple):
    """A kind of object: its path, and the key of an object in an answer. A cable's key comes from its interfaces."""

    path: str
    key: Callable[[Raw], Key]
    key_fields: tuple[str, ...]


def _by(name: str) -> Callable[[Raw], Key]:
    return lambda raw: (raw[name],)


KINDS = {
    "sites": ObjectKind("dcim/sites", _by("slug"), ("slug",)),
    "manufacturers": ObjectKind("dcim/manufacturers", _by("slug"), ("slug",)),
    "device_types": ObjectKind("dcim/device-types", _by("slug"), ("slug",)),
    "device_roles": ObjectKind("dcim/device-roles", _by("slug"), ("slug",)),
    "racks": ObjectKind("dcim/racks", _by("name"), ("name",)),
    "prefixes": ObjectKind("ipam/prefixes", _by("prefix"), ("prefix",)),
    "devices": ObjectKind("dcim/devices", _by("name"), ("name", "primary_ip4", "primary_ip6")),
    "interfaces": ObjectKind("dcim/interfaces", lambda raw: (raw["device"]["name"], raw["name"]), ("device", "name")),
    "addresses": ObjectKind("ipam/ip-addresses", lambda raw: (raw["address"].partition("/")[0],), ("address",)),
    "cables": ObjectKind("dcim/cables", lambda raw: (), ("a_terminations", "b_terminations")),
}


class Writer:
    """Write to one NetBox; with ``check``, only report the changes.

    Kinds are read one after the other, because NetBox creates the interfaces of a new device from its device type.
    """

    def __init__(self, api: NetboxApi, wanted: Objects, check: bool) -> None:
        """Take the objects that NetBox must have."""
        self._api, self._wanted, self._check = api, wanted, check
        self._has_rights = False
        self._raws: dict[str, dict[Key, Raw]] = {}
        self._keys: dict[str, dict[int, Key]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._lines: dict[str, list[str]] = {"before": [], "after": []}

    def write(self) -> dict[str, Any]:
        """Return ``changed``, ``objects`` (kind -> ``created``, ``updated``, ``same``), ``diff``. Raises SiteError."""
        try:
            for kind, objects in self._wanted.items():
                if kind != PRIMARY:
                    self._remember(kind, self._read(kind))
                if kind == "cables":
                    self._refuse_other_cables()
                self._write(kind, objects)
        except (AttributeError, KeyError, TypeError) as error:
            raise incomplete(error) from None
        return {
            "changed": any(counts["created"] or counts["updated"] for counts in self._counts.values()),
            "objects": self._counts,
            "diff": {name: "".join(f"{line}\n" for line in lines) for name, lines in self._lines.items()},
        }

    def _read(self, kind: str) -> list[Raw]:
        path, wanted = KINDS[kind].path, self._wanted[kind]
        names = {"id", "display", *KINDS[kind].key_fields, *(name for entry in wanted.values() for name in entry)}
        fields = ("fields", ",".join(sorted(names)))
        if kind in ("sites", "manufacturers", "device_roles"):
            return self._api.read_named(path, "slug", [slug for (slug,) in wanted], fields)
        if kind == "prefixes":
            return self._api.read_named(path, "prefix", [entry for (entry,) in wanted], ("vrf_id", "null"), fields)
        if kind == "addresses":
            prefixes = [entry for (entry,) in self._wanted["prefixes"]]
            return self._api.read_named(path, "parent", prefixes, ("vrf_id", "null"), fields)
        owner, name = ("manufacturers", "manufacturer_id") if kind == "device_types" else ("sites", "site_id")
        # Before the first write, as in a check, the owner has no id, and nothing is read.
        return [entry for number in self._keys[owner] for entry in self._api.read(path, [(name, number), fields])]

    def _remember(self, kind: str, raws: Iterable[Raw]) -> None:
        """Record the objects that NetBox has. Raises SiteError where it has a planned object twice."""
        known_raws = self._raws.setdefault(kind, {})
        ids = self._keys.setdefault(kind, {})
        for raw in raws:
            key = cable_key(self._ends(raw)) if kind == "cables" else KINDS[kind].key(raw)
            if key in self._wanted[kind] and known_raws.get(key, raw)["id"] != raw["id"]:
                name = f"{kind} {Ref(kind, key)}"
                raise SiteError(f"it has {name} twice", "remove or rename one of them in NetBox", subject="NetBox")
            known_raws[key] = raw
            ids[raw["id"]] = key

    def _ends(self, cable: Raw) -> list[Key]:
        """Return the keys of a cable's interfaces; any other end, such as a patch panel's, has an empty key."""
        interfaces = self._keys["interfaces"]
        return [
            interfaces.get(termination["object_id"], ()) if termination["object_type"] == INTERFACE else ()
            for termination in cable["a_terminations"] + cable["b_terminations"]
        ]

    def _refuse_other_cables(self) -> None:
        """Raise SiteError where a planned cable needs an interface that has another cable in NetBox."""
        cables_by_end = {end: raw for raw in self._raws["cables"].values() for end in self._ends(raw) if end}
        faults = [
            f"{' '.join(end)} has the cable {cables_by_end[end]['display']} in NetBox, but {cable['label']} is planned"
            for key, cable in self._wanted["cables"].items()
            if key not in self._raws["cables"]
            for end in key
            if end in cables_by_end
        ]
        if faults:
            rest_text = [f"and {len(faults) - MOST_TOLD} others"] if len(faults) > MOST_TOLD else []
            raise SiteError(
                "; ".join(faults[:MOST_TOLD] + rest_text), "remove these cables in NetBox", subject="NetBox"
            )

    def _write(self, kind: str, objects: Mapping[Key, Raw]) -> None:
        store = "devices" if kind == PRIMARY else kind
        created: list[tuple[str, Raw]] = []
        updated: list[tuple[str, Raw]] = []
        for key, fields in objects.items():
            name = f"{store} {fields['label'] if kind == 'cables' else Ref(kind, key)}"
            raw = self._raws[store].get(key)
            changes = {
                field: value for field, value in fields.items() if raw is None or self._differs(raw, field, value)
            }
            for field, value in changes.items():
                self._show(name, field, raw, value)
            if raw is None and kind != PRIMARY:
                created.append((name, changes))
            elif changes:
                # In check mode, a new device has no id.
                updated.append((name, {"id": raw and raw["id"], **changes}))
        unchanged = len(objects) - len(created) - len(updated)
        self._counts[kind] = {"created": len(created), "updated": len(updated), "same": unchanged}
        if not self._check:
            self._require_rights(bool(created or updated))
            for method, rows_in in (("POST", created), ("PATCH", updated)):
                rows = [
                    (name, {field: self._sent(value) for field, value in changes.items()}) for name, changes in rows_in
                ]
                self._remember(store, self._api.write(method, KINDS[store].path, rows))

    def _require_rights(self, writes: bool) -> None:
        """Check the rights for all kinds before the first change: a kind that fails later leaves a part of the site."""
        if writes and not self._has_rights:
            paths = sorted({kind.path for name, kind in KINDS.items() if name in self._wanted})
            self._api.require_rights((method, path) for path in paths for method in ("POST", "PATCH"))
            self._has_rights = True

    def _differs(self, raw: Raw, field: str, value: Any) -> bool:
        if isinstance(value, list):
            return False  # the ends of a cable are its key
        if isinstance(value, Ref):
            return self._key_at(value.kind, raw[field]) != value.key
        return bool(_plain(raw[field]) != value)

    def _key_at(self, kind: str, value: Any) -> Key | None:
        return self._keys[kind].get(value["id"] if isinstance(value, dict) else value)

    def _sent(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._raws[value.kind][value.key]["id"]
        if isinstance(value, list):
            return [{"object_type": INTERFACE, "object_id": self._sent(item)} for item in value]
        return value

    def _show(self, name: str, field: str, raw: Raw | None, value: Any) -> None:
        if raw is not None:
            key = self._key_at(value.kind, raw[field]) if isinstance(value, Ref) and raw[field] else None
            self._lines["before"].append(f"{name} {field}: {' '.join(key) if key else _plain(raw[field])}")
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        self._lines["after"].append(f"{name} {field}: {shown}")


def _plain(value: Any) -> Any:
    """Return the value of a choice, the name of another object, or the value; NetBox returns 9.0 for position 9."""
    if isinstance(value, dict):
        return value.get("value", value.get("display"))
    return int(value) if isinstance(value, float) and value.is_integer() else value
