# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Devices of kinds."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError


def test_too_many_devices_are_refused_before_they_are_created():
    with pytest.raises(SiteError) as refused:
        sites.site(devices__node__count=200_001)
    assert str(refused.value) == ("devices.node.count: 400002 devices exceed the maximum of 400000; correct the counts")
