# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric is proved from texts; what was not read, or is not as planned, is named with its cause."""

from __future__ import annotations

import copy
import re

import ib_sites
import made_up_dumps
import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove, wanted_pkeys
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings

SITE, GUIDS = ib_sites.small()
SETTINGS = {
    "managers": ["node-1 mlx5_0", "node-3 mlx5_0"],
    "partitions": {"a": {"pkey": 1, "members": {"node-1": "full", "node-2": "limited"}}},
}
PLAN = plan(SITE, "compute", SETTINGS, GUIDS)
LOG = "Nov 28 05:02:06 911472 [20F6D740] 0x02 -> osm_ucast_mgr_process: ftree tables configured on all switches\n"
REFUSED = (
    "Nov 28 05:42:46 697640 [A47EA6C0] 0x01 -> fabric_mark_leaf_switches: ERR AB26: CN port 0x100000 is connected to "
    "switch 0x200000 with rank 0\n"
    "Nov 28 05:42:46 697656 [A47EA6C0] 0x02 -> Fabric topology is not a fat-tree\n"
)
SMS = "SMInfoRecord dump:\n\t\tGUID..................{}\n\t\tSMState...............{}\n"


def pkeys_text(pkeys):
    return f"   0: {' '.join(f'0x{pkey:04x}' for pkey in sorted(pkeys))} 0x0000\n64 pkeys capacity for this port\n"


def found(cables):
    return "".join(
        f"CA  1  1 {GUIDS[hca.host][hca.name]} 4x SDR - SW  2 {port.number} {GUIDS[port.switch]} "
        f"( '{hca}' - '{port.switch}' )\n"
        for hca, port in cables.hcas.items()
    ) + "".join(
        f"SW  1 {low.number} {GUIDS[low.switch]} 4x SDR - SW  2 {up.number} {GUIDS[up.switch]} "
        f"( '{low.switch}' - '{up.switch}' )\n"
        for low, up in cables.uplinks
    )


def managers(*states):
    return "".join(SMS.format(PLAN.guids.known[hca], state) for hca, state in zip(PLAN.request.managers, states))


def readings(**others):
    dumps = made_up_dumps.Dumps(PLAN.fabric)
    held = {
        "found": found(PLAN.fabric),
        "links": dumps.links_text(),
        "forwarding": dumps.forwarding_text(),
        "order": dumps.order_text(),
        "log": LOG,
        "pkeys": {str(hca): pkeys_text(wanted_pkeys(PLAN, hca)) for hca in PLAN.fabric.hcas},
        "managers": managers(3, 2),
        "files": {"node-1": PLAN.files, "node-3": PLAN.files},
    }
    return SubnetReadings(**{**held, **others})


def unproved(**others):
    return {claim.claim: claim for claim in prove(PLAN, readings(**others)).claims if claim.holds is not True}


def test_what_is_as_planned_holds():
    assert unproved() == {}


def test_nothing_that_was_not_read_counts_as_held():
    claims = unproved(log="", pkeys={}, managers="", files={}, found="")
    assert claims["opensm: the routing engine that is in use"].holds is False
    names = {text.split(":")[0] for text, claim in claims.items() if claim.holds is False}
    assert names >= {"node-1", "node-2", "node-3", "node-4", "subnet managers", "cables", "GUIDs"}
    for unread, layer in (({"found": ""}, "cables"), ({"links": "", "forwarding": "", "log": ""}, "routes")):
        claims = prove(PLAN, readings(**unread)).claims
        assert {(claim.holds, claim.seen) for claim in claims if claim.layer == layer} == {(False, None)}


def test_one_hca_that_was_not_read_is_named():
    pkeys = {name: text for name, text in readings().pkeys.items() if name != "node-2 mlx5_1"}
    claim = unproved(pkeys=pkeys)["node-2: P_Keys of its HCAs"]
    assert claim.reason == "mlx5_1: not read"


def test_a_log_without_an_engine_and_a_refusal_do_not_hold():
    claim = unproved(log="nothing\n")["opensm: the routing engine that is in use"]
    assert (claim.holds, claim.seen) == (False, None)
    claim = unproved(log=REFUSED + LOG.replace("ftree", "updn"))["opensm: the routing engine that is in use"]
    assert (claim.seen, claim.reason) == ("updn", Mentions("node-1 mlx5_0", "leaf-1-1", "rank 0"))
    # A refusal before the last sweep is over.
    assert unproved(log=REFUSED + LOG) == {}


def test_a_node_that_is_off_is_one_fault():
    fabric = ib_sites.fabric_of(SITE, "compute")
    fabric.hcas = {hca: port for hca, port in fabric.hcas.items() if hca.host != "node-4"}
    claims = unproved(found=found(fabric))
    assert [claim.claim for claim in claims.values() if claim.layer == "cables"] == ["node-4: it is connected"]


def test_members_are_full_or_limited_as_planned():
    wanted = {hca.host: wanted_pkeys(PLAN, hca) for hca in PLAN.fabric.hcas if hca.name == "mlx5_0"}
    assert wanted == {
        "node-1": {0xFFFF, 0x8001},
        "node-2": {0x7FFF, 0x0001},
        "node-3": {0xFFFF},
        "node-4": {0x7FFF},
    }


def test_an_unknown_guid_is_the_cause_of_a_missing_membership():
    guids = {**GUIDS, "node-2": {"mlx5_0": GUIDS["node-2"]["mlx5_0"]}}
    result = plan(SITE, "compute", SETTINGS, guids)
    held = readings(files={"node-1": result.files, "node-3": result.files})
    held.pkeys["node-2 mlx5_1"] = pkeys_text({0x7FFF})
    (claim,) = [claim for claim in prove(result, held).claims if claim.holds is False]
    assert claim.reason == Mentions("mlx5_1", "GUID", "partitions.conf")


@pytest.mark.parametrize("text", ["ibwarn: no such port", "", None])
def test_other_text_than_pkeys_counts_as_not_read(text):
    claim = unproved(pkeys={**readings().pkeys, "node-2 mlx5_1": text})["node-2: P_Keys of its HCAs"]
    assert (claim.holds, claim.reason) == (False, Mentions("mlx5_1"))


def test_files_that_were_read_without_their_last_newline_are_as_planned():
    texts = {name: text.rstrip("\n") for name, text in PLAN.files.items()}
    assert unproved(files={"node-1": texts, "node-3": texts}) == {}


def test_aggregation_nodes_of_switches_are_no_hcas():
    """A Quantum switch has a port to its own aggregation node."""
    name = "Mellanox Technologies Aggregation Node"
    text = links = ""
    for at, switch in enumerate(PLAN.fabric.switches):
        guid = f"0x{0x300000 + at:016x}"
        text += f"CA 9 1 {guid} 4x SDR - SW 2 41 {GUIDS[switch]} ( '{name}' - '{switch}' )\n"
        links += made_up_dumps.link(
            made_up_dumps.hca(name, 0x300000 + at, 900 + at), made_up_dumps.switch(switch, 0x200000 + at, 41)
        )
    order = f"{TABLES.order_text()}0x0384\t{name}\n"
    assert unproved(found=found(PLAN.fabric) + text, links=TABLES.links_text() + links, order=order) == {}


def test_without_managers_in_the_plan_their_claim_does_not_apply():
    result = plan(SITE, "compute", {}, GUIDS)
    dumps = readings(pkeys={str(hca): pkeys_text({0xFFFF}) for hca in PLAN.fabric.hcas}, managers="", files={})
    (claim,) = [claim for claim in prove(result, dumps).claims if claim.holds is not True]
    assert (claim.layer, claim.holds) == ("managers", None)


LINKS = "opensm: its links are the planned ones, and active"
TABLES = made_up_dumps.Dumps(PLAN.fabric)
SWAPPED = {"node-2 mlx5_0": "node-4 mlx5_0", "node-4 mlx5_0": "node-2 mlx5_0"}
SPARE = made_up_dumps.link(made_up_dumps.hca("node-1 mlx5_0", 0x999, 77), made_up_dumps.switch("leaf-1-1", 0x200000, 9))


def exchanged(text):
    return re.sub("|".join(SWAPPED), lambda match: SWAPPED[match[0]], text)


@pytest.mark.parametrize(
    ("tables", "port"),
    [
        ({"links": TABLES.links_text().replace("node-4 mlx5_1", "rogue mlx5_1")}, "leaf-2-2 port 2"),
        ({name: exchanged(getattr(readings(), name)) for name in ("links", "forwarding", "order")}, "leaf-1-1 port 2"),
        ({"links": SPARE + TABLES.links_text()}, "leaf-1-1 port 9"),
        ({"links": TABLES.links_text().replace("LOG=ACT", "LOG=INI")}, "15 more"),
        # Only one of the two ends is not active.
        ({"links": TABLES.links_text().replace("LOG=ACT", "LOG=ARM", 1)}, "leaf-1-1 port 3"),
    ],
)
def test_tables_of_another_subnet_than_planned_do_not_hold(tables, port):
    claims = unproved(**tables)
    assert claims[LINKS].holds is False
    assert claims[LINKS].reason == Mentions(port)


@pytest.mark.parametrize("text", ["", "garbage\n"])
def test_no_route_claim_holds_without_tables(text):
    claims = prove(PLAN, readings(links=text, forwarding=text, order="")).claims
    assert {claim.holds for claim in claims if claim.layer == "routes" and claim.source != "opensm.log"} == {False}


def test_infiniband_cables_are_read_whether_or_not_their_ports_have_lldp():
    models = copy.deepcopy(ib_sites.TREE["models"])
    for model in models.values():
        for group in model["ports"].values():
            group["lldp"] = False
    result = plan(sites.site(**{**ib_sites.TREE, "models": models}), "compute", SETTINGS, GUIDS)
    one_cable = found(PLAN.fabric).splitlines()[0]
    claims = [claim for claim in prove(result, readings(found=one_cable)).claims if claim.layer == "cables"]
    assert {claim.holds for claim in claims if "GUIDs" not in claim.claim} == {False}


def test_two_devices_of_one_name_do_not_hold():
    spare = f"CA 7 1 0x0000000000000999 4x SDR - SW 2 0 {GUIDS['leaf-1-1']} ( 'node-1 mlx5_0' - 'leaf-1-1' )\n"
    claims = unproved(found=found(PLAN.fabric) + spare)
    assert claims["GUIDs: one for each name, the planned one"].reason == Mentions("node-1 mlx5_0", "0x0000000000000999")
    assert [claim for claim in claims.values() if claim.seen == "ambiguous"]


def test_the_speed_of_a_link_is_that_of_its_slower_end():
    for speed in ("1x SDR", "4x ???", "1x ???"):
        slow = found(PLAN.fabric).splitlines(keepends=True)[0].replace("4x SDR", speed)
        # The text has a link from both ends.
        near, far = slow.split(" ( ")[0].split(f" {speed} - ")
        other = f"{far} 4x SDR - {near} ( 'leaf-1-1' - 'node-1 mlx5_0' )\n"
        for text in (slow + other, other + slow):
            rest = "".join(found(PLAN.fabric).splitlines(keepends=True)[1:])
            faults = [claim for claim in unproved(found=text + rest).values() if claim.seen == "speed"]
            assert len(faults) == 1, (speed, text)


@pytest.mark.parametrize(
    "order",
    ["0x0001\tnode-1 mlx5_0\n", "0x0001\tghost-1 mlx5_0\n", "".join(readings().order.splitlines(keepends=True)[::2])],
)
def test_an_order_of_other_hcas_proves_no_shifts(order):
    (claim,) = unproved(order=order).values()
    assert (claim.holds, claim.seen) == (False, None)


def test_the_order_may_lack_hcas_where_the_user_lists_the_compute_nodes():
    result = plan(SITE, "compute", {**SETTINGS, "options": {"cn_guid_file": "/etc/opensm/cns"}}, GUIDS)
    order = "".join(line for line in readings().order.splitlines(keepends=True) if "node-4" not in line)
    held = readings(order=order, files={"node-1": result.files, "node-3": result.files})
    assert [claim for claim in prove(result, held).claims if claim.holds is not True] == []


def test_a_manager_knows_its_own_state_better_than_the_record_of_the_master():
    guid = PLAN.guids.known[PLAN.request.managers[1]]
    answer = f"sminfo: sm lid 11 sm guid 0x{int(guid, 16):x}, activity count 511 priority 14 state {{}} SMINFO\n"
    assert unproved(managers=managers(3, 1) + answer.format(2)) == {}
    (claim,) = unproved(managers=managers(3, 2) + answer.format(1)).values()
    assert claim.reason == Mentions("node-3 mlx5_0", "discovering")
    # Without its answer nothing shows that it has become a standby.
    (claim,) = unproved(managers=managers(3, 1)).values()
    assert claim.reason == Mentions("node-3 mlx5_0", "sminfo")


@pytest.mark.parametrize("states", [(0, 0), (1, 1), (2, 2), (3, 3), (2, 3), (3, 0)])
def test_the_first_planned_manager_is_the_master_and_the_others_stand_by(states):
    (claim,) = unproved(managers=managers(*states)).values()
    assert claim.layer == "managers"


def test_a_partition_that_shall_be_first_is_first():
    settings = {**SETTINGS, "partitions": {"a": {**SETTINGS["partitions"]["a"], "index0": True}}}
    result = plan(SITE, "compute", settings, GUIDS)
    files = {"node-1": result.files, "node-3": result.files}
    second = readings(files=files)
    first = {
        name: swap_first(text) if "node-1" in name or "node-2" in name else text for name, text in second.pkeys.items()
    }
    assert [claim for claim in prove(result, second._replace(pkeys=first)).claims if claim.holds is not True] == []
    first["node-2 mlx5_1"] = "   0: 0x7fff 0x0001 0x0000\n64 pkeys capacity for this port\n"
    (claim,) = [claim for claim in prove(result, second._replace(pkeys=first)).claims if claim.holds is not True]
    assert claim.reason == Mentions("mlx5_1", "0x0001")


def swap_first(text):
    """Return the table with the partition a in the first place."""
    rest, partition = sorted(re.findall("0x[0-9a-f]{4}", text)[:2], key=lambda pkey: int(pkey, 16) & 0x7FFF)[::-1]
    return f"   0: {partition} {rest} 0x0000\n64 pkeys capacity for this port\n"


def test_links_are_marked_by_what_is_wrong_with_them():
    low, up = PLAN.fabric.uplinks[0]
    dumps = made_up_dumps.Dumps(PLAN.fabric)
    slow = found(PLAN.fabric).replace("4x SDR - SW", "1x SDR - SW", 1)
    gone = "".join(line for line in slow.splitlines(keepends=True) if f"'{low.switch}' - '{up.switch}'" not in line)
    del dumps.forwarding["spine-1"][Hca("node-3", "mlx5_1")]
    marks = Marks()
    prove(PLAN, readings(found=gone, forwarding=dumps.forwarding_text()), marks)
    first = next(iter(PLAN.fabric.hcas))
    assert marks.of_link(low, up).state == "missing"
    assert marks.of_link(first, PLAN.fabric.hcas[first]).state == "slow"
    assert marks.of_link(Hca("node-3", "mlx5_1")).state == "no route"
    assert {line.state for line in marks.worst_first(PLAN.fabric)} >= {"no route", "missing", "slow"}


def held(**others):
    """Return whether a proof of these readings holds; texts that are no dumps are refused."""
    try:
        return prove(PLAN, readings(**others)).holds
    except InfinibandError:
        return False


@pytest.mark.parametrize("name", ["found", "links", "forwarding", "order", "log", "managers"])
def test_a_text_that_is_empty_or_cut_off_is_never_proved(name):
    text = getattr(readings(), name)
    lines = text.splitlines(keepends=True)
    cuts = {"".join(lines[:at]) for at in range(0, len(lines), max(1, len(lines) // 7))} | {"".join(lines[:-1])}
    cuts |= {cut + lines[-1][:5] for cut in cuts}
    # Without an order, that of the names takes its place.
    assert [cut for cut in cuts if cut.strip() and held(**{name: cut})] == []
    assert held(**{name: ""}) is (name == "order")


def test_tables_of_two_sweeps_are_not_proved():
    other = fabric_of(ib_sites.tree(devices__spine__count=1, models__leaf__ports__up__names="ib[3:3]"), "compute")
    assert not held(forwarding=made_up_dumps.Dumps(other).forwarding_text())
    assert not held(forwarding=readings().forwarding.replace(" 003 ", " 004 "))
    assert not held(links=made_up_dumps.Dumps(other).links_text())
