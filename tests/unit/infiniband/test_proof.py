# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric is proved from texts; what was not read, or is not as planned, is named with its cause."""

from __future__ import annotations

import ib_sites
import made_up_dumps
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import Readings, prove, wanted_pkeys

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
        f"CA  1  1 0x0000000000000001 4x SDR - SW  2 {port.number} 0x0000000000000002 ( '{hca}' - '{port.switch}' )\n"
        for hca, port in cables.hcas.items()
    ) + "".join(
        f"SW  1 {low.number} 0x0000000000000001 4x SDR - SW  2 {up.number} 0x0000000000000002 "
        f"( '{low.switch}' - '{up.switch}' )\n"
        for low, up in cables.uplinks
    )


def readings(**others):
    dumps = made_up_dumps.Dumps(PLAN.fabric)
    held = {
        "found": found(PLAN.fabric),
        "links": dumps.links_text(),
        "forwarding": dumps.forwarding_text(),
        "order": dumps.order_text(),
        "log": LOG,
        "pkeys": {str(hca): pkeys_text(wanted_pkeys(PLAN, hca)) for hca in PLAN.fabric.hcas},
        "managers": "".join(SMS.format(PLAN.guids.known[hca], 3) for hca in PLAN.request.managers),
        "files": {"node-1": PLAN.files, "node-3": PLAN.files},
    }
    return Readings(**{**held, **others})


def unproved(**others):
    return {claim.claim: claim for claim in prove(PLAN, readings(**others)).claims if claim.holds is not True}


def test_what_is_as_planned_holds():
    assert unproved() == {}


def test_nothing_that_was_not_read_counts_as_held():
    claims = unproved(log="", pkeys={}, managers="", files={}, found="")
    assert claims["opensm: the routing engine that is in use"].holds is None
    names = {text.split(":")[0] for text, claim in claims.items() if claim.holds is False}
    assert names >= {"node-1", "node-2", "node-3", "node-4", "subnet managers", "spine-1", "leaf-1-1"}
    assert not {
        claim.claim for claim in prove(PLAN, readings(found="")).claims if claim.layer == "cables" and claim.holds
    }


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


def test_other_text_than_pkeys_is_refused():
    with raises(InfinibandError, "smpquery pkeys"):
        prove(PLAN, readings(pkeys={"node-1 mlx5_0": "ibwarn: no such port"}))


def test_without_managers_in_the_plan_their_claim_does_not_apply():
    result = plan(SITE, "compute", {}, GUIDS)
    dumps = readings(pkeys={str(hca): pkeys_text({0xFFFF}) for hca in PLAN.fabric.hcas}, managers="", files={})
    (claim,) = [claim for claim in prove(result, dumps).claims if claim.holds is not True]
    assert (claim.layer, claim.holds) == ("managers", None)
