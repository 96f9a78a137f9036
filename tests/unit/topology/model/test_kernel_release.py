# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Changes of Linux in a kernel, by its release."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import includes


@pytest.mark.parametrize(
    ("release", "known"),
    [
        ("6.15.0", True),
        ("7.0.1-1-cloud-amd64", True),
        ("6.12.23-amd64", True),
        ("6.12.22-amd64", False),
        ("6.14", False),
        ("6.12.0-55.9.1.el10_0", None),
        ("6.4.0-150600.23-default", None),
        ("6.8.0-1014-nvidia", None),
        ("unknown", None),
        (None, None),
    ],
)
def test_a_release_tells_whether_it_has_a_change_unless_its_vendor_adds_later_ones(release, known):
    assert includes(release, (6, 15), {(6, 12): 23}) is known
