# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a fabric is written on the controller, and a fabric that is not as planned fails."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import made_up_dumps
import pytest
import sites
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import ib_fabric_proof
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings, pack

BLUEPRINT = str(sites.PROJECT / "inventories/blue_vela/blueprint.yml")


def written(folder, links, forwarding):
    """Write a file of ib_fabric_info, and return its path."""
    path = folder / "subnet.json.gz"
    path.write_bytes(pack(ManagerReadings(True, links=links, forwarding=forwarding)))
    return str(path)


def proved(make, folder, readings):
    arguments = {"blueprint": BLUEPRINT, "fabric": "storage", "path": str(folder), "readings": readings}
    return make(ib_fabric_proof, **arguments).run(task_vars={})


def test_a_proof_is_written_and_fails_where_something_was_not_read(make, tmp_path):
    dumps = made_up_dumps.Dumps(fabric_of(sites.example("blue_vela"), "storage"))
    readings = {"node-0001": written(tmp_path, dumps.links_text(), dumps.forwarding_text())}
    result = proved(make, tmp_path, readings)
    assert (result["holds"], result["failed"], result["changed"]) == (False, True, True)
    claims = json.loads((tmp_path / "infiniband-storage.json").read_text())["claims"]
    held = [claim for claim in claims if claim["holds"]]
    # No cable, log and P_Key was read; the tables are those of a tree without fault.
    assert {claim["layer"] for claim in held} == {"routes"}
    failed = [claim["source"] for claim in claims if claim["layer"] == "routes" and claim["holds"] is False]
    assert failed == ["opensm.log"]
    assert not proved(make, tmp_path, readings)["changed"]


def test_text_that_is_no_dump_is_refused(make, tmp_path):
    text = "Unicast lids [0-9] of switch Lid 2 guid 0x0000000000200000 ('leaf'):\n0x0001 001 # CA\n1 lids dumped\n"
    with pytest.raises(AnsibleActionFail, match=r"opensm-subnet\.lst"):
        proved(make, tmp_path, {"node-0001": written(tmp_path, "", text)})


def test_a_file_that_is_not_whole_is_refused(make, tmp_path):
    path = Path(written(tmp_path, "", ""))
    whole = path.read_bytes()
    other = gzip.compress(b'{"format": "sailloft-proof/1"}')
    for content in (b"", whole[:-5], whole[: len(whole) // 2], b"text", other, gzip.compress(b"[]")):
        path.write_bytes(content)
        with pytest.raises(AnsibleActionFail, match=r"subnet\.json\.gz.*; .*read the fabric again with ib_fabric_info"):
            proved(make, tmp_path, {"node-0001": str(path)})
    with pytest.raises(AnsibleActionFail, match=r"node-0001: .*No such file.*; give the path"):
        proved(make, tmp_path, {"node-0001": str(tmp_path / "nothing")})


def test_two_subnets_are_refused(make, tmp_path):
    path = written(tmp_path, "", "")
    with pytest.raises(AnsibleActionFail, match="node-0001 and node-0002: both have read the subnet"):
        proved(make, tmp_path, {"node-0001": path, "node-0002": path})
