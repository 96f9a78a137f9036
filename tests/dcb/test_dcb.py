# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's part of the RoCE policy, with the real dcb and a real driver with DCB in an emulated machine."""

from __future__ import annotations

import json

import dcb_machine as machine
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.buffers import lossless_bytes


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Return {step of inside.py: its result}; the machine boots once."""
    console = machine.boot(tmp_path_factory.mktemp("dcb"))
    lines = [line[7:] for line in console.splitlines() if line.startswith("RESULT ")]
    found = {one["name"]: one for one in map(json.loads, lines)}
    assert "broken" not in found, console[-6000:]
    assert "THE END" in console, console[-6000:]
    return found


def priorities(dcb):
    return dict(dcb["app"].get("dscp_prio", []))


def test_the_settings_of_a_fresh_nic_are_read(results):
    fresh = results["fresh"]
    assert "failed" not in fresh["log"]
    nic = fresh["info"]["nics"]["rxe0"]
    # RDMA-CM is not loaded yet, so there is no ToS.
    assert (nic["interface"], nic["trust"], nic["cm_tos"], nic["ip_mtu_bytes"]) == ("dcb0", "pcp", None, 1500)
    assert nic["dcbx_by_host"] is False
    assert nic["buffer_bytes"] == [262144, 0, 0, 0, 0, 0, 0, 0]


def test_check_mode_changes_nothing_and_predicts_the_run(results):
    assert results["check"]["dcb"] == results["fresh"]["dcb"]
    check, first = results["check"]["result"], results["first"]["result"]
    assert check["changed"] is first["changed"] is True
    assert check["diff"] == first["diff"]
    assert check["nics"] == first["nics"]


def test_dcb_shows_the_settings_of_the_policy(results):
    dcb = results["first"]["dcb"]
    assert priorities(dcb) == {at: {26: 3, 48: 6}.get(at, 0) for at in range(64)}
    assert len(dcb["app"]["dscp_prio"]) == 64
    assert dcb["ets"]["prio_tc"] == [0, 0, 0, 3, 0, 0, 6, 0]
    assert dcb["ets"]["tc_tsa"] == ["ets", "strict", "strict", "ets", *["strict"] * 4]
    assert dcb["ets"]["tc_bw"] == [50, 0, 0, 50, 0, 0, 0, 0]
    assert dcb["pfc"]["prio_pfc"] == [at == 3 for at in range(8)]
    assert dcb["buffer"]["prio_buffer"] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert dcb["buffer"]["buffer_size"] == [262144, lossless_bytes(400, 5, 9000), *[0] * 6]
    assert dcb["dcbx"] == {"host": True, "ieee": True}
    nic = results["first"]["result"]["nics"]["rxe0"]
    assert (nic["cm_tos"], nic["ip_mtu_bytes"], nic["trust"]) == (106, 9000, "dscp")


def test_a_second_run_changes_nothing(results):
    second = results["second"]["result"]
    assert (second["changed"], second["diff"]) == (False, {"before": {}, "after": {}})
    assert results["second"]["mtu"].strip() == "9000"
    assert results["second check"]["result"]["changed"] is False
    # RDMA-CM keeps the ToS between reads.
    assert results["second check"]["info"]["nics"]["rxe0"]["cm_tos"] == 106


def test_foreign_settings_are_replaced(results):
    foreign = results["foreign"]
    assert [26, 3] in foreign["foreign"]["app"]["dscp_prio"]
    assert [26, 5] in foreign["foreign"]["app"]["dscp_prio"]
    assert foreign["result"]["diff"] == foreign["predicted"]["diff"]
    before = foreign["result"]["diff"]["before"]
    assert before["rxe0 dscp_to_priority"] == {"priority 3 and 5": "DSCP 26"}
    assert before["rxe0 pfc"] == [3, 5]
    assert foreign["dcb"] == results["first"]["dcb"]
    assert foreign["again"]["changed"] is False


def test_a_policy_can_be_changed_to_lossy_and_back(results):
    lossy = results["lossy"]
    assert lossy["result"]["changed"] is True
    assert not any(lossy["dcb"]["pfc"]["prio_pfc"])
    assert lossy["again"]["changed"] is False
    assert results["lossless"]["dcb"]["pfc"] == results["first"]["dcb"]["pfc"]
    assert results["lossless"]["again"]["changed"] is False


def test_a_boot_restores_the_policy(results):
    boot = results["boot"]
    assert "failed" not in boot["log"]
    assert boot["lost"]["changed"] is True
    assert "rxe0 pfc: [] -> [3]" in boot["boot"]
    assert boot["result"]["changed"] is False
    assert boot["dcb"] == results["first"]["dcb"]


def test_a_setting_that_the_driver_does_not_keep_is_an_error(results):
    refused = results["refused"]
    message = refused["result"]["msg"]
    # The tool prints nothing about the refusal.
    assert refused["raw"] == ""
    assert message.startswith("rxe0: the driver was given pfc, but did not keep it: it reads back [], wanted [3]; ")
    assert "set so far: rxe0 dcbx_by_host, rxe0 ip_mtu_bytes, rxe0 buffer_bytes, rxe0 queues" in message
    assert not any(refused["dcb"]["pfc"]["prio_pfc"])


def test_an_interface_without_dcb_is_refused(results):
    plain = results["no dcb"]
    assert "rxe1 (plain0): it cannot have trust: its driver has no DCB" in plain["result"]["msg"]
    assert plain["info"]["nics"]["rxe1"]["ip_mtu_bytes"] == 1500
