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
        ("Ethernet[0:24:8]", ["Ethernet0", "Ethernet8", "Ethernet16", "Ethernet24"]),
        ("p[09:11]", ["p09", "p10", "p11"]),
        ("et-0/0/[0:1]:[0:1]", ["et-0/0/0:0", "et-0/0/0:1", "et-0/0/1:0", "et-0/0/1:1"]),
    ],
)
def test_ranges_are_expanded_to_names(text, names):
    assert list(expand(text)) == names


@pytest.mark.parametrize("text", ["swp[3:1]", "swp[1:3:0]", "swp[a:b]", "swp[1]", "swp[1:99999]", "p[1:99][1:99]"])
def test_an_invalid_range_is_refused(text):
    with pytest.raises(ValueError, match=r"range|bracket|names"):
        expand(text)
