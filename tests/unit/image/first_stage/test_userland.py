# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trees without the programs of the first stage are refused."""

from __future__ import annotations

from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import userland


def test_a_tree_without_a_program_is_refused(tmp_path):
    assert refused(userland.entries, tmp_path) == Mentions(tmp_path, "busybox", "busybox-static")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/busybox").write_text("no program")
    assert refused(userland.entries, tmp_path).startswith(f"first stage {tmp_path}/bin/busybox: ")
    assert refused(userland.entries, tmp_path).endswith("; unpack packages of the image's architecture")
