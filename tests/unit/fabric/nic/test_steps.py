# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands that configure a NIC with dcb(8) or mlnx_qos, and their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.steps import steps

OLD = Nic(
    "mlx5_0",
    "eth0",
    trust="dscp",
    dscp_to_priority=(0,) * 64,
    priority_to_class=(0,) * 8,
    queues=(Queue(False, 100), *(Queue(True),) * 7),
    pfc=(),
    notification=(),
    reaction=(),
    ip_mtu_bytes=1500,
    priority_to_buffer=(0,) * 8,
    buffer_bytes=(262_016,) + (0,) * 7,
    dcbx_by_host=False,
)
NEW = replace(
    OLD,
    dscp_to_priority=(0,) * 26 + (3,) + (0,) * 37,
    priority_to_class=(0, 0, 0, 3, 0, 0, 6, 0),
    queues=(Queue(False, 50), Queue(True), Queue(True), Queue(False, 50), *(Queue(True),) * 3, None),
    pfc=(3,),
    notification=(3,),
    reaction=(3,),
    cm_tos=106,
    forced_tos=106,
    cnp_dscp=48,
    ip_mtu_bytes=9000,
    priority_to_buffer=(0, 0, 0, 1, 0, 0, 0, 0),
    buffer_bytes=(200_704, 61_440) + (0,) * 6,
    cable_m=5,
    dcbx_by_host=True,
)
ECN = "/sys/class/net/eth0/ecn"


def written(now, wanted, tool="dcb", **seen_settings):
    seen = SeenNic(
        now, Dcb(tool, by_host=now.dcbx_by_host, **seen_settings), ecn_path=ECN, cnp_path=f"{ECN}/roce_np/cnp_dscp"
    )
    return [(step.setting, " ".join(step.argv) or f"{step.path} {step.text}".strip()) for step in steps(seen, wanted)]


def test_dcb_sets_differing_settings_in_a_safe_order():
    assert written(OLD, NEW) == [
        ("dcbx_by_host", "dcb dcbx set dev eth0 host ieee"),
        ("ip_mtu_bytes", "/sys/class/net/eth0/mtu 9000"),
        ("cable_m", "dcb pfc set dev eth0 delay 5"),
        ("buffer_bytes", "dcb buffer set dev eth0 buffer-size 0:200704 1:61440 2:0 3:0 4:0 5:0 6:0 7:0"),
        ("buffer_bytes", "dcb buffer set dev eth0 prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0"),
        (
            "queues",
            "dcb ets set dev eth0 willing off "
            "tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 "
            "prio-tc 0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0",
        ),
        ("dscp_to_priority", "dcb app replace dev eth0 dscp-prio 26:3"),
        ("notification", f"{ECN}/roce_np/enable/3 1"),
        ("reaction", f"{ECN}/roce_rp/enable/3 1"),
        ("cnp_dscp", f"{ECN}/roce_np/cnp_dscp 48"),
        ("cm_tos", "106"),
        ("forced_tos", "/sys/class/infiniband/mlx5_0/tc/1/traffic_class 106"),
        ("pfc", "dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"),
    ]


def test_mlnx_qos_sets_the_same_settings_as_dcb():
    commands = dict(written(OLD, NEW, "mlnx_qos"))
    assert commands["dcbx_by_host"] == "mlnx_qos -i eth0 -d os"
    assert commands["cable_m"] == "mlnx_qos -i eth0 -f 0,0,0,0,0,0,0,0 --cable_len 5"
    assert commands["buffer_bytes"] == "mlnx_qos -i eth0 --prio2buffer 0,0,0,1,0,0,0,0"
    assert commands["queues"] == (
        "mlnx_qos -i eth0 -p 0,0,0,3,0,0,6,0 -s ets,strict,strict,ets,strict,strict,strict,strict -t 50,0,0,50,0,0,0,0"
    )
    assert commands["dscp_to_priority"] == "mlnx_qos -i eth0 --dscp2prio set,26,3"
    assert commands["pfc"] == "mlnx_qos -i eth0 -f 0,0,0,1,0,0,0,0 --cable_len 5"
    assert mlnx_qos.set_pfc("eth0", (), None) == [["mlnx_qos", "-i", "eth0", "-f", "0,0,0,0,0,0,0,0"]]


def test_removed_pfc_is_turned_off_first_and_unchanged_pfc_remains_on():
    now = replace(NEW, pfc=(3, 4))
    assert written(now, replace(NEW, pfc=(3, 5))) == [
        ("pfc", "dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"),
        ("pfc", "dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:on 6:off 7:off"),
    ]
    assert len(written(now, NEW)) == len(written(replace(NEW, pfc=()), NEW)) == 1


def test_nothing_is_written_if_all_settings_are_as_wanted():
    assert written(NEW, NEW) == []
    assert steps(SeenNic(NEW), NEW) == []


def test_a_change_of_trust_maps_every_dscp():
    ((_setting, command),) = written(replace(NEW, trust="pcp"), NEW)
    assert command.count(":") == 64


@pytest.mark.parametrize(
    ("tool", "command"),
    [("dcb", "dcb app flush dev eth0 dscp-prio"), ("mlnx_qos", "mlnx_qos -i eth0 --trust pcp")],
)
def test_a_nic_without_mappings_is_restored_by_removing_them(tool, command):
    old = replace(NEW, trust="pcp", dscp_to_priority=(None,) * 64)
    assert written(NEW, old, tool) == [("trust", command)]


@pytest.mark.parametrize(
    ("tool", "command"),
    [("dcb", "dcb dcbx set dev eth0 lld-managed ieee"), ("mlnx_qos", "mlnx_qos -i eth0 -d fw")],
)
def test_dcbx_is_handed_back_to_the_firmware_after_all_other_settings(tool, command):
    assert written(NEW, replace(NEW, dcbx_by_host=False), tool) == [("dcbx_by_host", command)]
    assert written(NEW, replace(OLD, pfc=(5,)), tool)[-1] == ("dcbx_by_host", command)


def test_a_willing_scheduler_is_set_with_dcbx():
    now = replace(NEW, dcbx_by_host=False)
    assert [setting for setting, _command in written(now, NEW, willing=True)] == ["dcbx_by_host", "queues"]
    assert [setting for setting, _command in written(now, NEW, willing=False)] == ["dcbx_by_host"]
    assert written(NEW, NEW, willing=True) == []


def test_a_forced_tos_is_reset_and_notification_points_are_turned_off():
    back = replace(NEW, forced_tos=None, notification=())
    assert written(NEW, back) == [
        ("notification", f"{ECN}/roce_np/enable/3 0"),
        ("forced_tos", "/sys/class/infiniband/mlx5_0/tc/1/traffic_class -1"),
    ]


def test_points_differ_by_priority():
    now, wanted = replace(NEW, notification=None, reaction=(0, 7)), replace(NEW, notification=(0, 7), reaction=(3, 7))
    assert written(now, wanted) == [
        ("notification", f"{ECN}/roce_np/enable/0 1"),
        ("notification", f"{ECN}/roce_np/enable/7 1"),
        ("reaction", f"{ECN}/roce_rp/enable/0 0"),
        ("reaction", f"{ECN}/roce_rp/enable/3 1"),
    ]


def test_pfc_keeps_the_wanted_cable_or_else_the_current_one():
    old = replace(NEW, pfc=(4,), cable_m=7)
    assert written(old, replace(NEW, cable_m=None), "mlnx_qos") == [
        ("pfc", "mlnx_qos -i eth0 -f 0,0,0,0,0,0,0,0 --cable_len 7"),
        ("pfc", "mlnx_qos -i eth0 -f 0,0,0,1,0,0,0,0 --cable_len 7"),
    ]
    assert written(old, NEW, "mlnx_qos") == [
        ("pfc", "mlnx_qos -i eth0 -f 0,0,0,0,0,0,0,0 --cable_len 7"),
        ("cable_m", "mlnx_qos -i eth0 -f 0,0,0,0,0,0,0,0 --cable_len 5"),
        ("pfc", "mlnx_qos -i eth0 -f 0,0,0,1,0,0,0,0 --cable_len 5"),
    ]


@pytest.mark.parametrize("setting", ["buffer_bytes", "priority_to_buffer"])
def test_buffers_are_set_if_either_their_sizes_or_their_priorities_differ(setting):
    commands = written(replace(NEW, **{setting: (1,) * 8}), NEW)
    assert commands == [
        ("buffer_bytes", "dcb buffer set dev eth0 buffer-size 0:200704 1:61440 2:0 3:0 4:0 5:0 6:0 7:0"),
        ("buffer_bytes", "dcb buffer set dev eth0 prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0"),
    ]


@pytest.mark.parametrize("setting", ["queues", "priority_to_class"])
def test_the_scheduler_is_set_if_either_its_queues_or_its_priorities_differ(setting):
    old_value = {"queues": (Queue(True),) * 8, "priority_to_class": (1,) * 8}[setting]
    ((step_name, command),) = written(replace(NEW, **{setting: old_value}), NEW)
    assert (step_name, command) == (
        "queues",
        "dcb ets set dev eth0 willing off tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict "
        "tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 prio-tc 0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0",
    )


def test_dcbx_that_the_host_already_has_or_nobody_tells_is_not_taken_over():
    unknown = replace(NEW, dcbx_by_host=None)
    assert written(unknown, NEW) == []
    assert steps(SeenNic(unknown), NEW) == []


def test_only_differing_dscps_are_mapped():
    now = replace(NEW, dscp_to_priority=(None, 5, *NEW.dscp_to_priority[2:]))
    assert written(now, NEW) == [("dscp_to_priority", "dcb app replace dev eth0 dscp-prio 0:0 1:0")]
    partly = replace(NEW, dscp_to_priority=(None, None, *NEW.dscp_to_priority[2:]))
    ((_setting, command),) = written(replace(NEW, trust="pcp"), partly)
    assert command.split()[6:] == [f"{dscp}:{3 if dscp == 26 else 0}" for dscp in range(2, 64)]


def test_setting_dcb_without_a_tool_is_refused():
    with refuses("mlx5_0 (eth0)", "DCB", "no tool"):
        steps(SeenNic(OLD), NEW)
    with refuses("mlx5_0 (eth0)", "DCB", "not supported"):
        steps(SeenNic(OLD, cannot={"queues": "not supported"}), NEW)
