# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first run of the role with --check, on a host that has neither the tools nor the key."""

from __future__ import annotations

import json
import sys

import pytest
from playing import ansible_playbook


@pytest.mark.fleet
def test_the_first_check_tells_what_would_be_built_and_makes_nothing(tmp_path):
    key = tmp_path / "etc/image.key"
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "packages_install": False,
        "node_image_layers": {"base": {"distribution": "debian", "suite": "bookworm", "architecture": "amd64"}},
        "node_image_images": {"gpu-node": {"layer": "base"}},
        "node_image_signing_key": str(key),
        "node_image_public_key": str(key.with_suffix(".pub")),
        "node_image_store_dir": str(tmp_path / "store"),
        "node_image_cache_dir": str(tmp_path / "cache"),
    }
    play = {"hosts": "build1", "gather_facts": False, "roles": ["sailloft.fleet.node_image"]}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"build1": variables}}}))
    (tmp_path / "play.json").write_text(json.dumps([play]))
    before = sorted(tmp_path.rglob("*"))
    status, output = ansible_playbook("-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.json"), "--check")
    assert (status, sorted(tmp_path.rglob("*"))) == (0, before), output
    assert "gpu-node" in output
    assert str(key.with_suffix(".pub")) in output
