# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Buffers of NICs: the driver's own, or for the cable."""

from __future__ import annotations

import pytest
from nic_policy import bring

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import buffers
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError

# Buffers


def test_xoff_bytes_match_the_formula_of_the_driver():
    # 400 Gbit/s, 5 m, MTU 9216: (301 + 2.16 * 5) * 400 + 2.72 * 9216; the driver truncates fractions.
    assert buffers.xoff_bytes(400, 5, 9216) == (301 + 10) * 400 + 25067
    # The driver computes with at least 40 Gbit/s.
    assert buffers.xoff_bytes(10, 5, 9216) == buffers.xoff_bytes(40, 5, 9216)


def test_buffers_are_left_to_the_driver_if_no_cable_is_given(host):
    system = host()
    bring(system, {"mlx5_0": {"speed_gbit_s": 400}})
    assert system.dcb["ens1np0"].buffer["prio_buffer"] == [0] * 8


def test_each_lossless_priority_gets_a_buffer_and_other_buffers_are_kept(host):
    system = host()
    bring(system)
    need = buffers.lossless_bytes(400, 5, 9000)
    assert need % 4096 == 0
    assert need > buffers.xoff_bytes(400, 5, 9000) + 9216
    assert system.dcb["ens1np0"].buffer["buffer_size"] == [262016, need, 0, 0, 0, 0, 0, 0]
    assert system.dcb["ens1np0"].pfc["delay"] == 5


def test_other_buffers_are_reduced_if_the_port_is_full(host):
    system = host()
    system.dcb["ens1np0"].buffer["total_size"] = 262016
    bring(system)
    sizes = system.dcb["ens1np0"].buffer["buffer_size"]
    assert sum(sizes) <= 262016
    assert sizes[0] == (262016 - sizes[1]) // 4096 * 4096
    assert not bring(system).changed


def test_a_port_with_too_small_a_buffer_is_refused(host):
    system = host()
    system.dcb["ens1np0"].buffer["total_size"] = 160000
    with pytest.raises(HostError, match=r"400.*Gbit/s.*5"):
        bring(system)
    assert system.effects == []
