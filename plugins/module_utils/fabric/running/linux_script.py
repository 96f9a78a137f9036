# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a shell script's commands of tc, ip and sysctl. Sources: ``systems.linux``."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError

PRIORITIES = 16  # TC_PRIO_MAX + 1
RED_FLAGS = ("ecn", "harddrop", "adaptive", "nodrop")
COMPARED = {  # the options that make a difference, by kind of qdisc
    "ets": ("bands", "strict", "quanta", "priomap"),
    "pfifo": ("limit",),
    "red": ("limit", "min", "max", "probability", "ewma", *RED_FLAGS),
}

Model = dict[str, Any]  # READING's output; for a script, the part of it that the script determines


def weight_log(minimum: int, burst: int, average: int) -> int:
    """Return the weight that tc requests from the kernel (tc_red_eval_ewma), 0 where tc refuses the values."""
    room = burst + 1 - minimum / average
    for wlog in range(1, 32):
        if 1 <= room <= (1 - (1 - 0.5**wlog) ** burst) * 2**wlog:
            return wlog
    return 0


class Script:
    """A shell script's commands in the form of READING's output on a machine that ran them."""

    def __init__(self, text: str, name: str) -> None:
        self.model: Model = {"links": {}, "qdiscs": {}, "filters": {}, "sysctl": {}}
        self.place = f"{name}: tc script"
        commands = 0
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split("2>")[0].split("||")[0].split()
            try:
                commands += self.command(words)
            except (IndexError, KeyError, ValueError) as error:
                raise FabricError(
                    f"{line[:80]!r} is not understood ({error})", "see tc(8)", subject=f"{self.place}: line {number}"
                ) from None
        if not commands or not text.endswith("\n"):
            raise FabricError(
                "its last line is incomplete" if commands else "it contains no command of tc, ip link or sysctl",
                "give a whole script, or what the script READING prints",
                subject=self.place,
            )

    def command(self, words: list[str]) -> bool:
        if words[:3] == ["ip", "link", "set"]:
            return self.link(words[3:])
        if words[:1] == ["sysctl"]:
            for word in words[1:]:
                if "=" in word:
                    key, _equals, value = word.partition("=")
                    self.model["sysctl"][key] = value
            return True
        if words[:1] == ["tc"]:
            tc_object, action, arguments = words[1], words[2], words[3:]
            dev = arguments[arguments.index("dev") + 1]
            arguments.remove("dev")
            arguments.remove(dev)
            if tc_object not in ("qdisc", "filter") or action not in ("add", "replace", "del"):
                raise ValueError(f"{tc_object} {action}")
            self.model["links"].setdefault(dev, None)
            {"qdisc": self.qdisc, "filter": self.filter}[tc_object](dev, action, arguments)
            return True
        return False

    def link(self, words: list[str]) -> bool:
        if "mtu" not in words:
            return False
        dev = words[words.index("dev") + 1] if "dev" in words else words[0]
        self.model["links"][dev] = int(words[words.index("mtu") + 1])
        return True

    def qdisc(self, dev: str, action: str, words: list[str]) -> None:
        qdiscs = self.model["qdiscs"].setdefault(dev, [])
        entry: Model = {"dev": dev}
        while words and words[0] in ("root", "parent", "handle"):
            key = words.pop(0)
            entry[key] = True if key == "root" else words.pop(0)
        if not entry.keys() & {"root", "parent"}:
            raise ValueError("neither root nor parent")
        if entry.get("root"):  # the qdiscs under the old one are removed with it
            qdiscs.clear()
            self.model["filters"][dev] = []
        else:
            qdiscs[:] = [other_qdisc for other_qdisc in qdiscs if other_qdisc.get("parent") != entry["parent"]]
        if action == "del":
            return
        entry["kind"] = words.pop(0)
        readers = {"ets": _ets_words, "pfifo": _pfifo_words, "red": red_words}
        entry["options"] = readers[entry["kind"]](words) if entry["kind"] in readers else {}
        qdiscs.append(entry)

    def filter(self, dev: str, action: str, words: list[str]) -> None:
        if action != "add":
            raise ValueError(f"filter {action}")
        filter_entry: Model = {"options": {"keys": {}}, "pref": 0}
        while words[0] in ("parent", "protocol", "pref", "prio"):
            key = words.pop(0)
            filter_entry["pref" if key == "prio" else key] = words.pop(0)
        filter_entry["pref"] = int(filter_entry["pref"])
        filter_entry["kind"] = words.pop(0)
        if filter_entry["kind"] not in ("flower", "matchall"):
            raise ValueError(f"filter {filter_entry['kind']}")
        for key, value in zip(words[::2], words[1::2]):
            if key in ("classid", "flowid"):
                filter_entry["options"]["classid"] = value
            elif key == "ip_tos":
                tos, _slash, mask = value.partition("/")
                filter_entry["options"]["keys"]["ip_tos"] = int(tos, 16)
                filter_entry["options"]["keys"]["ip_tos_mask"] = mask or "ff"
            else:
                filter_entry["options"]["keys"][key] = value
        self.model["filters"].setdefault(dev, []).append(filter_entry)


def _ets_words(words: list[str]) -> Model:
    lists: dict[str, list[int]] = {}
    key = ""
    for word in words:
        if word in COMPARED["ets"]:
            key = word
            lists[key] = []
        else:
            lists[key].append(int(word))
    strict = lists.get("strict", [0])[0]
    quanta = lists.get("quanta", [])
    bands = lists.get("bands", [strict + len(quanta)])[0]
    priomap = lists.get("priomap", [])
    return {
        "bands": bands,
        "strict": strict,
        "quanta": quanta,
        "priomap": [*priomap, *[bands - 1] * (PRIORITIES - len(priomap))],
    }


def _pfifo_words(words: list[str]) -> Model:
    return {"limit": int(words[words.index("limit") + 1])} if "limit" in words else {}


def red_words(words: list[str]) -> Model:
    """Return the options of a RED qdisc as tc shows them, from the words that set it."""
    flags = {word: word in words for word in RED_FLAGS}
    arguments = [word for word in words if word not in flags]
    values = dict(zip(arguments[::2], arguments[1::2]))
    limit, average = (int(values[key]) for key in ("limit", "avpkt"))
    maximum = int(values.get("max", limit // 4))  # tc-red(8)
    minimum = int(values.get("min", maximum // 3))
    burst = int(values.get("burst", (2 * minimum + maximum) // (3 * average)))
    wlog = weight_log(minimum, burst, average)
    if not wlog:
        raise ValueError("tc finds no weight for this burst and avpkt")
    return {
        **flags,
        "limit": limit,
        "min": minimum,
        "max": maximum,
        "ewma": wlog,
        "probability": float(values.get("probability", 0.02)),
    }
