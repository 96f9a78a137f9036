# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of subnet managers follow from blueprint, settings and GUIDs; what is not known is said."""

from __future__ import annotations

import copy

import ib_sites
import pytest
import sites
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan

SETTINGS = {
    "managers": ["node-1 mlx5_0", "node-3 mlx5_0"],
    "partitions": {
        "tenant_a": {
            "pkey": "0x0001",
            "members": {"node-1": "full", "node-2": "limited"},
            "ipoib": True,
            "index0": True,
        },
        "tenant_b": {"pkey": 2, "members": {"gpu_nodes": "full"}, "ipoib": True, "mtu": 4096, "service_level": 1},
    },
    "service_levels": {0: {"lane": 0, "weight": 32}, 1: {"lane": 1, "high": True}},
}


def planned(settings=None, guids=None, **others):
    site, every = ib_sites.small()
    return plan(
        site, "compute", SETTINGS if settings is None else settings, every if guids is None else guids, **others
    )


def options(text):
    """Return the settings of an opensm.conf."""
    return dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def changed_lines(one, other):
    return [(a, b) for a, b in zip(one.splitlines(), other.splitlines()) if a != b]


def test_blue_velas_fabrics_are_planned_apart():
    site = sites.example("blue_vela")
    compute, storage = (plan(site, name, {}, {}) for name in ("compute", "storage"))
    assert (len(compute.fabric.hcas), len(compute.fabric.switches), len(compute.fabric.uplinks)) == (4096, 320, 8192)
    assert (len(storage.fabric.hcas), len(storage.fabric.switches)) == (1024, 40)
    assert not {*compute.fabric.hcas} & {*storage.fabric.hcas}
    assert len(compute.fabric.roots) == 64
    assert {len({hca.name for hca in hcas}) for hcas in compute.fabric.leaves.values()} == {1}


def test_managers_differ_in_guid_and_priority_only():
    texts = planned().files
    master, standby = (options(texts[f"opensm-{name}.conf"]) for name in ("node-1", "node-3"))
    differing = {name for name in master if master[name] != standby[name]}
    assert differing == {"guid", "sm_priority"}
    assert int(master["sm_priority"]) > int(standby["sm_priority"])
    assert master["routing_engine"] == "ftree,updn"
    assert master["root_guid_file"] == "/etc/opensm/root_guids.conf"


def test_service_levels_give_lanes_and_arbitration():
    master = options(planned().files["opensm-node-1.conf"])
    assert (master["qos"], master["max_op_vls"], master["qos_max_vls"]) == ("TRUE", "2", "2")
    assert master["qos_sl2vl"] == ",".join(["0", "1", *["0"] * 14])
    assert (master["qos_vlarb_high"], master["qos_vlarb_low"]) == ("0:0,1:64", "0:32,1:0")
    assert "qos" not in options(planned({}).files["opensm.conf"])


def test_the_default_partition_always_has_a_rule():
    assert "Default=0x7fff, ipoib : ALL=full, ALL_SWITCHES=full, SELF=full ;\n" in planned({}).files["partitions.conf"]
    text = planned().files["partitions.conf"]
    assert "Default=0x7fff, ipoib, mtu=5 : ALL=limited, ALL_SWITCHES=full, SELF=full ;\n" in text
    managers = [line for line in text.splitlines() if line.startswith("Default=0x7fff :")]
    assert [line.split("# ")[1] for line in managers] == SETTINGS["managers"]


def test_a_changed_hca_is_one_changed_line_of_each_file():
    _site, guids = ib_sites.small()
    other = copy.deepcopy(guids)
    other["node-4"]["mlx5_1"] = "0x946dae0300f1b2c4"
    settings = {**SETTINGS, "subnet_manager": "nvidia"}
    one, two = planned(settings, guids).files, planned(settings, other).files
    changed = {name: changed_lines(one[name], two[name]) for name in one if one[name] != two[name]}
    assert {name: len(lines) for name, lines in changed.items()} == {"partitions.conf": 1, "topoconfig.conf": 1}
    assert changed["partitions.conf"][0][1] == "tenant_b=0x0002, sl=1 : 0x946dae0300f1b2c4=full ; # node-4 mlx5_1"


def test_topoconfig_has_links_of_switches_from_both_ends_and_hcas_once():
    lines = planned({"subnet_manager": "nvidia"}).files["topoconfig.conf"].splitlines()
    assert len(lines) == 2 * 8 + 8
    assert "topoconfig.conf" not in planned({}).files
    _site, guids = ib_sites.small()
    assert f"{guids['leaf-1-2']},1,{guids['node-1']['mlx5_1']},1,Any,Active" in lines
    for link in (f"{guids['leaf-2-1']},4,{guids['spine-2']},3", f"{guids['spine-2']},3,{guids['leaf-2-1']},4"):
        assert f"{link},Any,Active" in lines


def test_what_is_not_known_is_said_and_not_guessed():
    _site, guids = ib_sites.small()
    del guids["spine-2"], guids["node-2"]
    result = planned({**SETTINGS, "subnet_manager": "nvidia"}, guids)
    assert [line.split(":")[0] for line in result.guids.unknown(result.fabric)] == [
        "spine-2",
        "mlx5_0 of node-2",
        "mlx5_1 of node-2",
    ]
    # ftree would take the known roots for all roots.
    assert "root_guid_file" not in options(result.files["opensm-node-1.conf"])
    text = result.files["partitions.conf"]
    assert "# tenant_a: node-2 mlx5_1=limited: the GUID is not known" in text.splitlines()
    assert len(result.files["topoconfig.conf"].splitlines()) == 2 * 4 + 6
    assert len(result.files["node_names"].splitlines()) == 5


FOUND = """\
CA    14  1 0x{hca} 4x SDR - SW     9  2 0x{leaf} ( 'node-4 mlx5_1' - 'MF0;leaf-2-2:QM9700/U1' )
SW     9  8 0x0000000000200005 4x SDR                                    'leaf-2-2'
"""


def found(hca="946dae0300f1b2c4", leaf="a088c20300aabbcc"):
    return FOUND.format(hca=hca, leaf=leaf)


def test_guids_come_from_what_was_found():
    result = planned({}, {}, discovered=[found()])
    assert result.guids.known == {("node-4", "mlx5_1"): "0x946dae0300f1b2c4", "leaf-2-2": "0xa088c20300aabbcc"}
    assert result.guids.conflicts == []


def test_the_inventorys_guid_is_taken_and_another_one_is_said():
    guids = {"leaf-2-2": 0xA088C20300AABB00, "node-4": {"mlx5_1": "946d:ae03:00f1:b2c4"}}
    result = planned({}, guids, discovered=[found()])
    assert result.guids.known["leaf-2-2"] == "0xa088c20300aabb00"
    (line,) = result.guids.conflicts
    assert line.startswith("leaf-2-2: 0xa088c20300aabbcc was found")
    twice = planned({}, {}, discovered=[found() + found(hca="946dae0300f1b2c5")])
    assert len(twice.guids.conflicts) == 1
    assert ("node-4", "mlx5_1") not in twice.guids.known


MEMBERS = {"gpu_nodes": "full"}


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"partitions": {"a": {"pkey": 0x8001, "members": MEMBERS}}}, ("partitions.a: pkey", "0x0001")),
        ({"partitions": {"a": {"pkey": "0x7fff", "members": MEMBERS}}}, ("partitions.a: pkey",)),
        ({"partitions": {"default": {"pkey": 1, "members": MEMBERS}}}, ("partitions.default",)),
        ({"partitions": {"a": {"pkey": 1}}}, ("partitions.a", "members")),
        ({"partitions": {"a": {"pkey": 1, "members": {"nobody": "full"}}}}, ("'nobody'",)),
        ({"partitions": {"a": {"pkey": 1, "members": {"spine": "full"}}}}, ("spine", "compute")),
        ({"partitions": {"a": {"pkey": 1, "members": {"node-1": "both"}}}}, ("node-1", "'both'")),
        (
            {"partitions": {"a": {"pkey": 1, "members": {"gpu_nodes": "full", "node-2": "limited"}}}},
            ("node-2", "gpu_nodes"),
        ),
        ({"partitions": {"a": {"pkey": 1, "members": MEMBERS}, "b": {"pkey": "0x1", "members": MEMBERS}}}, ("a has",)),
        (
            {
                "partitions": {
                    name: {"pkey": pkey, "members": MEMBERS, "index0": True} for name, pkey in (("a", 1), ("b", 2))
                }
            },
            ("index0", "node-1 mlx5_0"),
        ),
        ({"partitions": {"a": {"pkey": 1, "members": MEMBERS, "service_level": 3}}}, ("service_level", "3")),
        ({"partitions": {"a;b": {"pkey": 1, "members": MEMBERS}}}, ("'a;b'",)),
        ({"managers": ["node-1 mlx5_7"]}, ("managers", "node-1 mlx5_7")),
        ({"managers": ["node-1 mlx5_0", "node-1 mlx5_1"]}, ("managers", "one host")),
        ({"routing": ["dfsssp"]}, ("dfsssp", "service_levels")),
        ({"routing": ["ar_updn"]}, ("routing", "ar_updn")),
        ({"service_levels": {1: {"lane": 1}}}, ("service_levels", "0")),
        ({"service_levels": {0: {"lane": 0}, 16: {"lane": 1}}}, ("service_levels", "16")),
        ({"service_levels": {0: {"lane": 0}, 1: {"lane": 0, "weight": 3}}}, ("service_levels", "lane 0")),
        ({"options": {"Sweep": 3}}, ("options", "Sweep")),
        ({"options": {"sweep_intervall": 3}}, ("options", "sweep_intervall", "sweep_interval?")),
        ({"options": {"high_ber": True}}, ("options", "high_ber")),
        ({"options": {"lmc": 1}}, ("lmc", "ftree")),
        ({"options": {"log_file": "/x#y"}}, ("log_file", "'#'")),
        ({"options": {"qos_sl2vl": [1, 2]}}, ("qos_sl2vl", "[1, 2]")),
        ({"options": {"guid": "0x1"}}, ("guid", "managers")),
        ({"options": {"routing_engine": "minhop"}}, ("routing_engine", "routing")),
        ({"options": {"partition_config_file": "/x"}}, ("partition_config_file", "directory")),
        ({"directory": "/etc/x#y"}, ("directory", "'#'")),
        ({"routing": []}, ("routing",)),
        ({"partitions": {"a": {"pkey": 1, "members": MEMBERS, "mtu": 4096}}}, ("mtu", "ipoib")),
        ({"service_levels": {0: {"lane": 0}, "0": {"lane": 1}}}, ("service_levels", "0")),
        ({"partition": {}}, ("partition",)),
    ],
)
def test_settings_are_refused_before_opensm_sees_them(settings, facts):
    with raises(InfinibandError, *facts):
        planned(settings)


@pytest.mark.parametrize(
    ("guids", "facts"),
    [
        ({"leaf-1-1": "1"}, None),
        ({"leaf-1-1": "spine"}, ("leaf-1-1", "'spine'")),
        ({"leaf-1-1": 0}, ("leaf-1-1",)),
        ({"leaf-1-1": "0x1", "node-1": {"mlx5_0": "0x01"}}, ("leaf-1-1", "node-1 mlx5_0")),
        ({"node-1": "0x5"}, ("node-1", "RDMA device")),
        ({"leaf-1-1": {"x": "0x5"}}, ("leaf-1-1", "switch")),
        ({"leaf-1-1": ["0x5"]}, ("leaf-1-1",)),
        # 16 digits without quotes: YAML reads a decimal number.
        ({"leaf-1-1": 5060708090001020}, ("leaf-1-1", "quotes")),
    ],
)
def test_guids_are_checked(guids, facts):
    if facts is None:
        assert planned({}, guids).guids.known == {"leaf-1-1": "0x0000000000000001"}
    else:
        with raises(InfinibandError, *facts):
            planned({}, guids)


def test_groups_of_the_inventory_may_be_members():
    settings = {"partitions": {"a": {"pkey": 1, "members": {"tenant": "full"}}}}
    result = planned(settings, groups={"tenant": ["node-3", "bastion"]})
    assert {hca.host for hca in result.request.partitions[0].members} == {"node-3"}


def test_a_tree_that_ftree_refuses_is_named_before():
    # Storage servers at the spines: HCAs on two ranks.
    site = ib_sites.tree(
        devices__storage={"model": "node", "rack": "network", "name": "storage-{n}", "unit": 30},
        links__storage={
            "from": "storage",
            "ports": "hca",
            "to": "spine",
            "to_ports": "down",
            "medium": "copper",
            "fabric": "compute",
            "infiniband": True,
        },
    )
    with raises(InfinibandError, "ftree", "leaf-1-1 has rank 1", "spine-1 has rank 0"):
        plan(site, "compute", {}, {})
    assert plan(site, "compute", {"routing": ["updn"]}, {}).request.routing == ("updn",)


def test_a_site_without_that_fabric_names_those_it_has():
    with raises(InfinibandError, "storage", "compute"):
        fabric_of(ib_sites.tree(), "storage")


def test_more_managers_than_opensm_has_priorities_are_refused():
    site = sites.example("blue_vela")
    hosts = list(dict.fromkeys(hca.host for hca in fabric_of(site, "compute").hcas))
    names = [f"{host} mlx5_0" for host in hosts]
    texts = plan(site, "compute", {"managers": names[:15]}, {}).files
    assert min(int(options(text)["sm_priority"]) for name, text in texts.items() if name.startswith("opensm-")) >= 0
    with raises(InfinibandError, "managers", "15"):
        plan(site, "compute", {"managers": names[:16]}, {})


def test_two_ports_of_a_switch_with_one_number_are_refused():
    models = copy.deepcopy(ib_sites.TREE["models"])
    models["leaf"]["ports"]["down"]["names"], models["leaf"]["ports"]["up"]["names"] = "d[1:2]", "u[1:2]"
    with raises(InfinibandError, "leaf-1-1 u1", "d1"):
        fabric_of(sites.site(**{**ib_sites.TREE, "models": models}), "compute")


def test_guids_of_devices_that_the_site_does_not_have_are_named():
    (line,) = planned({}, {"leaf-9-9": "0x5", "spine-1": "0x6"}).guids.conflicts
    assert line == Mentions("leaf-9-9")
