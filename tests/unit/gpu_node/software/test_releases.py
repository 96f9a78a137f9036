# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of releases: the parts of a release fit together, each has its source, and the default is in the table."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import BY_DRIVER, RELEASES


def test_each_release_is_listed_once_with_all_versions_and_its_source():
    assert len(BY_DRIVER) == len(RELEASES)
    for release in RELEASES:
        assert re.fullmatch(r"\d{3}\.\d+\.\d+", release.driver)
        assert re.fullmatch(r"4\.\d+\.\d+", release.dcgm)
        assert re.fullmatch(r"2\.\d+\.\d+", release.nvidia_fs)
        assert re.search(r"v\d+\.\d+\.\d+ \([0-9a-f]{8}\)", release.source)
        assert release.branch == int(release.driver[:3])


def test_releases_of_one_matrix_have_equal_dcgm_and_nvidia_fs_versions():
    by_matrix: dict[str, set[tuple[str, str]]] = {}
    for release in RELEASES:
        by_matrix.setdefault(release.source.split(",")[1], set()).add((release.dcgm, release.nvidia_fs))
    assert [len(parts) for parts in by_matrix.values()] == [1] * len(by_matrix)


def test_the_default_release_is_recommended():
    assert "recommended" in RELEASES[0].source
