# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/collect_images.yml on nodes, two boot servers and a builder, each with a real store."""

from __future__ import annotations

import shutil

import pytest
from fleet_machines import boot
from fleet_site import NEW, OLD, Fleet, needs_root
from image_samples import Sample, require_whole, tree

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

# Images that only a node runs, that only the inventory names, that a channel had long ago, and that nobody needs.
RUN, PINNED, PAST, DUST = (Sample("gpu-node", base=b"base", gpu=f"driver {at}".encode()) for at in range(3, 7))
NAMES = {
    image.digest: name
    for image, name in [(OLD, "old"), (NEW, "new"), (RUN, "run"), (PINNED, "pinned"), (PAST, "past"), (DUST, "dust")]
}


class Site(Fleet):
    """bm01 runs OLD from the channel stable, bm02 runs RUN; NEW is the last build."""

    def __init__(self, folder):
        super().__init__(folder, ["bm01", "bm02"])
        for image in (RUN, PINNED, PAST, DUST, NEW):
            image.publish(self.store, folder / "cache")
        self.master = Store(str(folder / "master"))
        shutil.copytree(self.store.path, self.master.path)
        shutil.rmtree(self.master.place("channels"))
        shutil.rmtree(self.master.place("nodes"))
        shutil.rmtree(self.store.place("current"))
        for image in (PAST, RUN, OLD):
            channels.promote(self.store, "stable", image.digest)
            self.sign(image)
            if image is RUN:
                boot(self.folder, "bm02")
        self.second = self.add_server("boot02")
        # A server of a lab has a channel that no other server has.
        channels.promote(self.second, "lab", PAST.digest)
        channels.promote(self.second, "lab", OLD.digest)

    def collect(self, *arguments, **variables):
        given = {"node_image_store_dir": self.master.path, "node_boot_collect_history": 0, **variables}
        return self.play("collect_images.yml", *arguments, **given)

    def there(self):
        """Return the names of the images in each store, those of the builder first."""
        return [sorted(NAMES[digest] for digest in store.images()) for store in (self.master, self.store, self.second)]

    def trees(self):
        return [tree(store.path) for store in (self.master, self.store, self.second)]


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    try:
        yield made.wait()
    finally:
        made.stop()


pytestmark = [needs_root, pytest.mark.fleet]


@pytest.mark.long
def test_only_unneeded_images_are_removed_and_check_mode_predicts_it(site):
    before = site.trees()
    given = {"node_boot_image": {"digest": PINNED.digest}}
    status, told = site.collect("--check", **given)
    assert status == 0, told
    assert site.trees() == before
    status, output = site.collect(**given)
    assert status == 0, output
    # Without history, nothing refers to "past". The others: of stable, of bm02, of the inventory, and the last build.
    assert site.there() == [["new", "old", "pinned", "run"]] * 3
    for store in (site.master, site.store, site.second):
        require_whole(store)
    for host, path, was, store in zip(
        ("localhost", "boot01", "boot02"),
        (site.master.path, site.store.path, site.store.path),
        before,
        (site.master, site.store, site.second),
    ):
        gone = set(was) - set(tree(store.path))
        size = sum(len(was[name][1]) for name in gone if was[name][1] is not None)
        assert f"{host}: would free {size} bytes in {path}" in " ".join(told.split())
        assert f"{host}: freed {size} bytes in {path}" in " ".join(output.split())
        for name in gone:
            if name.count("/") == 1:
                assert f"{name}\n" in told
    assert f"{RUN.digest[:12]} gpu-node: it runs on bm02" in output


@pytest.mark.long
def test_history_of_any_boot_server_is_kept_in_all_stores_and_a_second_run_changes_nothing(site):
    status, output = site.collect(node_boot_collect_history=1)
    assert status == 0, output
    assert site.there() == [["new", "old", "past", "run"]] * 3
    status, output = site.collect(node_boot_collect_history=1)
    assert status == 0, output
    assert "changed: [" not in output


@pytest.mark.long
def test_nothing_is_removed_if_a_node_does_not_report_unless_it_is_excluded(site):
    (site.folder / "bm02" / "up").unlink()
    before = site.trees()
    status, output = site.collect()
    assert status != 0
    text = " ".join(output.split())
    assert "bm02 did not report; bm02: " in text
    assert "bm02 does not answer" in text
    assert "node_boot_collect_without" in text
    assert site.trees() == before
    status, output = site.collect(node_boot_collect_without=["bm05"])
    assert status != 0
    assert "node bm05: is to be left out, but is not a node of the inventory" in " ".join(output.split())
    assert site.trees() == before
    status, output = site.collect(node_boot_collect_without=["bm02"])
    assert status == 0, output
    assert site.there() == [["new", "old"]] * 3


@pytest.mark.long
def test_nothing_is_removed_if_a_boot_server_does_not_answer(site):
    (site.folder / "boot02" / "up").unlink()
    before = site.trees()
    status, output = site.collect()
    assert status == 2, output
    assert "boot02 does not answer" in " ".join(output.split())
    assert site.trees() == before


@pytest.mark.long
def test_a_limit_that_leaves_out_nodes_is_refused(site):
    before = site.trees()
    status, output = site.collect("-l", "bm01")
    assert status != 0
    assert "--limit leaves out bm02" in " ".join(output.split())
    assert site.trees() == before
