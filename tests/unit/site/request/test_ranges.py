# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names with number ranges."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.ranges import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("eth0", ["eth0"]),
        ("swp[1:3]", ["swp1", "swp2", "swp3"]),
        ("swp[7:7]", ["swp7"]),
        ("Ethernet[0:24:8]", ["Ethernet0", "Ethernet8", "Ethernet16", "Ethernet24"]),
        ("Ethernet[0:23:8]", ["Ethernet0", "Ethernet8", "Ethernet16"]),
        ("p[09:11]", ["p09", "p10", "p11"]),
        ("p[9:11:1]x", ["p9x", "p10x", "p11x"]),
        ("et-0/0/[0:1]:[0:1]", ["et-0/0/0:0", "et-0/0/0:1", "et-0/0/1:0", "et-0/0/1:1"]),
        ("[1:1][2:2][3:3]", ["123"]),
    ],
)
def test_ranges_are_expanded_to_names(text, names):
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("swp[3:1]", "the range [3:1] is empty"),
        ("swp[3:1:2]", "the range [3:1:2] is empty"),
        ("swp[1:3:0]", "the range [1:3:0] is empty"),
        *(
            (text, f"{text!r} has a bracket that is not part of a range [FIRST:LAST] or [FIRST:LAST:STEP]")
            for text in ("swp[a:b]", "swp[1]", "swp[", "swp]", "x]p[1:2]", "p[1:2]q[r")
        ),
        ("p[0:4096]", "'p[0:4096]' expands to 4097 names, but the maximum is 4096"),
        ("p[1:99][1:99]", "'p[1:99][1:99]' expands to 9801 names, but the maximum is 4096"),
    ],
)
def test_an_invalid_range_is_refused(text, told):
    with pytest.raises(ValueError, match=r"range|bracket|names") as caught:
        expand(text)
    assert str(caught.value) == told


def test_a_range_has_up_to_4096_names():
    assert len(expand("p[1:4096]")) == len(expand("p[1:64]/[1:64]")) == 4096
