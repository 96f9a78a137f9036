# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The storage of an emulated node: real md, XFS, NFS over RDMA, cachefilesd and systemd, over boots of new roots.

Emulated: the NVMe drives, on two NUMA nodes. The HCA is rxe's, the NFS server is on the node itself. Needs root:
make storage.
"""

from __future__ import annotations

import os

import pytest
import storage_machine as machine

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import ensure

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mmdebstrap makes the root as root")
LOCAL = {"name": "cache", "numa_node": 1, "count": 3, "purpose": "cache"}


class Tree(System):
    """The root of an image."""

    def run(self, argv, stdin=None, timeout_s=None):
        assert argv[:2] == ["systemctl", "--root=/"]
        return super().run(["systemctl", f"--root={self.root}", *argv[2:]], stdin, timeout_s)


def image(keep):
    """Return a function that applies the role's module to a root, as in a layer."""

    def prepare(tree):
        params = {"local": [{**LOCAL, "keep": keep}], "nfs": [], "s3": [], "s3_keys": {}}
        # In the tree is only what is added to the root, which has systemd.
        systemd = tree / "usr/lib/systemd/systemd"
        systemd.parent.mkdir(parents=True)
        systemd.touch()
        assert ensure.ensure(Tree(str(tree)), params, in_image=True, python="/usr/bin/python3").changed
        assert not ensure.ensure(Tree(str(tree)), params, in_image=True, python="/usr/bin/python3").changed
        systemd.unlink()

    return prepare


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    return machine.Node(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def live(node):
    results = node.boot("live")
    assert "broken" not in results, results["broken"]["error"]
    return results


def test_check_predicts_and_writes_nothing(live):
    assert "failed" not in live["served"]["log"]
    check, first = live["check"]["result"], live["first"]["result"]
    assert live["check"]["blank"]
    assert first.get("msg") is None
    assert check["diff"] == first["diff"]


def test_the_drives_of_the_second_node_are_one_stripe(live):
    (fact,) = live["first"]["result"]["file_systems"]
    assert tuple(fact["drives"]) == machine.SECOND_NODE
    assert "raid0" in live["first"]["md"]
    assert "sunit=128" in live["first"]["info"]
    assert "swidth=384" in live["first"]["info"]


def test_a_second_run_changes_nothing(live):
    assert live["second"]["result"]["changed"] is live["second"]["check"]["changed"] is False
    assert live["second"]["result"]["file_systems"] == live["first"]["result"]["file_systems"]


def test_nfs_goes_over_rdma_and_has_its_cache(live):
    near, far = (
        next(line for line in live["mounts"]["text"].splitlines() if f" {path} " in line) for path in ("/near", "/far")
    )
    assert "proto=rdma" in near
    assert "fsc" in far
    assert live["rdma"]["served"] == "over RDMA"


def test_a_drive_in_use_is_refused(live):
    assert "is not blank" in live["refused"]["result"]["msg"]
    assert "somebodys" in live["refused"]["somebodys"]["msg"]


def test_the_second_epoch_comes_from_the_cache(live):
    epochs = live["epochs"]
    assert epochs["first"]["link_bytes"] >= 48 << 20
    # What remains is the questions whether the files have changed.
    assert epochs["second"]["link_bytes"] < epochs["first"]["link_bytes"] / 100


def test_an_image_mounts_blank_drives_however_long_their_file_system_takes(tmp_path):
    booted = machine.Node(tmp_path).boot("kept", image(keep=True))["booted"]
    assert (booted["marker"], booted["source"].split()[1:2]) == (None, ["xfs"]), booted


def test_a_new_image_mounts_what_was_kept(node, live):
    results = node.boot("kept", image(keep=True))
    booted = results["booted"]
    assert (booted["marker"], booted["source"].split()[1]) == ("kept", "xfs"), booted
    assert "ordering cycle" not in booted["cycles"]
    assert results["same"]["result"]["changed"] is False, results["same"]


def test_a_new_image_makes_anew_what_is_not_kept(node, live):
    results = node.boot("wiped", image(keep=False))
    booted = results["booted"]
    assert (booted["marker"], booted["source"].split()[1]) == (None, "xfs"), booted
    assert results["same"]["result"]["changed"] is False, results["same"]


def test_a_run_that_is_killed_at_any_command_is_completed_by_the_next(node, live):
    results = node.boot("kills")
    assert "broken" not in results, results["broken"]["error"]
    killed = [one for name, one in results.items() if name.startswith("killed")]
    ended = {(one["keep"], one["before"].split()[0]) for one in killed}
    new, anew = {"mdadm", "mkfs.xfs", "unshare"}, {"wipefs", "mdadm", "mkfs.xfs", "unshare"}
    assert {*((True, program) for program in new), *((False, program) for program in anew)} <= ended
    for one in killed:
        assert one["again"] == {}, one
        (fact,) = one["facts"]["file_systems"]
        assert fact["stripe_width_bytes"] == 3 * 512 << 10, one
