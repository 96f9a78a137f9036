# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NICs, drivers and policies that are refused, and settings that a driver does not keep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from messages import Mentions, raises
from nic_policy import LOSSY, bring

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import read

# Refusals


@pytest.mark.parametrize(
    ("nics", "message"),
    [
        ({}, Mentions("NIC", "dictionary")),
        ({"mlx5_7": {}}, Mentions("mlx5_7", "RDMA")),
        ({"mlx5_9": {}}, Mentions("InfiniBand")),
        ({"../mlx5_0": {}}, Mentions("RDMA")),
        ({"mlx5_0": {"speed": 400}}, Mentions("speed")),
        ({"mlx5_0": {"speed_gbit_s": "fast"}}, Mentions("speed_gbit_s", "fast")),
        ({"mlx5_0": {"cable_m": 5}}, Mentions("cable_m", "speed_gbit_s")),
        ({"mlx5_0": [400]}, Mentions("dictionary")),
    ],
)
def test_invalid_nics_are_refused_before_anything_is_changed(host, nics, message):
    system = host("mlx5-upstream")
    with pytest.raises(HostError) as error:
        bring(system, nics)
    assert str(error.value) == message
    assert system.effects == []


def test_an_unknown_class_is_refused(host):
    with pytest.raises(HostError, match=r"storage.*names"):
        bring(host(), rdma_class="storage")


@pytest.mark.parametrize(
    ("arrange", "message"),
    [
        (lambda dcb: dcb.ets.update(ets_cap=4), Mentions("4", "6", "classes")),
        (lambda dcb: dcb.pfc.update(pfc_cap=0), Mentions("0", "priorities", "1")),
        (lambda dcb: dcb.ets.update(prio_tc=[0] * 7), Mentions("prio_tc", "8")),
        (lambda dcb: dcb.ets.update(tc_bw=[101] * 8), Mentions("tc_bw")),
        (lambda dcb: dcb.app.append(["AF31", 3]), Mentions("dscp_prio")),
        (lambda dcb: setattr(dcb, "pfc", "priority 3 is on"), Mentions("JSON", "3")),
        (lambda dcb: setattr(dcb, "pfc", "[]"), Mentions("JSON")),
    ],
)
def test_insufficient_drivers_and_invalid_output_are_refused(host, arrange, message):
    system = host()
    arrange(system.dcb["ens2np0"])
    with pytest.raises(HostError) as error:
        bring(system, {"mlx5_0": {}, "mlx5_1": {}})
    assert str(error.value) == message
    assert system.effects == []  # not even on the NIC before it


def test_a_driver_without_pfc_is_refused_only_for_a_lossless_policy(host):
    system = host()
    system.refused["no pfc"] = ""
    with pytest.raises(HostError, match=r"mlx5_0.*ens1np0.*pfc"):
        bring(system)
    assert system.effects == []
    assert bring(system, policy=LOSSY).changed
    assert not bring(system, policy=LOSSY).changed


def test_refused_pfc_is_reported_with_the_settings_that_were_changed_before(host):
    system = host()
    system.refused["pfc"] = "Unknown error 234"  # the kernel's -22 as a byte
    with pytest.raises(HostError) as caught:
        bring(system, {"mlx5_0": {"speed_gbit_s": 400}})
    message = str(caught.value)
    assert message.startswith("mlx5_0: pfc was refused: 'dcb pfc set dev ens1np0")
    assert "Invalid argument; done before: mlx5_0 ip_mtu_bytes, mlx5_0 queues, mlx5_0 dscp_to_priority" in message
    del system.refused["pfc"]
    assert list(bring(system, {"mlx5_0": {"speed_gbit_s": 400}}).after) == ["mlx5_0 pfc"]


@pytest.mark.parametrize(("forgets", "field"), [("ets", "priority_to_class"), ("/cnp_dscp", "cnp_dscp")])
def test_a_setting_that_the_driver_does_not_keep_is_an_error(host, forgets, field):
    system = host()
    system.put("/sys/class/net/ens1np0/ecn/roce_np/cnp_dscp", "4\n")
    system.forgets.add(forgets)
    with pytest.raises(HostError, match=rf"mlx5_0.*{field}"):
        bring(system)


def test_pfc_remains_off_if_the_driver_silently_ignores_the_buffer(host):
    system = host()
    system.forgets.add("buffer")
    with pytest.raises(HostError, match=r"priority_to_buffer.*mlx5_0.*ip_mtu"):
        bring(system)
    assert system.dcb["ens1np0"].pfc["prio_pfc"] == [False] * 8


def test_a_host_without_a_dcb_tool_is_refused(host):
    system = host()
    system.tools = set()
    with pytest.raises(HostError, match=r"trust.*iproute2.*mlnx_qos"):
        bring(system)


def test_an_invalid_value_in_a_kernel_file_is_refused(host):
    system = host()
    system.put("/sys/class/net/ens1np0/ecn/roce_np/cnp_dscp", "forty-eight\n")
    with pytest.raises(HostError, match=r"cnp_dscp.*forty-eight"):
        bring(system)


def test_the_rdma_cm_module_is_loaded_if_it_is_missing(host, monkeypatch):
    system = host()
    place = Path(system.path("/sys/kernel/config/rdma_cm"))
    shutil.rmtree(place)
    with pytest.raises(HostError, match=r"cm_tos.*/sys/kernel/config/rdma_cm"):
        bring(system)
    assert system.effects.count("modprobe rdma_cm") == 1
    run = system.run

    def load(argv, stdin=None):
        if argv == ["modprobe", "rdma_cm"]:
            system.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "0\n")
        return run(argv, stdin)

    monkeypatch.setattr(system, "run", load)
    bring(system)
    assert (place / "mlx5_0/ports/1/default_roce_tos").read_text() == "106\n"
    assert system.effects.count("modprobe rdma_cm") == 2


@pytest.mark.parametrize("tool", ["dcb", "mlnx_qos"])
def test_a_failing_tool_is_not_reported_as_missing(host, monkeypatch, tool):
    system = host()
    system.tools = {tool}
    run = system.run

    def fail(argv, stdin=None):
        if argv[0] == tool:
            raise HostError(f"'{tool}' failed (1): Operation not permitted")
        return run(argv, stdin)

    monkeypatch.setattr(system, "run", fail)
    with raises(HostError, tool, "1", "Operation not permitted"):
        bring(system)
    assert system.effects == []


def test_an_interface_without_an_mtu_is_refused(host):
    system = host()
    Path(system.path("/sys/class/net/ens1np0/mtu")).unlink()
    with raises(HostError, "mlx5_0", "/sys/class/net/ens1np0/mtu"):
        bring(system)
    assert system.effects == []


def test_a_driver_without_dcb_is_distinguished_from_a_missing_tool(host):
    system = host()
    del system.dcb["ens1np0"]
    with pytest.raises(HostError, match=r"trust.*DCB"):
        bring(system)
    assert read.read(system, ["mlx5_0"])["mlx5_0"].cannot["buffer_bytes"] == Mentions("DCB")


def stale(system, monkeypatch, times):
    """Let the first ``times`` of `dcb ets set` end as if dcb had read an earlier answer; the settings are applied."""
    run, failed = system.run, []

    def once(argv, stdin=None):
        output = run(argv, stdin)
        if argv[:3] == ["dcb", "ets", "set"] and len(failed) < times:
            failed.append(argv)
            raise HostError(f"'{' '.join(argv)}' failed (1): Attribute write: Protocol error", "see its output")
        return output

    monkeypatch.setattr(system, "run", once)
    return failed


def test_dcb_is_run_again_if_it_took_an_earlier_answer_for_its_own(host, monkeypatch):
    system = host()
    failed = stale(system, monkeypatch, 2)
    assert bring(system).changed
    assert len(failed) == 2
    assert not bring(system).changed


def test_dcb_is_run_three_times_at_most(host, monkeypatch):
    system = host()
    failed = stale(system, monkeypatch, 9)
    with raises(HostError, "mlx5_0", "queues", "Protocol error"):
        bring(system)
    assert len(failed) == 3


def test_a_setting_that_is_not_kept_is_named_with_both_values(host):
    system = host()
    system.put("/sys/class/net/ens1np0/ecn/roce_np/cnp_dscp", "4\n")
    system.forgets.add("/cnp_dscp")
    with pytest.raises(HostError) as error:
        bring(system, {"mlx5_0": {}}, LOSSY)
    done = ("ip_mtu_bytes", "queues", "dscp_to_priority", "cnp_dscp", "cm_tos")
    text = str(error.value)
    assert text.startswith(
        "mlx5_0: the driver was given cnp_dscp, but did not keep it: it reads back 4, wanted 48; set so far: "
    )
    assert text.endswith(
        "; see the kernel's log for its driver, and what else on this host sets it (lldpad, NetworkManager)"
    )
    named = text.split("set so far: ")[1].split("; ")[0].split(", ")
    assert len(named) == len(set(named))
    assert {f"mlx5_0 {name}" for name in done} <= set(named)


def test_a_refused_first_setting_is_reported_without_earlier_ones(host):
    system = host()
    bring(system)
    system.refused["pfc"] = "Unknown error 234"
    with pytest.raises(HostError) as error:
        bring(system, policy=LOSSY)
    assert str(error.value).endswith("; nothing was changed before; correct it and run again")


def test_without_a_mount_of_configfs_the_next_step_is_named(host):
    system = host()
    shutil.rmtree(system.path("/sys/kernel/config/rdma_cm"))
    with raises(HostError, "cm_tos", "sys/kernel/config/rdma_cm") as error:
        bring(system)
    assert str(error.value).endswith("; correct it and run again")


def test_a_tool_that_fails_for_another_reason_is_run_once(host):
    system = host()
    system.refused["pfc"] = "Unknown error 234"
    with pytest.raises(HostError):
        bring(system)
    assert len([effect for effect in system.effects if effect.startswith("dcb pfc set")]) == 1


def test_pfc_remains_off_if_the_only_setting_before_it_is_not_kept(host):
    system = host()
    bring(system)
    dcb = system.dcb["ens1np0"]
    dcb.pfc["prio_pfc"], dcb.ets["prio_tc"] = [False] * 8, [0] * 8
    system.forgets.add("ets")
    del system.effects[:]
    with pytest.raises(HostError, match="priority_to_class"):
        bring(system)
    assert [effect.split()[1] for effect in system.effects] == ["ets"]
    assert dcb.pfc["prio_pfc"] == [False] * 8
