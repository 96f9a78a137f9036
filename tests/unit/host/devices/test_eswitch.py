# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up output of devlink, in the format of iproute2's source (devlink/devlink.c, pr_out_eswitch)."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import eswitch

PF = "0000:15:00.0"


def test_the_mode_is_read_from_devlink(server):
    server.eswitches[PF] = "switchdev"
    assert eswitch.mode(server, PF) == "switchdev"
    assert server.commands == [f"devlink -j dev eswitch show pci/{PF}"]


def test_a_driver_without_an_embedded_switch_is_refused(server):
    with pytest.raises(HostError, match=r"0000:15:00\.0's.*eswitch_mode"):
        eswitch.mode(server, PF)


@pytest.mark.parametrize("answer", ["", '{"dev":{}}', '{"dev":{"pci/0000:15:00.0":{}}}', "[]"])
def test_an_answer_without_a_mode_is_refused(server, answer):
    server._devlink_show = lambda _handle: answer
    with pytest.raises(HostError, match="without a mode"):
        eswitch.mode(server, PF)


def test_the_mode_is_set_with_devlink(server):
    server.eswitches[PF] = "legacy"
    eswitch.set_mode(server, PF, "switchdev")
    assert server.commands == [f"devlink dev eswitch set pci/{PF} mode switchdev"]
    assert server.eswitches == {PF: "switchdev"}
    assert eswitch.address_of(eswitch.handle(PF)) == PF
