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


def test_the_table_has_the_versions_of_the_matrices():
    assert [(one.driver, one.cuda, one.dcgm, one.nvidia_fs, one.source) for one in RELEASES] == [
        ("595.91.07", 13, "4.6.0", "2.29.4", "NVIDIA GPU Operator component matrix, v26.7.0 (187a4a5b), recommended"),
        ("610.57.04", 13, "4.6.0", "2.29.4", "NVIDIA GPU Operator component matrix, v26.7.0 (187a4a5b)"),
        ("580.173.02", 13, "4.6.0", "2.29.4", "NVIDIA GPU Operator component matrix, v26.7.0 (187a4a5b)"),
        ("595.71.05", 13, "4.5.2", "2.27.3", "NVIDIA GPU Operator component matrix, v26.3.3 (815c4afb)"),
        ("580.159.04", 13, "4.5.2", "2.27.3", "NVIDIA GPU Operator component matrix, v26.3.3 (815c4afb), recommended"),
        ("580.105.08", 13, "4.4.2", "2.26.6", "NVIDIA GPU Operator component matrix, v25.10.1 (41120aec), recommended"),
    ]
    assert [one.branch for one in RELEASES] == [595, 610, 580, 595, 580, 580]
