# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules node_image, node_image_keep and node_image_info, called as Ansible calls them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

import pytest
from ansible.module_utils import basic

from ansible_collections.sailloft.fleet.plugins.modules import node_image, node_image_info, node_image_keep

GIVEN = {
    "layers": {},
    "images": {},
    "signing_key": "/nowhere/key",
    "public_key": "/nowhere/key.pub",
    "cache": "/nowhere/cache",
    "first_stage": "#!/bin/sh\n",
}


@dataclass
class Outcome:
    """An image that was built, with lines of its diff."""

    name: str
    changed: bool
    diff: tuple[str, ...]


@pytest.fixture
def built(monkeypatch):
    """Return a function that sets the outcome of a build: outcomes, or an error to raise."""
    monkeypatch.setattr(node_image, "read_images", lambda _images, _layers: [])

    def give(outcome):
        def build(_images, _setting, _progress):
            masks.append(os.umask(0o022))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(node_image.build, "build", build)

    masks = []
    give.masks = masks
    before = os.umask(0o077)
    yield give
    os.umask(before)


def test_images_and_the_lines_of_their_diffs_are_returned(call, built):
    built([Outcome("base", False, ()), Outcome("gpu", True, ("+ layer gpu", "- layer old"))])
    assert call(node_image, GIVEN) == {
        "changed": True,
        "images": [{"name": "base", "changed": False}, {"name": "gpu", "changed": True}],
        "diff": [{"prepared": "+ layer gpu\n- layer old\n"}],
    }
    # Files of an image have the modes that its packages give them, whatever the umask of root is.
    assert built.masks == [0o022]


@pytest.mark.parametrize(("name", "place"), [("/nowhere/file", "/nowhere/file"), (None, "/nowhere/cache")])
def test_an_error_of_the_disk_names_its_place(call, built, name, place):
    built(OSError(errno.ENOSPC, "No space left on device", name))
    message = f"{place}: No space left on device; check the disk, and run again"
    assert call(node_image, GIVEN)["msg"] == message


@pytest.mark.parametrize("script", [None, ""])
def test_a_build_without_a_first_stage_is_refused(call, built, script):
    built([])
    assert call(node_image, {**GIVEN, "first_stage": script})["msg"].startswith("first_stage: no script was given; ")


def test_kept_images_are_listed_with_their_names_and_reasons(call):
    one, two = "1" * 64, "2" * 64
    images = [{"digest": one, "name": "gpu-node", "kept_for": ["channel stable"]}]
    store = {"host": "boot1", "images": images, "missing": [{"digest": two, "kept_for": ["channel old"]}]}
    result = call(node_image_keep, {"nodes": [{"name": "bm01", "running": one}], "stores": [store], "planned": [two]})
    assert (result["changed"], result["keep"]) == (False, [one, two])
    text = "\n".join(result["table"])
    assert "gpu-node" in text
    assert "bm01" in text
    assert "node_boot_rollout_image" in text


def test_a_node_without_systemd_is_reported(call, monkeypatch):
    monkeypatch.setattr(node_image_info.platform, "node", lambda: "bm01")
    monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda _self, _words: (1, "", "no bus"))
    message = "bm01: systemctl show failed: no bus; check its console: a node must run systemd"
    assert call(node_image_info, {})["msg"] == message


def test_a_build_without_a_signer_is_refused(call, built):
    built([])
    told = call(node_image, {**GIVEN, "signing_key": None})
    assert told["failed"]
    assert "signing_command" in told["msg"]
    assert not call(node_image, {**GIVEN, "signing_key": None, "signing_command": ["sign"]}).get("failed")
