# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_nodes import ARCHIVE, SYSTEMS, Node

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import plan, request
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import observe
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import RELEASES
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError


def planned(node, in_image=False, **settings):
    return plan.make(request.read(settings), observe(node, in_image))


def names(made):
    return [f"{package.name}={package.version}" if package.version else package.name for package in made.packages]


@pytest.mark.parametrize(
    ("system", "settings", "driver"),
    [
        ("debian12", {}, ["linux-headers-6.1.0-31-amd64", "nvidia-kernel-open-dkms=595.91.07"]),
        (
            "ubuntu2404",
            {},
            ["linux-headers-6.8.0-60-generic", "nvidia-dkms-open=595.91.07", "libnvidia-compute=595.91.07"],
        ),
        # Up to branch 580 the package names contain the branch.
        ("ubuntu2404", {"driver": "580.173.02"}, ["nvidia-dkms-580-open=580.173.02", "nvidia-utils-580=580.173.02"]),
        (
            "ubuntu2404",
            {"driver": "580.173.02", "modules": "precompiled"},
            [
                "linux-modules-nvidia-580-server-open-6.8.0-60-generic",
                "nvidia-headless-no-dkms-580-server-open=580.173.02",
            ],
        ),
        ("rhel9", {}, ["kernel-devel-5.14.0-570.el9.x86_64", "kmod-nvidia-open-dkms=595.91.07"]),
    ],
)
def test_driver_packages_depend_on_distribution_and_settings(tmp_path, system, settings, driver):
    made = planned(Node(tmp_path, system), **settings)
    assert set(driver) <= set(names(made))
    assert made.kernels == (SYSTEMS[system][2],)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.driver)
@pytest.mark.parametrize("system", ["debian12", "ubuntu2404", "rhel9"])
def test_all_packages_have_the_versions_of_the_release(tmp_path, system, release):
    made = planned(Node(tmp_path, system, nvswitches=4), driver=release.driver, storage=True)
    versions = {package.name: package.version for package in made.packages if package.version}
    fabric = [name for name in versions if "fabric" in name]
    assert len(fabric) == 1
    assert versions[fabric[0]] == release.driver
    assert {version for name, version in versions.items() if "datacenter" in name} == {f"1:{release.dcgm}"}
    assert versions["nvidia-fs-dkms"] == release.nvidia_fs
    others = {version for name, version in versions.items() if "datacenter" not in name and "nvidia-fs" not in name}
    assert others == {release.driver}
    assert made.services == ("nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-dcgm.service")


@pytest.mark.parametrize(
    ("nvswitches", "in_image", "asked", "fabric"),
    [
        (4, False, "auto", "nvswitch"),
        (0, False, "auto", "none"),
        (4, False, "none", "none"),
        # An image can be built on any machine, so the builder's PCI bus is ignored.
        (4, True, "auto", "none"),
        (0, True, "nvswitch", "nvswitch"),
        (0, False, "nvlink5", "nvlink5"),
    ],
)
def test_fabric_manager_depends_on_the_setting_and_detected_nvswitches(tmp_path, nvswitches, in_image, asked, fabric):
    node = Node(tmp_path, nvswitches=nvswitches)
    node.write("/lib/modules/6.1.0-31-amd64/kernel/x.ko", "")
    made = planned(node, in_image, fabric=asked)
    assert made.fabric == fabric
    assert ("nvidia-fabricmanager.service" in made.services) == (fabric != "none")
    assert ("nvlsm" in names(made)) == (fabric == "nvlink5")
    assert bool(made.notes) == (in_image and asked == "auto")


def test_an_image_gets_modules_for_each_installed_kernel(tmp_path):
    node = Node(tmp_path)
    node.write("/lib/modules/6.1.0-40-amd64/kernel/x.ko", "")
    # A package that was removed left this file behind.
    node.write("/lib/modules/6.1.0-1-amd64/modules.dep.bin", "")
    assert planned(node, in_image=True).kernels == ("6.1.0-40-amd64",)


@pytest.mark.parametrize(
    ("system", "settings", "why", "remedy"),
    [
        ("debian13", {"driver": "580.173.02", "dcgm": False}, "580.173.02 is not supported on debian 13", "595.91.07"),
        ("debian13", {}, "DCGM is not supported on debian 13", "gpu_node_dcgm: false"),
        ("debian12", {"modules": "precompiled"}, "no precompiled modules of branch 595", "dkms"),
        ("ubuntu2404", {"modules": "precompiled", "driver": "610.57.04"}, "branch 610 for kernel 6.8", "580 or 595"),
        ("debian12", {"gpudirect": "peermem"}, "nvidia-peermem needs DOCA's", "gpu_node_gpudirect: dmabuf"),
        ("debian12", {"rdma": "doca"}, "no DOCA-Host in the table is for debian 12", "gpu_node_rdma: inbox"),
        ("rocky8", {}, "kernel 4.18.0-553.el8_10.x86_64 has no dma-buf", "peermem"),
    ],
)
def test_an_unsupported_combination_is_refused_with_an_alternative(tmp_path, system, settings, why, remedy):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path, system), **settings)
    assert why in str(error.value)
    assert remedy in str(error.value).split(why)[1]


def test_all_refusals_are_reported_together(tmp_path):
    with pytest.raises(RequestError, match=r"needs DOCA.*no DOCA-Host|no DOCA-Host.*DCGM|DCGM.*needs DOCA"):
        planned(Node(tmp_path, "debian13"), gpudirect="peermem")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "Secure Boot is on"),
        ({"signing": True, "storage": True}, "nvidia-fs is not supported with Secure Boot"),
    ],
)
def test_secure_boot_needs_signed_modules(tmp_path, settings, why):
    with pytest.raises(RequestError, match=why):
        planned(Node(tmp_path, secure_boot=True), **settings)


@pytest.mark.parametrize(
    ("system", "settings", "kernel"),
    [
        ("debian12", {"signing": True}, "6.1.0-31-amd64"),
        ("ubuntu2404", {"modules": "precompiled"}, "6.8.0-60-generic"),
    ],
)
def test_signed_modules_are_accepted_with_secure_boot(tmp_path, system, settings, kernel):
    assert planned(Node(tmp_path, system, secure_boot=True), **settings).kernels == (kernel,)


@pytest.mark.parametrize(("system", "version"), [("ubuntu2404", "3.1"), ("rhel9", "3.1"), ("rhel10", "3.4.1")])
def test_the_doca_version_is_the_one_for_the_distribution(tmp_path, system, version):
    made = planned(Node(tmp_path, system), rdma="doca", gpudirect="peermem")
    assert f"doca-ofed={version}" in names(made)
    assert "rdma-core" not in names(made)
    assert "nvidia-peermem\n" in made.files["/etc/modules-load.d/sailloft-gpu-node.conf"]


def test_a_distribution_that_is_not_in_the_table_is_refused(tmp_path):
    node = Node(tmp_path)
    node.write("/etc/os-release", "ID=fedora\nVERSION_ID=42\n")
    with pytest.raises(HostError, match="fedora 42 is not in the table"):
        planned(node)


def test_an_unsupported_architecture_is_refused(tmp_path):
    machine = replace(observe(Node(tmp_path), False), architecture="aarch64")
    with pytest.raises(RequestError, match="this machine is aarch64"):
        plan.make(request.read({}), machine)


def test_the_same_input_gives_the_same_plan(tmp_path):
    node = Node(tmp_path)
    assert planned(node, repositories=[ARCHIVE]) == planned(node, repositories=[ARCHIVE])


@pytest.mark.parametrize(
    ("system", "settings", "fabric"),
    [
        ("debian12", {}, ["nvidia-fabricmanager=595.91.07", "libnvidia-nscq=595.91.07"]),
        ("ubuntu2604", {"dcgm": False}, ["nvidia-fabricmanager=595.91.07", "libnvidia-nscq=595.91.07"]),
        # In the archive of precompiled modules the names contain the branch, as in all archives up to branch 580.
        (
            "ubuntu2604",
            {"modules": "precompiled", "dcgm": False},
            ["nvidia-fabricmanager-595=595.91.07", "libnvidia-nscq-595=595.91.07"],
        ),
        (
            "ubuntu2404",
            {"driver": "580.173.02"},
            ["nvidia-fabricmanager-580=580.173.02", "libnvidia-nscq-580=580.173.02"],
        ),
        ("rhel9", {}, ["nvidia-fabricmanager=595.91.07", "libnvidia-nscq=595.91.07"]),
        ("rhel9", {"driver": "580.173.02"}, ["nvidia-fabric-manager=580.173.02", "libnvidia-nscq=580.173.02"]),
    ],
)
def test_fabric_manager_packages_depend_on_distribution_and_branch(tmp_path, system, settings, fabric):
    made = planned(Node(tmp_path, system, nvswitches=4), **settings)
    assert [name for name in names(made) if "fabric" in name or "nscq" in name] == fabric


def test_dkms_is_the_only_remedy_if_no_modules_are_precompiled(tmp_path):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path, "debian12"), modules="precompiled")
    assert "set gpu_node_modules: dkms" in str(error.value)
    assert "available:" not in str(error.value)


def test_an_image_without_a_kernel_is_refused(tmp_path):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path), in_image=True)
    assert "the image has no kernel to build modules for: add a kernel to a layer below" in str(error.value)


def test_the_kernel_version_is_parsed_from_the_release():
    assert plan.kernel_version("6.8.0-60-generic") == (6, 8)
    assert plan.kernel_version("custom") == (0, 0)
