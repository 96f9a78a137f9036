# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""No part of a domain can change, vanish, be doubled or be added without the comparison naming it."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libvirt_definitions import libvirts, wanted
from plans import PLANS

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    IDENTITY,
    PREFIXES,
    acted_on,
    differences,
    statements,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

# The wanted domain, and a domain that matches it: as rendered, or as libvirt 9.0 wrote it back.
PAIRS = {name: (render(make()), render(make())) for name, make in PLANS.items()}
PAIRS.update({name: (wanted(machine="pc-q35-7.2"), libvirts(name)) for name in ("inactive", "live")})

KINDS = ("remove", "double", "text", "attribute removed", "attribute changed", "attribute added", "child added")


def change(root: ET.Element, element: ET.Element, kind: str, pick: st.DataObject) -> bool:
    """Change one thing of ``element``; return False if it has no such thing."""
    parents = {child: parent for parent in root.iter() for child in parent}
    if kind in ("remove", "double"):
        if element is root:
            return False
        at = list(parents[element]).index(element)
        if kind == "remove":
            parents[element].remove(element)
        else:
            parents[element].insert(at, copy.deepcopy(element))
    elif kind == "text":
        if element is root:
            return False  # libvirt keeps no text there
        element.text = f"{(element.text or '').strip()}1"
    elif kind == "attribute added":
        element.set("later", "1")
    elif kind == "child added":
        ET.SubElement(element, "later")
    else:
        if not element.attrib:
            return False
        name = pick.draw(st.sampled_from(sorted(element.attrib)))
        # A number stays a number, also in hexadecimal.
        changed = f"{element.attrib.pop(name)}1"
        if kind == "attribute changed":
            element.set(name, changed)
    return True


def named_by(root: ET.Element, element: ET.Element) -> list[str]:
    """Return the element's tag as the comparison writes it, and those of parents identified by their content."""
    parents = {child: parent for parent in root.iter() for child in parent}
    tags = []
    while element is not root:
        space, brace, name = element.tag.rpartition("}")
        tag = PREFIXES.get(space + brace, "") + name
        if not tags or any("/" in step for step in IDENTITY.get(tag, ())):
            tags.append(tag)
        element = parents[element]
    return tags or [""]


STATEMENTS = {name: (statements(asked), statements(there)) for name, (asked, there) in PAIRS.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_a_matching_domain_has_no_difference(name: str) -> None:
    assert differences(*PAIRS[name]) == []


@pytest.mark.parametrize("name", PAIRS)
@given(st.data())
def test_the_differences_name_a_changed_element(name: str, pick: st.DataObject) -> None:
    wanted_xml, have_xml = PAIRS[name]
    root = ET.fromstring(have_xml)
    element = pick.draw(st.sampled_from(list(root.iter())))
    kind = pick.draw(st.sampled_from(KINDS))
    tags = named_by(root, element)
    if not change(root, element, kind, pick):
        return
    changed = ET.tostring(root, encoding="unicode")
    found = differences(wanted_xml, changed)
    asked, before = STATEMENTS[name]
    after = statements(changed)
    lost = {path for path, value in before.items() if path in asked and after.get(path) != value}
    # libvirt's own additions in the recording may come and go; requested parts may not.
    if name not in ("inactive", "live") or lost:
        assert any(tag in item.path for item in found for tag in tags), (kind, tags)
    if lost:
        assert any(tag in item.path for item in acted_on(found) for tag in tags), (kind, tags)
