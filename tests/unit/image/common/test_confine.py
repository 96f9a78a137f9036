# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands on an image's root cannot access files outside of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.confine import confined

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts (make image runs as root)")


@pytest.mark.parametrize("above", ["/run/..", "../run/.."])
def test_name_servers_are_written_only_within_the_image(tmp_path, above):
    host = tmp_path / "host"
    host.write_text("the build host's")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/resolv.conf").symlink_to(f"{above}/../host")
    subprocess.run(confined(root, ["true"]), check=True, capture_output=True)
    assert host.read_text() == "the build host's"


def test_name_servers_are_available_through_the_links_of_distributions(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    command = ["cat", f"{tmp_path}/run/systemd/resolve/stub-resolv.conf"]
    done = subprocess.run(confined(tmp_path, command), check=True, capture_output=True, text=True)
    assert done.stdout == Path("/etc/resolv.conf").read_text()
