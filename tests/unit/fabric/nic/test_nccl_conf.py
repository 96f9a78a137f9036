# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import nccl_conf
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

TWO = {
    "classes": {
        "roce": {},
        "control": {"mode": "lossy", "dscp": 32, "ect": 1, "traffic_class": 4, "bandwidth_percent": 5},
    }
}


def of(policy=None, **choices):
    return nccl_conf.of_policy(read_policy(policy), nccl_conf.read_choices(choices))


def test_nccl_ib_tc_is_the_tos_byte_with_its_ect_bits():
    assert of() == {"NCCL_IB_TC": 106}  # 104 has the DSCP but no ECT: no switch would mark such a packet
    assert of(gid_index=3, queue_pairs=16) == {
        "NCCL_IB_TC": 106,
        "NCCL_IB_GID_INDEX": 3,
        "NCCL_IB_QPS_PER_CONNECTION": 16,
    }


def test_numbers_may_be_text_and_default_values_are_left_to_nccl():
    assert of(rdma_class="", fifo_class=None, gid_index="-1", queue_pairs="0") == {"NCCL_IB_TC": 106}
    assert of(gid_index="0", queue_pairs="1") == {
        "NCCL_IB_TC": 106,
        "NCCL_IB_GID_INDEX": 0,
        "NCCL_IB_QPS_PER_CONNECTION": 1,
    }


def test_the_fifo_traffic_class_is_set_only_if_it_differs():
    assert of(TWO, fifo_class="control") == {"NCCL_IB_TC": 106, "NCCL_IB_FIFO_TC": 129}
    assert of(TWO, rdma_class="control", fifo_class="control") == {"NCCL_IB_TC": 129}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"rdma_class": "storage"}, "there is no class 'storage'; valid names: roce"),
        ({"fifo_class": "control"}, "there is no class 'control'"),
        ({"gid_index": 256}, "NCCL_IB_GID_INDEX 256 is not a whole number from -1 to 255"),
        ({"gid_index": True}, "NCCL_IB_GID_INDEX True is not"),
        ({"queue_pairs": "many"}, "NCCL_IB_QPS_PER_CONNECTION 'many' is not"),
        ({"queue_pairs": -1}, "NCCL_IB_QPS_PER_CONNECTION -1 is not a whole number from 0 to 128"),
        ({"gid": 3}, "unknown choices gid; use rdma_class, fifo_class, gid_index, queue_pairs"),
    ],
)
def test_invalid_choices_are_refused(variables, message):
    with pytest.raises(FabricError, match=message):
        of(**variables)


@pytest.mark.parametrize(
    ("setting", "minimum", "maximum", "name"),
    [("gid_index", -1, 255, "NCCL_IB_GID_INDEX"), ("queue_pairs", 0, 128, "NCCL_IB_QPS_PER_CONNECTION")],
)
def test_numbers_are_accepted_up_to_their_limits(setting, minimum, maximum, name):
    for number in (minimum, maximum, str(maximum)):
        assert getattr(nccl_conf.read_choices({setting: number}), setting) == int(number)
    for number in (minimum - 1, maximum + 1, str(maximum + 1), 1.5, "00001", "1\n", None):
        with raises(FabricError, "/etc/nccl.conf", name, repr(number), minimum, maximum):
            nccl_conf.read_choices({setting: number})


def test_choices_that_are_left_out_are_left_to_nccl():
    assert nccl_conf.read_choices({}) == nccl_conf.Choices("", "", -1, 0)
    assert nccl_conf.read_choices({"rdma_class": "a", "fifo_class": "b", "gid_index": "0010"}) == nccl_conf.Choices(
        "a", "b", 10, 0
    )


def test_equal_settings_are_merged_and_conflicting_settings_are_refused():
    assert nccl_conf.merged({"NCCL_IB_TC": "106", "NCCL_DEBUG": "WARN"}, {"NCCL_IB_TC": 106}) == {
        "NCCL_DEBUG": "WARN",
        "NCCL_IB_TC": 106,
    }
    with raises(FabricError, "NCCL_IB_TC", "104", "106"):
        nccl_conf.merged({"NCCL_IB_TC": 104}, {"NCCL_IB_TC": 106})


def test_merged_settings_are_sorted_by_name():
    assert list(nccl_conf.merged({"NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "WARN"}, {"NCCL_IB_TC": 106})) == [
        "NCCL_DEBUG",
        "NCCL_IB_TC",
        "NCCL_SOCKET_IFNAME",
    ]


def test_the_file_says_who_wrote_it_and_ends_with_a_line_end():
    assert nccl_conf.text({"NCCL_IB_TC": 106}) == (
        "# Written by sailloft.fleet; changes here are lost.\nNCCL_IB_TC=106\n"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"LD_PRELOAD": "x"}, "LD_PRELOAD is not a setting of NCCL; its settings begin with NCCL_"),
        ({"NCCL_debug": "x"}, "NCCL_debug is not a setting of NCCL; its settings begin with NCCL_"),
        ({"NCCL_DEBUG": "a\rb"}, "the value of NCCL_DEBUG is not one line; give one line"),
        ({"NCCL_DEBUG": ""}, "the value of NCCL_DEBUG is not one line; give one line"),
    ],
)
def test_invalid_settings_are_named(settings, message):
    with raises(FabricError, "/etc/nccl.conf", message):
        nccl_conf.text(settings)


def test_the_file_has_sorted_settings_and_invalid_settings_are_refused():
    assert nccl_conf.text({"NCCL_IB_TC": 106, "NCCL_DEBUG": "WARN"}).splitlines()[1:] == [
        "NCCL_DEBUG=WARN",
        "NCCL_IB_TC=106",
    ]
    for settings in ({"LD_PRELOAD": "x"}, {"NCCL_DEBUG": "a\nb"}, {"NCCL_DEBUG": ""}, {"NCCL_IB_TC\nX": 1}):
        with pytest.raises(FabricError):
            nccl_conf.text(settings)
