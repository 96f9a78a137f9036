# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effect of QoS lines on an EOS switch, for tests."""

from __future__ import annotations

import re
from dataclasses import replace

from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch


class Box:
    """The part of a switch that accepts QoS lines.

    A line replaces another line of its family; "no" and "default" remove it.
    """

    FAMILIES = (
        r"(no )?(qos trust).*",
        r"(no )?(priority-flow-control)( on| mode on)?",
        r"()(priority-flow-control priority \d).*",
        r"(no )?(priority-flow-control pause watchdog)",
        r"()(priority-flow-control pause watchdog port timer).*",
        r"()(priority-flow-control pause watchdog port action).*",
        r"()(service-profile).*",
        r"()(service-policy type qos input).*",
        r"()(mtu).*",
        r"(no )?(switchport)",
        r"(no )?(priority)( strict)?",
        r"()(bandwidth percent).*",
        r"()(random-detect ecn) minimum.*",
        r"()(qos map dscp \d+) to.*",
        r"()(qos map traffic-class \d) to.*",
    )
    HEADS = re.compile(r"(interface|qos profile|uc-tx-queue|tx-queue) .*")

    def __init__(self, text: str) -> None:
        self.tree: dict = {}
        self.apply(text.splitlines())

    def family(self, line: str) -> str:
        for pattern in self.FAMILIES:
            match = re.fullmatch(pattern, line)
            if match:
                return match[2]
        return line

    def apply(self, lines: list[str]) -> None:
        at: list[tuple[int, dict]] = [(-1, self.tree)]
        for raw in lines:
            line, indent = raw.strip(), len(raw) - len(raw.lstrip())
            if not line or line.startswith("!"):
                continue
            while indent <= at[-1][0]:
                at.pop()
            here = at[-1][1]
            verb, _blank, rest = line.partition(" ")
            if verb == "default":
                gone = [each for each in here if self.family(each) == rest]
                assert gone, f"nothing to take away: {line}"
                for each in gone:
                    del here[each]
            elif verb == "no" and self.family(line) == line:
                gone = [each for each in here if each == rest or (each + " ").startswith(rest + " ")]
                assert gone, f"nothing to take away: {line}"
                for each in gone:
                    del here[each]
            elif self.HEADS.fullmatch(line):
                at.append((indent, here.setdefault(line, {})))
            else:
                for each in self.split(line):
                    for old in [old for old in here if self.family(old) == self.family(each)]:
                        del here[old]
                    here[each] = {}

    @staticmethod
    def split(line: str) -> list[str]:
        words = re.fullmatch(r"(qos map dscp|qos map traffic-class) ([\d ]+) (to (?:traffic-class|tx-queue) .*)", line)
        return [f"{words[1]} {each} {words[3]}" for each in words[2].split()] if words else [line]

    def text(self) -> str:
        def show(tree: dict, depth: int) -> list[str]:
            return [line for each, under in tree.items() for line in (" " * depth + each, *show(under, depth + 3))]

        return "\n".join(show(self.tree, 0)) + "\n"


PORTS = ["Ethernet1/1", "Ethernet2/1", "Ethernet17"]


REFERENCE = switch("eos", PORTS, cable_m=30)


def held(wanted: Switch) -> Switch:
    """Return ``wanted`` without what EOS's configuration does not hold."""
    ports = {port: replace(qos, headroom=(None,) * 8, cable_m=None) for port, qos in wanted.ports.items()}
    return replace(wanted, ports=ports)


def own(text: str) -> list[str]:
    return re.findall(r"qos profile (\S+)", text)
