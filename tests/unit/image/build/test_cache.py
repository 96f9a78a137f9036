# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cache of built layers: its lock, and the removal of old entries."""

from __future__ import annotations

import os
import stat
import time

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import cache
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError


def test_entries_that_are_unused_for_a_long_time_are_removed_from_the_cache(tmp_path):
    long_ago = time.time() - cache.UNUSED_S - 60
    names = ("layers/a", "logs/a.log", "apt/lists-a", "dnf/rocky-a", "dnf/rocky-b", "apt/archives-a", "oci/1f-amd64")
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name, (long_ago, long_ago))
    root = tmp_path / "root"
    root.mkdir()
    with Caches({"var/cache/dnf": tmp_path / "dnf/rocky-b"}, tmp_path).downloading(root, lambda argv: None):
        pass
    cache.sweep(tmp_path)
    assert [name for name in names if (tmp_path / name).is_dir()] == ["dnf/rocky-b"]


def test_entries_are_kept_for_30_days(tmp_path):
    for name, age_s in (("kept", 2_592_000 - 60), ("old", 2_592_000 + 15)):
        (tmp_path / "dnf" / name).mkdir(parents=True)
        used_s = time.time() - age_s
        os.utime(tmp_path / "dnf" / name, (used_s, used_s))
    cache.sweep(tmp_path)
    assert os.listdir(tmp_path / "dnf") == ["kept"]


def test_the_lock_of_a_build_names_only_that_build(tmp_path):
    with cache.locked(tmp_path, "a-name-that-is-much-longer-than-the-next-one"):
        assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o644
    with cache.locked(tmp_path, "b"):
        assert "(b, since 2" in (tmp_path / "lock").read_text()
        assert (tmp_path / "lock").read_text().count("\n") == 1


def test_a_second_build_in_the_cache_is_refused_with_the_first_ones_process(tmp_path):
    place = tmp_path / "cache"
    with cache.locked(place, "gpu-node"):
        with pytest.raises(ImageError) as refused, cache.locked(place, "other"):
            pass
        assert str(refused.value).startswith(f"cache {place}: process {os.getpid()} on ")
        assert "(gpu-node, since 2" in str(refused.value)
        assert str(refused.value).endswith(" is building in it; wait until it has finished, or end it")
    with cache.locked(place, "other"):
        assert "(other, since 2" in (place / "lock").read_text()


def test_a_folder_is_removed_if_it_exists(tmp_path):
    (tmp_path / "work/folder").mkdir(parents=True)
    cache.remove(tmp_path / "work")
    cache.remove(tmp_path / "work")
    assert list(tmp_path.iterdir()) == []
