# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of neighbours. Those of EOS, NX-OS and Junos have the documented form; no switch was read."""

from __future__ import annotations

import json

import pytest
import yaml
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    READERS,
    infiniband_device,
    read_infiniband,
    read_neighbours,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.modules import cabling_info

# The shortened output of lldpcli 1.0.16 -f json0 show neighbors on a Linux host.
LLDPD = {
    "lldp": [
        {
            "interface": [
                {
                    "name": "e1",
                    "via": "LLDP",
                    "chassis": [{"id": [{"type": "mac", "value": "1a:9e:02:d3:45:e7"}], "name": [{"value": "gpu02"}]}],
                    "port": [{"id": [{"type": "mac", "value": "1a:9e:02:d3:45:e7"}], "descr": [{"value": "e2"}]}],
                },
                {
                    "name": "e3",
                    "chassis": [{"name": [{"value": "leaf1.example.com"}]}],
                    "port": [{"id": [{"type": "local", "value": "Ethernet0"}], "descr": [{"value": "etp1"}]}],
                },
                {"name": "e4", "chassis": [{}], "port": [{"id": [{"type": "ifname", "value": "eth0"}]}]},
            ]
        }
    ]
}
EOS = {"lldpNeighbors": [{"port": "Ethernet1", "neighborDevice": "spine1", "neighborPort": "Ethernet2", "ttl": 120}]}
ROW = {"l_port_id": "Eth1/1", "sys_name": "spine1", "port_id": "Ethernet2", "port_desc": "to leaf1"}
JUNOS = {
    "lldp-neighbors-information": [
        {
            "lldp-neighbor-information": [
                {
                    "lldp-local-port-id": [{"data": "et-0/0/0"}],
                    "lldp-remote-system-name": [{"data": "spine1"}],
                    "lldp-remote-port-id": [{"data": "et-0/0/2"}],
                }
            ]
        }
    ]
}


def read(system, data):
    return {name: tuple(each) for name, each in read_neighbours(system, json.dumps(data)).items()}


def test_neighbours_of_lldpd_are_read():
    for system in ("linux", "sonic", "dell_sonic", "cumulus"):
        assert read(system, LLDPD) == {
            "e1": ("gpu02", ("e2",)),
            "e3": ("leaf1.example.com", ("Ethernet0", "etp1")),
            "e4": ("", ("eth0",)),
        }
    assert read("linux", {"lldp": [{}]}) == {}


def test_neighbours_of_eos_nxos_and_junos_are_read():
    assert read("eos", EOS) == {"Ethernet1": ("spine1", ("Ethernet2",))}
    for rows in (ROW, [ROW]):
        table = {"TABLE_nbor_detail": {"ROW_nbor_detail": rows}}
        assert read("nxos", table) == {"Ethernet1/1": ("spine1", ("Ethernet2", "to leaf1"))}
    assert read("junos", JUNOS) == {"et-0/0/0": ("spine1", ("et-0/0/2",))}


def test_the_module_accepts_the_systems_with_a_reader():
    options = yaml.safe_load(cabling_info.DOCUMENTATION)["options"]
    assert options["system"]["choices"] == sorted(READERS)
    assert set(READERS) <= set(SYSTEMS)


def lldpd_row(chassis, port):
    return {"lldp": [{"interface": [{"name": "e1", "chassis": chassis, "port": port}]}]}


NAME = [{"name": [{"value": "leaf1"}]}]


@pytest.mark.parametrize(
    ("chassis", "port", "neighbour"),
    [
        (NAME, [{"id": [{"type": "ifname", "value": "p1"}], "descr": [{"value": "to a"}]}], ("leaf1", ("p1", "to a"))),
        (NAME, [{"id": [{"type": "mac", "value": "1a:00"}], "descr": [{"value": "to a"}]}], ("leaf1", ("to a",))),
        (NAME, [{"id": [{"type": "mac", "value": "1a:00"}]}], ("leaf1", ())),
        (NAME, [{"id": [{"type": "ifname"}]}], ("leaf1", ())),
        (NAME, [{}], ("leaf1", ())),
        (NAME, None, ("leaf1", ())),
        (NAME, ["p1"], ("leaf1", ())),
        # Other versions write a single element without a list.
        ({"name": {"value": "leaf1"}}, {"id": {"type": "local", "value": 7}}, ("leaf1", ("7",))),
        ([], [{"id": [{"type": "local", "value": "p1"}]}], ("", ("p1",))),
    ],
)
def test_a_neighbour_of_lldpd_has_the_names_that_it_reports(chassis, port, neighbour):
    assert read("linux", lldpd_row(chassis, port)) == {"e1": neighbour}


@pytest.mark.parametrize(
    ("row", "neighbours"),
    [
        (ROW, {"Ethernet1/1": ("spine1", ("Ethernet2", "to leaf1"))}),
        ({**ROW, "l_port_id": "Ethernet1/2"}, {"Ethernet1/2": ("spine1", ("Ethernet2", "to leaf1"))}),
        ({**ROW, "l_port_id": "mgmt0"}, {"mgmt0": ("spine1", ("Ethernet2", "to leaf1"))}),
        ({"l_port_id": "Eth1/10/1", "port_id": "", "port_desc": "x"}, {"Ethernet1/10/1": ("", ("x",))}),
        ({"l_port_id": "Eth1/1"}, {"Ethernet1/1": ("", ())}),
        ([], {}),
        ("", {}),
        (None, {}),
    ],
)
def test_neighbours_of_nxos_have_the_whole_names_of_ports(row, neighbours):
    assert read("nxos", {"TABLE_nbor_detail": {"ROW_nbor_detail": row}}) == neighbours


def test_a_table_without_neighbours_is_empty():
    for system, table in {"nxos": {}, "eos": {"lldpNeighbors": []}, "junos": {}, "linux": {"lldp": []}}.items():
        assert read(system, table) == {}
    assert read("nxos", {"TABLE_nbor_detail": None}) == {}


def test_a_neighbour_of_junos_may_have_other_fields():
    row = {
        "lldp-local-interface": [{"data": "et-0/0/1"}],
        "lldp-remote-port-description": [{"data": "to leaf1"}, {"data": "more"}],
    }
    other = {"lldp-local-port-id": {"data": "et-0/0/2"}, "lldp-remote-system-name": ["text"], "lldp-remote-port-id": []}
    table = {"lldp-neighbors-information": [{"lldp-neighbor-information": [row, other]}]}
    assert read("junos", table) == {"et-0/0/1": ("", ("to leaf1",)), "et-0/0/2": ("", ())}


NOT_JSON = "not JSON: Expecting value: line 1 column 1 (char 0); provide the complete output of the command"
NO_TABLE = "'list' object has no attribute 'get'"


@pytest.mark.parametrize("system", READERS)
def test_output_that_is_not_a_neighbour_table_is_refused(system):
    what = "lldpcli's output" if READERS[system] is READERS["linux"] else "the table"
    for text in ("", "no such command"):
        with pytest.raises(SiteError) as refused:
            read_neighbours(system, text)
        assert str(refused.value) == f"neighbours: {what} is {NOT_JSON}"
    with pytest.raises(SiteError) as refused:
        read_neighbours(system, "[]")
    assert str(refused.value) == Mentions(system, NO_TABLE)


@pytest.mark.parametrize(("system", "field"), [("linux", "name"), ("eos", "port"), ("nxos", "l_port_id")])
def test_rows_without_expected_fields_are_refused(system, field):
    table = {"lldpNeighbors": [{}], "lldp": [{"interface": [{}]}], "TABLE_nbor_detail": {"ROW_nbor_detail": [{}]}}
    with pytest.raises(SiteError) as refused:
        read(system, table)
    assert str(refused.value) == Mentions(system, field)


# The output of ibnetdiscover 44.0 -p for a subnet in ibsim.
SUBNET = """\
SW     0  4 0x0000000000200001 4x SDR                                    'spine-1'
SW     0  1 0x0000000000200001 4x NDR - SW     0  3 0x0000000000200000 ( 'spine-1' - 'leaf-1' )
CA     0  1 0x0000000000100003 4x SDR - SW     0  2 0x0000000000200000 ( 'node-2 mlx5_0' - 'leaf-1' )
SW     0  3 0x0000000000200000 4x NDR - SW     0  1 0x0000000000200001 ( 'leaf-1' - 'spine-1' )
SW     0  2 0x0000000000200000 4x SDR - CA     0  1 0x0000000000100003 ( 'leaf-1' - 'node-2 mlx5_0' )
"""


def test_infiniband_links_are_read():
    assert [tuple(link) for link in read_infiniband(SUBNET)] == [
        (("leaf-1", 2), ("node-2 mlx5_0", 1), 10),
        (("leaf-1", 3), ("spine-1", 1), 400),
    ]
    assert infiniband_device("node-2 mlx5_0") == ("node-2", "mlx5_0")
    assert infiniband_device("MF0;leaf-01-1:MQM9700/U1") == ("leaf-01-1", "")
    assert infiniband_device("leaf-1") == ("leaf-1", "")


@pytest.mark.parametrize(
    ("width", "rate", "gbit_s"),
    [
        (4, "SDR", 10),
        (4, "DDR", 20),
        (4, "QDR", 40),
        (4, "FDR10", 40),
        (4, "FDR", 56),
        (4, "EDR", 100),
        (4, "HDR", 200),
        (4, "NDR", 400),
        (4, "XDR", 800),
        (2, "HDR", 100),
        (4, "GDR", 0),
    ],
)
def test_the_speed_of_an_infiniband_link_is_computed_from_width_and_rate(width, rate, gbit_s):
    line = f"SW     0  1 0x0000000000200001 {width}x {rate} - SW     0  3 0x0000000000200000 ( 'a' - 'b' )"
    assert [link.speed_gbit_s for link in read_infiniband(line)] == [gbit_s]
