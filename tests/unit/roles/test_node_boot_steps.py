# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role's steps of a rollout, one boot server after the other: at any moment a node gets one image whole.

The tasks are read from the role, and the library does what their modules do. A run that is killed between two of them
is one that the next run completes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from build_host import make_keys
from fleet_machines import kernel_of, mac, read_statement, stated_image
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, contents, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = pytest.mark.skipif(not shutil.which("minisign"), reason="no minisign on this machine (bindep.txt)")
TASKS = Path(__file__).parents[3] / "roles" / "node_boot" / "tasks"
OLD, NEW = (Sample("gpu-node", base=content) for content in (b"old", b"new"))
CANARY, NODES = "bm01", ("bm01", "bm02")
SERVERS = ("boot01", "boot02")


def tasks(file: str) -> Iterator[tuple[str, dict]]:
    """Return (module, its arguments) of a file's tasks and those that it imports, in order; None for no mapping."""
    for task in yaml.safe_load((TASKS / file).read_text()):
        if "block" in task:
            for inner in task["block"]:
                yield from _task(inner)
        else:
            yield from _task(task)


def _task(task: dict) -> Iterator[tuple[str, dict]]:
    (module,) = (name for name in task if "." in name)
    if module.endswith(".import_tasks"):
        yield from tasks(task[module])
    else:
        yield module.rpartition(".")[2], task[module] or {}


class Site:
    """Two boot servers and the host that signs, in one folder; ``pinned``: the canary's image is not the channel's."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self.folder, self.pinned = folder, False
        self.signer = Signer(str(keys / "image.key"), str(keys / "image.pub"))
        self.signing = Store(str(folder / "signer"))
        self.stores = [Store(str(folder / name)) for name in SERVERS]

    def begin(self) -> None:
        """Let all nodes follow the channel with the old image."""
        for store in self.stores:
            for image in (OLD, NEW):
                image.publish(store, self.folder / "blobs")
            channels.promote(store, "stable", OLD.digest)
        for file in ("servers/state.yml", "servers/write_scripts.yml"):
            for _moment in self.run(file, ""):
                pass

    def rows(self) -> list[dict]:
        pins = {CANARY: {"digest": NEW.digest}} if self.pinned else {}
        own = {"servers": ["http://10.9.0.1"]}
        return [{"name": name, "mac": mac(name), **own, **pins.get(name, {"channel": "stable"})} for name in NODES]

    def run(self, file: str, promoted: str) -> Iterator[None]:
        """Do the tasks of a file; yield after each change of one host."""
        given = {"stable": promoted} if promoted else {}
        text = b""
        listed = [contents.inventory(store, {}) for store in self.stores]
        for module, arguments in tasks(file):
            if module == "node_boot_statement":
                self.pinned = file == "rollout/canaries.yml"
                now_s = int(time.time())
                seen = [
                    {**rows, "host": host, "files": [], "statement": statement.sequence_in(store), "now_s": now_s}
                    for host, store, rows in zip(SERVERS, self.stores, listed)
                ]
                request = issue.StatementRequest(self.rows(), promoted=given)
                text = issue.ensure(self.signing, request, seen, self.signer, issue.Terms(90, now_s), False).after
                yield
            elif module in ("node_boot_scripts", "node_image_channel"):
                for store in self.stores:
                    if module == "node_image_channel" and arguments.get("state") == "rolled_back":
                        channels.rollback(store, "stable", NEW.digest)
                    elif module == "node_image_channel":
                        channels.promote(store, "stable", NEW.digest)
                    else:
                        stated = text if "statement" in arguments else b""
                        node_scripts.ensure(
                            store, [] if arguments["nodes"] == [] else self.rows(), False, stated=stated
                        )
                    yield

    def require_whole_images(self) -> None:
        """Check that the kernel from any server boots its own image by the latest statement of any server."""
        latest = max(map(read_statement, self.stores), key=lambda stated: stated.sequence)
        for store in self.stores:
            for node in NODES:
                assert stated_image(latest, node, kernel_of(store, node)) == kernel_of(store, node), node


STEPS = {  # the file of a step: what the channel is then to name, and the images of canary and other node
    "rollout/canaries.yml": ("", (NEW, OLD)),
    "rollout/promote.yml": (NEW.digest, (NEW, NEW)),
    "rollout/go_back.yml": (OLD.digest, (OLD, OLD)),
}


def test_a_node_gets_one_image_whole_after_each_change_of_each_server(tmp_path):
    site = Site(tmp_path / "site", make_keys(tmp_path / "keys"))
    site.folder.mkdir()
    site.begin()
    site.require_whole_images()
    for file, (promoted, images) in STEPS.items():
        kept, pinned = shutil.copytree(site.folder, tmp_path / Path(file).stem), site.pinned
        changes = sum(1 for _moment in site.run(file, promoted))
        for killed in range(1, changes + 1):
            shutil.rmtree(site.folder)
            shutil.copytree(kept, site.folder)
            site.pinned = pinned
            for _change, _moment in zip(range(killed), site.run(file, promoted)):
                site.require_whole_images()
            # The next run: it does the whole step.
            site.pinned = pinned
            for _moment in site.run(file, promoted):
                site.require_whole_images()
            for store in site.stores:
                found = [kernel_of(store, node) for node in NODES]
                assert found == [image.digest for image in images]
                assert read_statement(store) == read_statement(site.signing)
        assert changes == {"canaries": 5, "promote": 7, "go_back": 7}[Path(file).stem]
