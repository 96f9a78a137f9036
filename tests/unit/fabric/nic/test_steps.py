# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands that configure a NIC with dcb(8) or mlnx_qos, and their order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import dcb, mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, Seen
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


def written(now, wanted, tool="dcb", **more):
    seen = Seen(now, Dcb(tool, by_host=now.dcbx_by_host, **more), ecn_path=ECN, cnp_path=f"{ECN}/roce_np/cnp_dscp")
    return [(each.setting, " ".join(each.argv) or f"{each.path} {each.text}".strip()) for each in steps(seen, wanted)]


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
    said = dict(written(OLD, NEW, "mlnx_qos"))
    assert said["dcbx_by_host"] == "mlnx_qos -i eth0 -d os"
    assert said["cable_m"] == "mlnx_qos -i eth0 -f 0,0,0,0,0,0,0,0 --cable_len 5"
    assert said["buffer_bytes"] == "mlnx_qos -i eth0 --prio2buffer 0,0,0,1,0,0,0,0"
    assert said["queues"] == (
        "mlnx_qos -i eth0 -p 0,0,0,3,0,0,6,0 -s ets,strict,strict,ets,strict,strict,strict,strict -t 50,0,0,50,0,0,0,0"
    )
    assert said["dscp_to_priority"] == "mlnx_qos -i eth0 --dscp2prio set,26,3"
    assert said["pfc"] == "mlnx_qos -i eth0 -f 0,0,0,1,0,0,0,0 --cable_len 5"
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
    assert steps(Seen(NEW), NEW) == []


def test_a_change_of_trust_maps_every_dscp():
    ((_setting, command),) = written(replace(NEW, trust="pcp"), NEW)
    assert command.count(":") == 64


@pytest.mark.parametrize(
    ("tool", "command"),
    [("dcb", "dcb app flush dev eth0 dscp-prio"), ("mlnx_qos", "mlnx_qos -i eth0 --trust pcp")],
)
def test_a_nic_without_mappings_is_restored_by_removing_them(tool, command):
    before = replace(NEW, trust="pcp", dscp_to_priority=(None,) * 64)
    assert written(NEW, before, tool) == [("trust", command)]


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


def test_setting_dcb_without_a_tool_is_refused():
    with pytest.raises(FabricError, match=r"mlx5_0 \(eth0\): its DCB cannot be set: no tool shows it"):
        steps(Seen(OLD), NEW)
    with pytest.raises(FabricError, match="its DCB cannot be set: not supported"):
        steps(Seen(OLD, cannot={"queues": "not supported"}), NEW)


SHOWN = {
    "app": {"dscp_prio": [[26, 3], [26, 4], [63, 7]]},
    "ets": {
        "willing": False, "ets_cap": 0, "prio_tc": [0, 1, 2, 3, 4, 5, 6, 7],
        "tc_tsa": ["ets", "strict", "vendor", "ets", "strict", "strict", "strict", "strict"],
        "tc_bw": [100, 0, 0, 0, 0, 0, 0, 0],
    },
    "pfc": {"pfc_cap": 255, "delay": 65535, "prio_pfc": [False, False, False, True, "on", "off", False, False]},
    "buffer": {"total_size": (1 << 32) - 1, "prio_buffer": [0] * 8, "buffer_size": [(1 << 32) - 1] + [0] * 7},
    "dcbx": {"host": True, "lld_managed": False},
}  # fmt: skip


def shown(**changes):
    return dcb.parse("eth0", {name: json.dumps(part) for name, part in {**SHOWN, **changes}.items()})


def test_the_output_of_dcb_is_read():
    found = shown()
    assert (found.tool, found.trust, found.by_host, found.willing) == ("dcb", "dscp", True, False)
    assert found.dscp_priorities == {26: (3, 4), 63: (7,)}
    assert found.dscp_to_priority()[26] is None
    assert found.dscp_to_priority()[63] == 7
    assert found.priority_to_class == (0, 1, 2, 3, 4, 5, 6, 7)
    assert found.queues[:4] == (Queue(False, 100), Queue(True), None, Queue(False, 0))
    assert (found.classes_at_most, found.lossless_at_most, found.delay, found.pfc) == (8, 255, 65535, (3, 4))
    assert found.buffer_bytes[0] == found.buffer_total_bytes == (1 << 32) - 1
    assert shown(ets={**SHOWN["ets"], "ets_cap": 4}).classes_at_most == 4
    assert shown(dcbx={"host": True, "lld_managed": True}).by_host is False
    assert shown(app={}).trust == "pcp"
    assert dcb.parse("eth0", dict.fromkeys(dcb.OBJECTS)) == Dcb("dcb")


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("app", {"dscp_prio": {}}),
        ("app", {"dscp_prio": [[64, 0]]}),
        ("app", {"dscp_prio": [[0, 8]]}),
        ("app", {"dscp_prio": [[0]]}),
        ("app", {"dscp_prio": [[True, 0]]}),
        ("ets", {"ets_cap": 256}),
        ("ets", {"prio_tc": [0] * 7}),
        ("ets", {"prio_tc": [8] * 8}),
        ("ets", {"tc_bw": [101] * 8}),
        ("pfc", {"pfc_cap": 256}),
        ("pfc", {"delay": 65536}),
        ("pfc", {"prio_pfc": [1] * 8}),
        ("buffer", {"total_size": 1 << 32}),
        ("buffer", {"buffer_size": [-1] * 8}),
        ("buffer", {"prio_buffer": [8] * 8}),
    ],
)
def test_invalid_output_of_dcb_is_refused(part, values):
    (name,) = values
    with pytest.raises(FabricError, match=rf"eth0: 'dcb -j {part} show': it printed {name} "):
        shown(**{part: {**SHOWN[part], **values}})


def test_long_invalid_output_is_truncated_in_the_error():
    assert "it printed no JSON: 'x" + "x" * 59 + "'" in said("x" * 60)
    assert "it printed no JSON: '" + "x" * 57 + "...'" in said("x" * 61)


def said(text):
    with pytest.raises(FabricError) as refused:
        dcb.parse("eth0", {"app": text})
    return str(refused.value)


def test_unknown_errors_of_dcb_are_replaced_by_the_kernels_error_texts():
    assert dcb.plain("Attribute write: Unknown error 234") == "Attribute write: Invalid argument"
    assert dcb.plain("Unknown error 130") == "Required key not available"
    assert dcb.plain("Unknown error 129") == "Unknown error 129"
