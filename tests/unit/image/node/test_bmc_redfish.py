# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""BMCs with the faults of public reports restart their node from the network, or the error says why they do not."""

from __future__ import annotations

import pytest
from messages import raises
from quirky_bmc import QuirkyBmc

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc as bmc_module
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc_redfish import restart


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a QuirkyBmc."""
    started = []

    def call(*faults, **how):
        started.append(QuirkyBmc(tmp_path, faults, **how))
        return started[-1]

    yield call
    for server in started:
        server.stop()


def ask(server, **settings):
    """Restart the node through the BMC; return (the boot properties of the changes, the commands)."""
    restart(BootBmc(server.address, "root", "secret", ca=server.ca, power_timeout_s=4, timeout_s=5, **settings))
    overrides = [change for change in server.changes if isinstance(change, dict)]
    return overrides, [change for change in server.changes if isinstance(change, str)]


def test_a_read_only_boot_mode_that_is_right_is_not_sent(start):
    # HPE: https://github.com/ansible-collections/community.general/issues/3509
    overrides, commands = ask(start("read_only_mode", maker="HPE"))
    assert overrides == [{"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}]
    assert commands == ["ForceRestart"]


def test_a_read_only_boot_mode_that_is_wrong_is_an_error_and_nothing_is_restarted(start):
    server = start("read_only_mode", mode="Legacy")
    with pytest.raises(BmcError, match="read-only") as caught:
        ask(server)
    assert server.changes == []
    assert "boot_mode" in bmc_module.BootBmc(server.address, "", "").failure("bm01", "ctl1", str(caught.value)).remedy


def test_a_boot_mode_that_differs_is_sent(start):
    overrides, _commands = ask(start(mode="Legacy"))
    assert overrides[0]["BootSourceOverrideMode"] == "UEFI"


def test_a_maker_that_resets_the_mode_always_gets_it(start):
    # https://github.com/DMTF/Redfishtool/pull/106
    server = start("mode_needed", maker="Supermicro")
    ask(server)
    assert server.boot["BootSourceOverrideMode"] == "UEFI"


def test_an_override_that_only_the_settings_resource_takes_is_written_there(start):
    # AMI: https://github.com/DMTF/Redfish-Tacklebox/issues/144
    server = start("settings_only", maker="AMI")
    _overrides, commands = ask(server)
    assert (server.boot["BootSourceOverrideEnabled"], server.boot["BootSourceOverrideTarget"]) == ("Once", "Pxe")
    assert commands == ["ForceRestart"]


@pytest.mark.parametrize(
    ("targets", "requested", "expected"),
    [
        (["None", "UefiHttp"], None, "UefiHttp"),
        (["Pxe", "UefiHttp"], None, "Pxe"),
        (["Pxe", "UefiHttp"], "UefiHttp", "UefiHttp"),
    ],
)
def test_the_target_is_the_requested_one_or_one_that_the_bmc_offers(start, targets, requested, expected):
    # https://github.com/bmc-toolbox/bmclib/pull/427
    overrides, _commands = ask(start(targets=targets), boot_target=requested)
    assert overrides[0]["BootSourceOverrideTarget"] == expected


@pytest.mark.parametrize(
    ("settings", "missing"), [({"boot_target": "Pxe"}, "Pxe"), ({"boot_mode": "Legacy"}, "Pxe")], ids=["target", "mode"]
)
def test_a_target_that_the_bmc_does_not_offer_is_an_error(start, settings, missing):
    server = start(targets=["Hdd", "UefiHttp"])
    with pytest.raises(BmcError, match=f"{missing}.*Hdd, UefiHttp"):
        ask(server, **settings)
    assert server.changes == []


def test_http_boot_that_no_boot_server_answers_is_used_only_on_request(start):
    server = start(targets=["Hdd", "UefiHttp"])
    with pytest.raises(BmcError, match="UefiHttp") as caught:
        ask(server, http_boot=False)
    assert server.changes == []
    assert "boot_server_dhcp" in BootBmc(server.address, "", "").failure("bm01", "ctl1", str(caught.value)).remedy
    overrides, _commands = ask(server, http_boot=False, boot_target="UefiHttp")
    assert overrides[0]["BootSourceOverrideTarget"] == "UefiHttp"


def test_an_override_that_the_bmc_forgets_is_an_error_and_the_node_is_not_restarted(start, monkeypatch):
    monkeypatch.setattr(bmc_module, "READ_BACK_S", 2)
    server = start("forgets")
    with pytest.raises(BmcError, match="no override"):
        ask(server)
    assert [change for change in server.changes if isinstance(change, str)] == []


def test_a_bmc_that_never_shows_the_override_restarts_the_node(start):
    _overrides, commands = ask(start("hides"))
    assert commands == ["ForceRestart"]


@pytest.mark.parametrize(
    ("resets", "power", "expected"),
    [
        (["On", "ForceOff"], "On", ["ForceOff", "On"]),
        (["On", "PowerCycle"], "On", ["PowerCycle"]),
        (["On", "ForceOff", "PowerCycle"], "On", ["ForceOff", "On"]),
        (["On", "ForceRestart"], "Off", ["On"]),
    ],
)
def test_the_restart_uses_what_the_bmc_offers(start, resets, power, expected):
    server = start(resets=resets)
    server.power = power
    assert ask(server)[1] == expected


def test_a_node_that_is_slow_to_go_off_is_switched_on_after_that(start):
    server = start("slow_off", resets=["On", "ForceOff"])
    assert ask(server)[1] == ["ForceOff", "On"]
    assert server.resource("/redfish/v1/Systems/Self")["PowerState"] == "On"


def test_a_node_that_does_not_go_off_is_an_error_and_not_switched_on(start):
    server = start("stays_on", resets=["On", "ForceOff"])
    with raises(BmcError, "power", "on", "off"):
        ask(server)
    assert [change for change in server.changes if isinstance(change, str)] == ["ForceOff"]


def test_the_remedy_names_the_network_only_if_the_bmc_was_not_reached(start):
    server = start()
    server.stop()
    with pytest.raises(BmcError) as caught:
        ask(server)
    bmc = BootBmc(server.address, "", "")
    assert "can reach this address" in bmc.failure("bm01", "ctl1", str(caught.value)).remedy
    for answered in (
        "HTTP PATCH x returned code 400",
        "HTTP GET x returned code 500",
        "it accepted Pxe, but shows Hdd",
    ):
        assert "reach" not in bmc.failure("bm01", "ctl1", answered).remedy
