# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Oversubscription, NIC ports and rails."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.fabric import check_fabric, nic_of

# Ports for other counts of switches.
PORTS = {
    "models__leaf__ports__down__names": "Ethernet[0:31]",
    "models__leaf__ports__up__names": "Up[0:31]",
    "models__spine__ports__down__names": "Ethernet[0:99]",
}
# A second fabric, in which nothing is declared: each server has two ports at one spine.
STORAGE = {
    "models__server__ports__store": {"names": "mlx5_[8:9]", "speed_gbit_s": 25, "nic_ports": 2},
    "models__store": {"watts": 100, "ports": {"down": {"names": "s[1:16]", "speed_gbit_s": 25}}},
    "devices__store": {"model": "store", "rack": "network", "unit": 9, "name": "store"},
    "links__storage": {"from": "node", "ports": "store", "to": "store", "to_ports": "down", "medium": "aoc"},
}


def found(site):
    return [str(finding) for promise in site.blueprint.promises for finding in check_fabric(site, promise)]


def test_the_declarations_of_the_examples_hold():
    assert found(sites.site()) == []
    assert found(sites.example("vela")) == []
    assert found(sites.example("blue_vela")) == []


@pytest.mark.parametrize(
    ("each", "declared", "ratio"),
    # A leaf has four links to servers, and two times "each" to spines.
    [(1, 1.99, "2.00"), (1, 2, None), (2, 1, None), (2, 0.99, "1.00"), (4, 0.5, None), (4, 0.49, "0.50")],
)
def test_oversubscription_beyond_the_declared_ratio_is_found(each, declared, ratio):
    site = sites.site(**PORTS, links__uplink__each=each, checks__fabric={"oversubscription": declared})
    assert found(site) == (
        [
            f"leaf[1-2]-[1-2]: 400 Gbit/s below and {200 * each} above are {ratio} to 1, but fabric declares "
            f"{declared} (rule: oversubscription)"
        ]
        if ratio
        else []
    )


def test_oversubscription_is_reported_by_the_bandwidths_of_the_switches():
    text = sites.TEXT.replace("count: 2\n    name", "count: 2\n    total: 3\n    name").replace("each: 2", "each: 1")
    text = text.replace("survives: [nic, leaf, spine], ", "").replace("oversubscription: 1", "oversubscription: 0.5")
    assert found(sites.from_text(text, "site.yml")) == [
        "site.yml:42: leaf1-[1-2]: 400 Gbit/s below and 200 above are 2.00 to 1, but fabric declares 0.5 "
        "(rule: oversubscription)",
        "site.yml:42: leaf2-[1-2]: 200 Gbit/s below and 200 above are 1.00 to 1, but fabric declares 0.5 "
        "(rule: oversubscription)",
    ]


def test_links_between_switches_of_one_kind_and_of_other_fabrics_do_not_count_as_bandwidth():
    peer = {"from": "leaf", "ports": "up", "to": "leaf", "to_ports": "up", "each": 8, "medium": "dac"}
    declared = {"oversubscription": 1}
    assert found(sites.site(**PORTS, links__peer={**peer, "fabric": "fabric"}, checks__fabric=declared)) == []
    assert found(sites.site(**STORAGE, checks__fabric=declared)) == []


@pytest.mark.parametrize(("port", "nic"), [("mlx5_0", 0), ("mlx5_1", 0), ("mlx5_2", 1), ("mlx5_3", 1)])
def test_consecutive_ports_are_one_nic(port, nic):
    assert nic_of(sites.site().devices["gpu01"], "nic", port) == ("nic", nic)


def test_ports_of_a_nic_at_the_same_switch_are_found():
    apart = {"devices__leaf__count": 1, "checks__fabric": {"nic_ports_apart": True}}
    assert found(sites.site(**PORTS, **apart)) == [
        f"gpu[01-04]: two ports of node NIC {nic} are connected to the same switch "
        "(rule: ports of a NIC at different switches)"
        for nic in (0, 1)
    ]
    one = {"blocks__rack__count": 1, "devices__node__total": 1, "models__server__ports__nic__names": "mlx5_[0:1]"}
    interfaces = {"models__server__ports__nic__interfaces": None, "networks__rail__count": 2}
    assert [line.partition(":")[0] for line in found(sites.site(**PORTS, **apart, **one, **interfaces))] == ["gpu01"]
    # Cards with one port have none to keep apart.
    assert found(sites.site(**PORTS, **apart, models__server__ports__nic__nic_ports=1)) == []


def test_the_ports_of_a_nic_are_compared_in_their_own_fabric_only():
    apart = {"nic_ports_apart": True}
    assert found(sites.site(**STORAGE, checks__fabric=apart)) == []
    assert found(sites.site(**STORAGE, checks__fabric=None, checks__storage=apart)) == [
        "gpu[01-04]: two ports of node NIC 0 are connected to the same switch "
        "(rule: ports of a NIC at different switches)"
    ]


def test_the_ports_of_switches_need_not_be_apart():
    # Two consecutive ports of a leaf are a "card" here, and both go to one spine.
    site = sites.site(models__leaf__ports__up__nic_ports=2, checks__fabric={"nic_ports_apart": True})
    assert found(site) == []


def test_a_switch_without_rail_alignment_is_found():
    assert found(sites.site(checks__fabric={"rail_aligned": True})) == [
        f"leaf[1-2]-{leaf}: a leaf of fabric must be one rail, but is connected to the ports {ports} of its nodes "
        "(rule: rail alignment)"
        for leaf, ports in ((1, "mlx5_0, mlx5_2"), (2, "mlx5_1, mlx5_3"))
    ]


def test_a_leaf_for_each_port_is_rail_aligned():
    assert (
        found(
            sites.site(**PORTS, devices__leaf__count=4, devices__leaf__unit=20, checks__fabric={"rail_aligned": True})
        )
        == []
    )
    assert found(
        sites.site(**STORAGE, checks__fabric={"oversubscription": 1}, checks__storage={"rail_aligned": True})
    ) == [
        "store: a leaf of storage must be one rail, but is connected to the ports mlx5_8, mlx5_9 of its nodes "
        "(rule: rail alignment)"
    ]


@pytest.mark.parametrize(("used_elsewhere", "mixed"), [(False, 0), (True, 4)])
def test_a_rail_is_the_place_of_a_port_where_models_name_their_ports_differently(used_elsewhere, mixed):
    server = sites.DATA["models"]["server"]
    nic = {"names": "bnxt_re[0:5]" if used_elsewhere else "bnxt_re[0:3]", "speed_gbit_s": 100}
    link = {"from": "other", "ports": "nic", "each": 1, "medium": "aoc"}
    spines = {"links__storage": {**link, "to": "spine", "to_ports": "down"}} if used_elsewhere else {}
    site = sites.site(
        **PORTS,
        models__other={**server, "ports": {"nic": nic}},
        devices__other={"model": "other", "per": "rack", "name": "mi{n:02}", "unit": 20},
        devices__leaf__count=4,
        devices__leaf__unit=38,
        **spines,
        links__other={**link, "to": "leaf", "to_ports": "down", "fabric": "fabric"},
        checks__fabric={"rail_aligned": True},
    )
    assert [line.count("bnxt_re") for line in found(site)] == [1] * mixed
