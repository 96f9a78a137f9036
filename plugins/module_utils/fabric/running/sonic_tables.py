# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC ConfigDB as JSON: its tables, keys and references, checked as they are read.

The forms are those of SONiC's own models (sonic-buildimage, src/sonic-yang-models/yang-models) and of older images: a
key may name several ports ("Ethernet0,Ethernet4") and a range of queues or priority groups ("3-4"), and a
reference is a name, or, before sonic-swss#1754 (2021), "[TABLE|name]".
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.json_text import DECODER

RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")  # of queues or priority groups: "3", "3-4"
BRACKETS = re.compile(r"\[([^\[\]|]+)\|([^\[\]]+)\]")
NOT_PORTS = ("global", "GLOBAL", "CPU")
Entry = dict[str, Any]  # of one key of a table: field -> text, or a list of texts


class ConfigDb:
    """The tables of one ConfigDB. ``name`` is the switch's; every refusal begins with it and names table and key.

    ``dump``: the entries of APPL_DB that were read with it, by key; None where they were not read.
    """

    def __init__(self, text: str, name: str) -> None:
        """Parse ``text``, and the dump of APPL_DB that may follow it: `sonic-db-dump`, key -> {"value": fields}.

        Raises FabricError where it is not a JSON object of tables.
        """
        self.name = name
        remedy = "give what `sonic-cfggen -d --print-data` prints on the switch, or its /etc/sonic/config_db.json"
        try:
            data, end = DECODER.raw_decode(text.lstrip())
            dump = text.lstrip()[end:].strip()
            self.dump = json.loads(dump) if dump else None
        except (ValueError, RecursionError) as error:
            raise FabricError(f"not JSON ({error})", remedy, subject=f"{name}: ConfigDB") from None
        if not isinstance(data, dict):
            raise FabricError(
                f"a JSON {type(data).__name__}, not an object of tables", remedy, subject=f"{name}: ConfigDB"
            )
        self._set_tables(data)

    def with_tables(self, tables: dict[str, Any]) -> ConfigDb:
        """Return the same switch's ConfigDB with other tables."""
        copied = copy.copy(self)
        copied._set_tables(tables)
        return copied

    def _set_tables(self, tables: dict[str, Any]) -> None:
        self.tables = tables
        self._checked: set[str] = set()

    def refuse(self, table: str, key: str, cause: str, remedy: str) -> FabricError:
        """Return the refusal of the entry at ``table|key``."""
        return FabricError(cause, remedy, subject=f"{self.name}: {table}|{key}")

    @property
    def is_old(self) -> bool:
        """Return true where the image is older than release 202305.

        Since that release, the database's version contains the release ("version_202305_01"); before, it was three
        numbers ("version_4_0_2", sonic-utilities#3084).
        """
        return bool(re.fullmatch("version_[0-9]_[0-9]_[0-9]", self.text("VERSIONS", "DATABASE", "VERSION") or ""))

    def table(self, table: str) -> dict[str, Entry]:
        """Return the entries of ``table`` by key; none where the ConfigDB has no such table."""
        entries = self.tables.get(table, {})
        if table not in self._checked:
            if not isinstance(entries, dict):
                raise FabricError(
                    "not an object of entries by key",
                    "read the switch's configuration again",
                    subject=f"{self.name}: {table}",
                )
            for key, entry in entries.items():
                if not isinstance(entry, dict):
                    raise self.refuse(table, key, "not an object of fields", "read the switch's configuration again")
            self._checked.add(table)
        return entries

    def entry(self, table: str, key: str) -> Entry:
        """Return the fields of one entry; none where there is none."""
        return self.table(table).get(key, {})

    def text(self, table: str, key: str, field: str) -> str | None:
        """Return one field as text; None where it is not set."""
        value = self.entry(table, key).get(field)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        raise self.refuse(table, key, f"{field} {value!r} is neither a string nor a number", "correct it on the switch")

    def texts(self, table: str, key: str, field: str) -> list[str] | None:
        """Return one field that is a list; None where it is not set.

        The database itself holds the list as text with commas; JSON can have a list instead.
        """
        value = self.entry(table, key).get(field)
        if isinstance(value, str):
            return value.split(",") if value else []
        if value is None or (isinstance(value, list) and all(isinstance(element, str) for element in value)):
            return value
        raise self.refuse(table, key, f"{field} {value!r} is not a list of strings", "correct it on the switch")

    def number(self, table: str, key: str, field: str, minimum: int, maximum: int) -> int | None:
        """Return one field as a number of ``minimum`` to ``maximum``; None where it is not set."""
        value = self.text(table, key, field)
        return None if value is None else self.integer(table, key, field, value, minimum, maximum)

    def integer(self, table: str, key: str, value_name: str, value: Any, minimum: int, maximum: int) -> int:
        """Return ``value`` as a whole number of ``minimum`` to ``maximum``; a refusal names it ``value_name``."""
        text = str(value).strip()  # NVIDIA's own files have a size with a blank at its end
        if isinstance(value, (str, int)) and re.fullmatch(r"-?[0-9]{1,20}", text) and minimum <= int(text) <= maximum:
            return int(text)
        raise self.refuse(
            table,
            key,
            f"{value_name} {value!r} is not a whole number from {minimum} to {maximum}",
            "correct it on the switch",
        )

    def numbers(self, table: str, key: str, field: str, maximum: int) -> tuple[int, ...] | None:
        """Return one field of comma-separated numbers, ascending; None where it is not set, () where it is empty."""
        value = self.text(table, key, field)
        if value is None:
            return None
        return tuple(
            sorted({self.integer(table, key, field, number, 0, maximum) for number in value.split(",") if value})
        )

    def reference(self, table: str, key: str, field: str, target: str) -> str | None:
        """Return the name of the ``target`` entry that a field refers to, in either form; None where it is not set."""
        value = self.text(table, key, field)
        if not value:
            return None
        bracketed = BRACKETS.fullmatch(value)
        if bracketed and bracketed[1] != target:
            raise self.refuse(
                table, key, f"{field} refers to {bracketed[1]}, not to {target}", f"name an entry of {target} there"
            )
        name = bracketed[2] if bracketed else value
        if name not in self.table(target):
            raise self.refuse(
                table,
                key,
                f"{field} refers to {target}|{name}, which is missing",
                f"add {target}|{name}, or set {field} to an existing one",
            )
        return name

    def by_port(self, table: str) -> dict[str, str]:
        """Return port -> key, for a table whose keys are ports ("Ethernet0", "Ethernet0,Ethernet4")."""
        keys: dict[str, str] = {}
        for key in self.table(table):
            if key in NOT_PORTS:
                continue
            for port in self._ports(table, key, key):
                self._check_unique(table, key, keys.get(port), port)
                keys[port] = key
        return keys

    def by_port_and_number(self, table: str) -> dict[str, dict[int, str]]:
        """Return port -> queue or priority group -> key, for a table with keys of both ("Ethernet0,Ethernet4|3-4")."""
        keys_by_port: dict[str, dict[int, str]] = {}
        for key, ports, numbers in self.rows(table):
            for port in ports:
                of_port = keys_by_port.setdefault(port, {})
                for number in numbers:
                    self._check_unique(table, key, of_port.get(number), f"{port} {number}")
                    of_port[number] = key
        return keys_by_port

    def rows(self, table: str) -> Iterator[tuple[str, list[str], range]]:
        """Yield key, ports and numbers of each entry with ports in a table whose keys have ports and numbers."""
        for key in self.table(table):
            parts = key.split("|")
            if parts[0] in NOT_PORTS:
                continue
            match = RANGE.fullmatch(parts[-1])
            if len(parts) != 2 or not match:
                problem = "the form of a VOQ chassis" if len(parts) == 4 else "not of the form PORT|NUMBER"
                raise self.refuse(table, key, f"this key is {problem}", "this project supports PORT|3 and PORT|3-4")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise self.refuse(table, key, f"{last} is before {first}", "write the range the other way round")
            yield key, self._ports(table, key, parts[0]), range(first, last + 1)

    def _ports(self, table: str, key: str, text: str) -> list[str]:
        ports = text.split(",")
        if "" in ports:
            raise self.refuse(table, key, "this key names no port", "correct it on the switch")
        return ports

    def _check_unique(self, table: str, key: str, other_key: str | None, entry: str) -> None:
        if other_key is None:
            return
        remedy = f"remove one of them, such as `sonic-db-cli CONFIG_DB DEL '{table}|{key}'`"
        if table == "BUFFER_PG" and {"3-4"} & {key.partition("|")[2], other_key.partition("|")[2]}:
            remedy += "; an image without sonic-swss#2171 (2022) adds 3-4 again unless priorities 3 and 4 are lossless"
        raise self.refuse(
            table, key, f"{entry} is also in {table}|{other_key}, and which entry applies is undefined", remedy
        )


def without_dump(text: str) -> str:
    """Return a reading without the dump of APPL_DB after the ConfigDB: what a backup is."""
    stripped = text.lstrip()
    return stripped[: DECODER.raw_decode(stripped)[1]]


def listed(value: Any) -> set[str]:
    """Return the names of a field that refers to one entry or a list of them, in either form."""
    names = value if isinstance(value, list) else str(value).split(",")
    return {str(name).strip("[]").rpartition("|")[2] for name in names}


def references(entry: Mapping[str, Any]) -> Iterator[str]:
    """Return all names that the fields of an entry may refer to, in either form."""
    for value in entry.values():
        if isinstance(value, str):
            yield value
            for match in BRACKETS.finditer(value):
                yield match[2]
