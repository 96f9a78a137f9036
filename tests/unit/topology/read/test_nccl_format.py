# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parser of NCCL's format: elements with their lines, whole messages, and both sides of every limit."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import nccl_format
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import Element, parse


def system(inside="", version=1, more=""):
    return f'<system version="{version}"{more}>{inside}</system>'


def refusal(text):
    """Return the message for a text without its next step, which is always the same; None: it is read."""
    try:
        parse(text)
    except TopologyError as error:
        message = str(error)
    else:
        return None
    assert message.endswith("; read or record the host again")
    return message[: -len("; read or record the host again")]


def described(element: Element):
    return (element.tag, element.attributes, element.line, [described(child) for child in element.children])


def test_elements_are_read_with_their_lines_and_attributes():
    text = (
        '<!-- a\nb -->\n<system version="1">\r\n  <cpu  numaid="0" ><!--c--><pci busid="a" class=""/>\n\n'
        '<pci busid="b"></pci>  </cpu>\n<cpu numaid="1"/>\n</system>\n \n'
    )
    assert described(parse(text)) == (
        "system",
        {"version": "1"},
        3,
        [
            (
                "cpu",
                {"numaid": "0"},
                4,
                [("pci", {"busid": "a", "class": ""}, 4, []), ("pci", {"busid": "b"}, 6, [])],
            ),
            ("cpu", {"numaid": "1"}, 7, []),
        ],
    )
    assert parse(text).dialect is nccl_format.NCCL
    assert parse(system('<cpu numaid="0"/>', 2)).children[0].dialect is nccl_format.RCCL
    assert parse(system(version=3)).dialect is nccl_format.NCCL
    assert [child.attributes["busid"] for child in parse(text).children[0].all("pci")] == ["a", "b"]
    assert parse(text).children[0].all("nic") == []


def places(count):
    return " ".join(f'a{number}="1"' for number in range(count))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an NCCL topology: 0 elements <system>, expected one"),
        (system() * 2, "not an NCCL topology: 2 elements <system>, expected one"),
        ("<cpu/>", "NCCL topology, line 1: NCCL does not know <cpu> as the outermost and skips it"),
        (
            system("<cpu><pci><net/></pci></cpu>", 2),
            "NCCL topology, line 1: RCCL does not know <net> below <pci> and skips it",
        ),
        ("\n\n<system>\n<cpu>", "NCCL topology, line 4: <cpu> is never closed"),
        ("<system>\n</cpu>", "NCCL topology, line 2: </cpu> has no matching opening tag"),
        ("</system>", "NCCL topology, line 1: </system> has no matching opening tag"),
        (
            '<system a="1" a="2"/>',
            "NCCL topology, line 1: <system> has a twice, and NCCL uses the first",
        ),
        (f'<system a="{"x" * 253}"/>', None),
        (
            f'<system a="{"x" * 254}"/>',
            "NCCL topology, line 1: <system>: a is longer than NCCL's 253 characters",
        ),
        (f'<system {"x" * 253}="a"/>', None),
        (
            f'<system {"x" * 254}="a"/>',
            f"NCCL topology, line 1: <system>: {'x' * 254} is longer than NCCL's 253 characters",
        ),
        (
            '<system a="b&amp;"/>',
            "NCCL topology, line 1: <system>: NCCL reads a='b&amp;' literally, it knows no entities",
        ),
        (f"<system {places(16)}/>", None),
        (
            f"<system {places(17)}/>",
            "NCCL topology, line 1: <system> has more than 16 attributes (or spaces between them)",
        ),
        (f"<system {places(15)} />", None),
        (f"<system  {places(15)}/>", None),
        (
            f"<system  {places(16)}/>",
            "NCCL topology, line 1: <system> has more than 16 attributes (or spaces between them)",
        ),
        (
            f"<system {places(16)} />",
            "NCCL topology, line 1: <system> has more than 16 attributes (or spaces between them)",
        ),
        ('<?xml version="1.0"?>', "NCCL topology, line 1: NCCL does not know XML declarations; begin with <system"),
        (
            "\n<!-- a=b",
            "NCCL topology, line 2: a comment that does not end, or whose first word contains a '='",
        ),
        (
            "<system>\tx",
            "NCCL topology, line 1: '\\t' between elements: NCCL skips only spaces and line ends there",
        ),
        *(
            (
                f'<system{blank}a="1"/>',
                "NCCL topology, line 1: a tab or a line end within a tag: NCCL wants spaces between attributes",
            )
            for blank in "\t\n\r"
        ),
        (
            "<system a='1'/>",
            "NCCL topology, line 1: a single quote: older releases of NCCL end a value at a double quote only",
        ),
        (f"<{'-' * 60}>", f"NCCL topology, line 1: '<{'-' * 39}' is not an element"),
    ],
)
def test_a_text_at_a_limit_is_read_and_one_beyond_is_refused(text, message):
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("version", "name", "most"),
    [(1, "NCCL", 128), (2, "RCCL", 512)],
)
def test_an_element_has_a_limited_number_of_elements_below(version, name, most):
    assert refusal(system("<cpu/>" * most, version)) is None
    assert refusal(system("<cpu/>" * (most + 1), version)) == Mentions("line 1", most, "<system>", name)


@pytest.mark.parametrize(
    ("version", "name", "most"),
    [(1, "NCCL", 255), (2, "RCCL", 8191)],
)
def test_a_file_has_a_limited_number_of_elements(version, name, most):
    def file(count):
        """Return a file of ``count`` elements: <system>, and <cpu> with at most 100 elements each."""
        groups = [min(101, count - 1 - at) for at in range(0, count - 1, 101)]
        return system("".join(f"<cpu>{'<pci/>' * (size - 1)}</cpu>" for size in groups), version)

    assert refusal(file(most)) is None
    assert refusal(file(most + 1)) == Mentions("line 1", most, name)


def test_the_elements_below_each_element_are_those_that_nccl_reads():
    assert nccl_format.NCCL.children == {
        "": ("system",),
        "system": ("cpu",),
        "cpu": ("pci", "nic"),
        "nic": ("net",),
        "pci": ("pci", "gpu", "nic", "pcilink"),
        "gpu": ("nvlink", "c2c"),
    }
    assert nccl_format.RCCL.children == {
        **nccl_format.NCCL.children,
        "pci": ("pci", "gpu", "nic"),
        "gpu": ("xgmi",),
    }
    assert nccl_format.RCCL.filled == {"gpu": ("gcn", "arch")}
