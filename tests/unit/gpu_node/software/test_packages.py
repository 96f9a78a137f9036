# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_nodes import Node

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import packages, request
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import observe
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.packages import Package

DCGM = ["datacenter-gpu-manager-4-core=1:4.6.0", "datacenter-gpu-manager-4-cuda13=1:4.6.0"]
APT_RDMA = ["rdma-core", "ibverbs-providers", "ibverbs-utils"]


@pytest.mark.parametrize(
    ("system", "settings", "fabric", "doca", "names"),
    [
        (
            "debian12",
            {"extra_packages": ["nvtop", "ethtool"]},
            "none",
            None,
            [
                "linux-headers-6.1.0-31-amd64",
                "nvidia-kernel-open-dkms=595.91.07",
                "nvidia-driver-cuda=595.91.07",
                "nvidia-persistenced=595.91.07",
                *DCGM,
                *APT_RDMA,
                "ethtool",
                "nvtop",
            ],
        ),
        (
            "ubuntu2404",
            {"dcgm": False, "storage": "nvidia_fs"},
            "nvlink5",
            "3.1",
            [
                "linux-headers-6.8.0-60-generic",
                "nvidia-dkms-open=595.91.07",
                "libnvidia-compute=595.91.07",
                "nvidia-persistenced=595.91.07",
                "nvidia-fabricmanager=595.91.07",
                "libnvidia-nscq=595.91.07",
                "libnvsdm=595.91.07",
                "nvlsm",
                "nvidia-fs=2.29.4",
                "nvidia-fs-dkms=2.29.4",
                "doca-ofed=3.1",
                "ethtool",
            ],
        ),
        (
            "ubuntu2404",
            {"dcgm": False, "driver": "580.173.02"},
            "none",
            None,
            [
                "linux-headers-6.8.0-60-generic",
                "nvidia-dkms-580-open=580.173.02",
                "libnvidia-compute-580=580.173.02",
                "nvidia-compute-utils-580=580.173.02",
                "nvidia-utils-580=580.173.02",
                *APT_RDMA,
                "ethtool",
            ],
        ),
        (
            "ubuntu2404",
            {"dcgm": False, "modules": "precompiled"},
            "nvswitch",
            None,
            [
                "linux-modules-nvidia-595-server-open-6.8.0-60-generic",
                "nvidia-headless-no-dkms-595-server-open=595.91.07",
                "nvidia-utils-595-server=595.91.07",
                "nvidia-fabricmanager-595=595.91.07",
                "libnvidia-nscq-595=595.91.07",
                *APT_RDMA,
                "ethtool",
            ],
        ),
        (
            "rhel9",
            {"driver": "580.105.08"},
            "nvswitch",
            None,
            [
                "kernel-devel-5.14.0-570.el9.x86_64",
                "kmod-nvidia-open-dkms=580.105.08",
                "nvidia-driver-cuda=580.105.08",
                "nvidia-persistenced=580.105.08",
                "nvidia-fabric-manager=580.105.08",
                "libnvidia-nscq=580.105.08",
                "datacenter-gpu-manager-4-core=1:4.4.2",
                "datacenter-gpu-manager-4-cuda13=1:4.4.2",
                "rdma-core",
                "libibverbs-utils",
                "ethtool",
            ],
        ),
    ],
)
def test_all_packages_are_listed_in_the_order_of_installation(tmp_path, system, settings, fabric, doca, names):
    found = packages.wanted(
        request.read({"dcgm": True, **settings}), observe(Node(tmp_path, system), False), fabric, doca
    )
    assert [f"{one.name}={one.version}" if one.version else one.name for one in found] == names


@pytest.mark.parametrize(
    ("package", "apt", "dnf"),
    [
        (Package("a"), "a", "a"),
        (Package("a", "1.2.3"), "a=1.2.3*", "a-1.2.3*"),
        (Package("a", "1:1.2.3"), "a=1:1.2.3*", "a-1.2.3*"),
        (Package("a", "3.1"), "a=3.1.*", "a-3.1.*"),
    ],
)
def test_the_package_manager_is_given_name_and_version(package, apt, dnf):
    assert (package.spec("apt"), package.spec("dnf")) == (apt, dnf)


@pytest.mark.parametrize(
    ("wanted", "there", "is_installed"),
    [
        (None, "1", True),
        ("1:4.6.0", "1:4.6.0-1", True),
        ("1:4.6.0", "4.6.0", True),
        ("4.6.0", "4.6.0+x", True),
        ("4.6.0", "4.6.0~rc1", True),
        ("4.6.0", "4.6.0.1", True),
        ("4.6.0", "4.6.0x", False),
        ("4.6.0", "4x6.0", False),
        ("4.6.0", "a:4.6.0", False),
    ],
)
def test_a_package_is_installed_in_any_revision_of_its_version(wanted, there, is_installed):
    assert Package("a", wanted).is_installed({"a": there}) is is_installed
    assert Package("a", wanted).is_installed({"b": there}) is False


def test_packages_of_every_release_are_removed_and_no_others():
    own = [
        "datacenter-gpu-manager-4-core",
        "datacenter-gpu-manager-4-cuda13",
        "doca-ofed",
        "kmod-nvidia-open-dkms",
        "libnvidia-compute",
        "libnvidia-compute-580",
        "libnvidia-nscq-580",
        "libnvsdm",
        "linux-modules-nvidia-595-server-open-6.8.0-60-generic",
        "nvidia-compute-utils-580",
        "nvidia-dkms-580-open",
        "nvidia-dkms-open",
        "nvidia-driver-cuda",
        "nvidia-fabric-manager",
        "nvidia-fabricmanager-595",
        "nvidia-fs",
        "nvidia-fs-dkms",
        "nvidia-headless-no-dkms-595-server-open",
        "nvidia-kernel-open-dkms",
        "nvidia-persistenced",
        "nvidia-utils-595-server",
        "nvlsm",
    ]
    others = ["ethtool", "rdma-core", "nvidia-container-toolkit", "linux-headers-6.8.0-60-generic", "nvidia-utils-58"]
    assert packages.every_name(dict.fromkeys([*reversed(own), *others], "1")) == own
