# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of distributions, compared with the vendors' pages that systems.py names."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import systems


@pytest.mark.parametrize(
    ("name", "version", "packages", "first_branch", "dcgm", "has_streams"),
    [
        ("ubuntu", "22.04", "apt", 580, True, False),
        ("ubuntu", "24.04", "apt", 580, True, False),
        ("ubuntu", "26.04", "apt", 595, False, False),
        ("debian", "12", "apt", 580, True, False),
        ("debian", "13", "apt", 590, False, False),
        ("rhel", "8.10", "dnf", 580, True, True),
        ("rhel", "9.6", "dnf", 580, True, True),
        ("rhel", "10.1", "dnf", 580, True, False),
        ("rocky", "8.10", "dnf", 580, True, True),
        ("rocky", "9.6", "dnf", 580, True, True),
        ("rocky", "10.0", "dnf", 580, True, False),
    ],
)
def test_each_distribution_has_the_properties_nvidia_supports(name, version, packages, first_branch, dcgm, has_streams):
    system = systems.find(name, version)
    assert (system.packages, system.first_branch, system.dcgm, system.has_streams) == (
        packages,
        first_branch,
        dcgm,
        has_streams,
    )


def test_only_ubuntu_has_precompiled_modules_by_kernel_and_branch():
    assert {system.shown: dict(system.precompiled) for system in systems.SYSTEMS if system.precompiled} == {
        "ubuntu 22.04": {(5, 15): (580, 595), (6, 8): (580, 595)},
        "ubuntu 24.04": {(6, 8): (580, 595)},
        "ubuntu 26.04": {(7, 0): (595,)},
    }


def test_doca_versions_are_listed_by_minor_release():
    assert {system.shown: system.doca for system in systems.SYSTEMS if system.doca} == {
        "ubuntu 24.04": (("3.1", ("",)),),
        "ubuntu 26.04": (("3.4.1", ("",)),),
        "rhel 9": (("3.1", ("9.6", "9.7")),),
        "rhel 10": (("3.1", ("10.0", "10.1")), ("3.4.1", ("10.2",))),
    }


@pytest.mark.parametrize(("name", "version"), [("rhel", "1"), ("rhel", "80"), ("fedora", "42"), ("ubuntu", "22.10")])
def test_a_release_that_is_not_in_the_table_is_not_found(name, version):
    assert systems.find(name, version) is None
