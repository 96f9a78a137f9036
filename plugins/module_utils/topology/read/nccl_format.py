# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL's own format of a topology file, a subset of XML: what its parser accepts and what it does not.

Source: NVIDIA/nccl src/graph/xml.cc (the parser), xml.h (its limits), topo.h (how many elements), topo.cc (the table of
link speeds). The parser accepts no XML declaration, no entities and no tabs, and one space between attributes. Only
double quotes work in every release. It silently skips elements that it does not expect at their place.

RCCL, AMD's library, has the same parser with other limits and with ``xgmi`` instead of ``nvlink``. The version that the
file states identifies which of the two wrote it. Source: ROCm/rccl, the same files. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError

# NCCL_TOPO_XML_MAX_NODES is 256, and the parser needs a free one before it reads on, even if the end follows.
MAX_ELEMENTS = 255
# MAX_ATTR_COUNT of both: further attributes are dropped when read, and are an error when NCCL adds its own.
MAX_ATTRIBUTES = 16
# MAX_STR_LEN is 255, of which the parser fills at most 253; older parsers write beyond their buffer.
MAX_TEXT = 253


@dataclass(frozen=True)
class Dialect:
    """A library that reads such files: its name, its NCCL_TOPO_XML_VERSION and limits.

    ``children`` lists the elements allowed below each: the handlers of ncclTopoXmlLoad*. ``filled`` are attributes that
    only this library adds to an element.
    """

    name: str
    version: int
    max_elements: int
    max_children: int
    children: dict[str, tuple[str, ...]]
    filled: dict[str, tuple[str, ...]] = field(default_factory=dict)


TREE: dict[str, tuple[str, ...]] = {"": ("system",), "system": ("cpu",), "cpu": ("pci", "nic"), "nic": ("net",)}
NCCL = Dialect(
    name="NCCL",
    version=1,
    max_elements=MAX_ELEMENTS,
    # MAX_SUBS has grown with the releases (128, then 640).
    max_children=128,
    children={**TREE, "pci": ("pci", "gpu", "nic", "pcilink"), "gpu": ("nvlink", "c2c")},
)
RCCL = Dialect(
    name="RCCL",
    version=2,
    # NCCL_TOPO_XML_MAX_NODES is 8192, see MAX_ELEMENTS.
    max_elements=8191,
    # MAX_SUBS.
    max_children=512,
    children={**TREE, "pci": ("pci", "gpu", "nic"), "gpu": ("xgmi",)},
    filled={"gpu": ("gcn", "arch")},
)
DIALECTS = {str(dialect.version): dialect for dialect in (NCCL, RCCL)}

# kvDictPciGen: gigatransfers per second by the beginning of a text, as the kernel wrote it until 5.6, and since then.
LINK_SPEEDS: dict[str, float] = {
    "2.5 GT/s": 2.5,
    "5 GT/s": 5.0,
    "8 GT/s": 8.0,
    "16 GT/s": 16.0,
    "32 GT/s": 32.0,
    "5.0 GT/s PCIe": 5.0,
    "8.0 GT/s PCIe": 8.0,
    "16.0 GT/s PCIe": 16.0,
    "32.0 GT/s PCIe": 32.0,
    "64.0 GT/s PCIe": 64.0,
}

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
OPENING = re.compile(rf'<({NAME})((?: +{NAME}="[^"]*")*)( *)(/?)>')
CLOSING = re.compile(rf"</({NAME})>")
ATTRIBUTE = re.compile(rf'( +)({NAME})="([^"]*)"')
# NCCL takes the first word of a comment for the name of an element, so this word must not contain "=".
COMMENT = re.compile(r"<!--(?![^ >/\n\r]*=).*?-->", re.DOTALL)


@dataclass
class Element:
    """One element of the file; ``line`` is where it begins, ``dialect`` the one of the whole file."""

    tag: str
    attributes: dict[str, str]
    line: int
    dialect: Dialect
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the children of one kind."""
        return [child for child in self.children if child.tag == tag]


def parse(text: str) -> Element:
    """Return the element ``system``. Raises TopologyError naming the line if NCCL or RCCL would refuse or skip it."""
    dialect = NCCL
    top = Element("", {}, 1, dialect)
    open_elements = [top]
    count = position = 0
    while True:
        while position < len(text) and text[position] in " \n\r":
            position += 1
        if position == len(text):
            break
        line = text.count("\n", 0, position) + 1
        comment = COMMENT.match(text, position)
        closing = CLOSING.match(text, position)
        opening = OPENING.match(text, position)
        if comment:
            position = comment.end()
        elif closing:
            if closing[1] != open_elements[-1].tag:
                raise _error(line, f"</{closing[1]}> has no matching opening tag")
            open_elements.pop()
            position = closing.end()
        elif opening:
            parent = open_elements[-1]
            attributes = _attributes(opening, line)
            if parent is top:
                dialect = DIALECTS.get(attributes.get("version", ""), NCCL)
            element = Element(opening[1], attributes, line, dialect)
            name = dialect.name
            if element.tag not in dialect.children.get(parent.tag, ()):
                place = f"below <{parent.tag}>" if parent.tag else "as the outermost"
                raise _error(line, f"{name} does not know <{element.tag}> {place} and skips it")
            count += 1
            parent.children.append(element)
            if count > dialect.max_elements:
                raise _error(
                    line, f"more than {dialect.max_elements} elements: {name} reads no more; leave devices out"
                )
            if len(parent.children) > dialect.max_children:
                raise _error(
                    line, f"more than {dialect.max_children} elements below one <{parent.tag}>: {name} reads no more"
                )
            if not opening[4]:
                open_elements.append(element)
            position = opening.end()
        else:
            raise _error(line, _why(text[position : position + 200]))
    if len(open_elements) > 1:
        raise _error(open_elements[-1].line, f"<{open_elements[-1].tag}> is never closed")
    if len(top.children) != 1:
        raise TopologyError(f"not an NCCL topology: {len(top.children)} elements <system>, expected one")
    return top.children[0]


def _attributes(opening: re.Match[str], line: int) -> dict[str, str]:
    attributes: dict[str, str] = {}
    # NCCL counts each further space as an attribute without a name.
    places = len(opening[3])
    for spaces, name, value in ATTRIBUTE.findall(opening[2]):
        places += len(spaces)
        if name in attributes:
            raise _error(line, f"<{opening[1]}> has {name} twice, and NCCL uses the first")
        if max(len(name), len(value)) > MAX_TEXT:
            raise _error(line, f"<{opening[1]}>: {name} is longer than NCCL's {MAX_TEXT} characters")
        if "&" in value:
            raise _error(line, f"<{opening[1]}>: NCCL reads {name}={value!r} literally, it knows no entities")
        attributes[name] = value
    if places > MAX_ATTRIBUTES:
        raise _error(line, f"<{opening[1]}> has more than {MAX_ATTRIBUTES} attributes (or spaces between them)")
    return attributes


def _why(excerpt: str) -> str:
    """Return as text why NCCL cannot continue here."""
    tag = excerpt.split(">", 1)[0]
    if excerpt.startswith("<?"):
        return "NCCL does not know XML declarations; begin with <system"
    if excerpt.startswith("<!--"):
        return "a comment that does not end, or whose first word contains a '='"
    if not excerpt.startswith("<"):
        return f"{excerpt[0]!r} between elements: NCCL skips only spaces and line ends there"
    if "\t" in tag or "\n" in tag or "\r" in tag:
        return "a tab or a line end within a tag: NCCL wants spaces between attributes"
    if "'" in tag:
        return "a single quote: older releases of NCCL end a value at a double quote only"
    return f"{tag[:40]!r} is not an element"


def _error(line: int, reason: str) -> TopologyError:
    return TopologyError(f"NCCL topology, line {line}: {reason}")
