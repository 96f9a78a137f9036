# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Oversubscription, rails, and ports of a NIC."""

from __future__ import annotations

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.fabric import check_fabric


def found(site):
    return [finding for promise in site.blueprint.promises for finding in check_fabric(site, promise)]


def test_the_declarations_of_the_examples_hold():
    assert found(sites.site()) == []
    assert found(sites.example("vela")) == []
    assert found(sites.example("blue_vela")) == []


def test_oversubscription_beyond_the_declared_ratio_is_found():
    (finding,) = found(sites.site(links__uplink__each=1))
    assert finding.offender == "leaf[1-2]-[1-2]"
    assert finding.message == "400 Gbit/s below and 200 above are 2.00 to 1, but fabric declares 1"


def test_ports_of_a_nic_at_the_same_switch_are_found():
    ports = {"down": {"names": "Ethernet[0:31]", "speed_gbit_s": 100}, "up": {"names": "Up[0:7]", "speed_gbit_s": 100}}
    (finding, *_more) = found(
        sites.site(devices__leaf__count=1, models__leaf__ports=ports, checks__fabric={"nic_ports_apart": True})
    )
    assert finding.rule == "ports of a NIC at different switches"
    assert finding.offender == "gpu[01-04]"


def test_a_switch_without_rail_alignment_is_found():
    (one, other) = found(sites.site(checks__fabric={"rail_aligned": True}))
    assert (one.offender, other.offender) == ("leaf[1-2]-1", "leaf[1-2]-2")
    assert "connected to the ports mlx5_0, mlx5_2 of its nodes" in one.message
