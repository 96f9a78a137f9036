# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The places of files: their file system by the mounts above them, after links."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import file_places


def test_the_last_mount_above_a_file_counts(tmp_path, monkeypatch):
    (tmp_path / "nfs dir").mkdir()
    (tmp_path / "nfs dir" / "disk").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nfs dir" / "disk")
    blank = str(tmp_path / "nfs dir").replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nnone {blank} tmpfs rw 0 0\nserver:/x {blank} nfs4 rw 0 0\n")
    monkeypatch.setattr(file_places, "MOUNTS", str(mounts))
    paths = [str(tmp_path / name) for name in ("link", "local")]
    seen = file_places.observe(paths)
    assert [(seen[path].exists, seen[path].file_system) for path in paths] == [(True, "nfs4"), (False, "ext4")]
