# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError


def chosen(server, *names):
    return [function.address for function in selectors.select(server.host(), list(names), "here")]


def test_by_kind_vendor_and_address(server):
    assert chosen(server, "gpu") == ["0000:13:00.0"]
    assert chosen(server, "8086:10c9") == ["0000:14:00.0", "0000:15:00.0"]
    assert chosen(server, "8086:*", "13:00.0", "GPU") == ["0000:13:00.0", "0000:14:00.0", "0000:15:00.0"]
    assert chosen(server, "0000:15:00.0") == ["0000:15:00.0"]


def test_kinds_and_vendors_may_match_nothing(server):
    assert chosen(server, "nvswitch", "15b3:*") == []


@pytest.mark.parametrize("name", ["15b3:101b", "0000:16:00.0"])
def test_a_device_may_not(server, name):
    with pytest.raises(HostError, match=f"here: no device {name} on this host; see the functions"):
        chosen(server, name)


@pytest.mark.parametrize("name", ["gpus", "", "15b3", "3b:00", "0000:3b:00.9", "*:*"])
def test_what_is_no_selector(server, name):
    with pytest.raises(HostError, match=r"is no kind, .*; use one of gpu, nic, nvme, nvswitch, bridge,"):
        chosen(server, name)
