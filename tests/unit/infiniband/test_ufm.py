# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The requests that change the partitions of a UFM, in their order."""

from __future__ import annotations

from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import (
    Member,
    UfmPartition,
    not_changed,
    steps,
)

FULL, LIMITED = Member("full", False), Member("limited", False)
ONE, TWO, THREE = (f"{number:016x}" for number in (1, 2, 3))


def partitions(**members):
    """Return the partition 0x12 with members."""
    return {
        0x12: UfmPartition(True, {{"one": ONE, "two": TWO, "three": THREE}[name]: one for name, one in members.items()})
    }


def test_partitions_as_planned_need_no_request():
    assert steps(partitions(one=FULL), partitions(one=FULL)) == []
    assert steps({}, partitions(one=FULL)) == []


def test_members_are_added_or_changed_before_others_are_removed():
    add, remove = steps(partitions(one=FULL, two=LIMITED), partitions(two=FULL, three=FULL))
    assert (add.method, add.path) == ("POST", "resources/pkeys/")
    assert add.data == {
        "pkey": "0x12",
        "guids": [ONE, TWO],
        "memberships": ["full", "limited"],
        "index0": False,
        "ip_over_ib": True,
    }
    assert (remove.method, remove.path, remove.data) == ("DELETE", f"resources/pkeys/0x12/guids/{THREE}", None)


def test_members_stay_where_planned_guids_are_not_known():
    planned = {0x12: partitions(one=FULL)[0x12]._replace(unknown=1)}
    present = {**partitions(one=FULL, two=FULL), 0x13: UfmPartition(False, {})}
    assert steps(planned, present) == []
    assert not_changed(planned, present) == [Mentions("0x0013"), Mentions("0x0012", "1 planned GUIDs")]
