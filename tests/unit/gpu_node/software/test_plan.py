# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_nodes import ARCHIVE, SYSTEMS, Node
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import plan, request
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import observe
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import RELEASES
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError


def planned(node, in_image=False, **settings):
    return plan.make(request.read({"dcgm": True, **settings}), observe(node, in_image))


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
    made = planned(Node(tmp_path, system, nvswitches=4), driver=release.driver, storage="nvidia_fs")
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
        ("debian13", {"driver": "580.173.02", "dcgm": False}, Mentions("580.173.02", "13"), "595.91.07"),
        ("debian13", {}, Mentions("DCGM", "13"), "gpu_node_dcgm: false"),
        ("debian12", {"modules": "precompiled"}, Mentions("595", "branch"), "dkms"),
        ("ubuntu2404", {"modules": "precompiled", "driver": "610.57.04"}, Mentions("610", "6.8"), "580 or 595"),
        ("debian12", {"gpudirect": "peermem"}, Mentions("nvidia-peermem", "DOCA's"), "gpu_node_gpudirect: dmabuf"),
        ("debian12", {"rdma": "doca"}, Mentions("DOCA-Host", "12"), "gpu_node_rdma: inbox"),
        ("rocky8", {}, Mentions("4.18.0-553.el8_10.x86_64", "dma-buf"), "peermem"),
    ],
)
def test_an_unsupported_combination_is_refused_with_an_alternative(tmp_path, system, settings, why, remedy):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path, system), **settings)
    assert str(error.value) == why
    assert remedy in str(error.value)


def test_all_refusals_are_reported_together(tmp_path):
    with pytest.raises(RequestError, match=r"needs DOCA.*no DOCA-Host|no DOCA-Host.*DCGM|DCGM.*needs DOCA"):
        planned(Node(tmp_path, "debian13"), gpudirect="peermem")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, Mentions("Secure")),
        ({"signing": True, "storage": "nvidia_fs"}, Mentions("nvidia-fs")),
    ],
)
def test_secure_boot_needs_signed_modules(tmp_path, settings, why):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path, secure_boot=True), **settings)
    assert str(error.value) == why


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
    with pytest.raises(HostError, match="fedora 42"):
        planned(node)


def test_an_unsupported_architecture_is_refused(tmp_path):
    machine = replace(observe(Node(tmp_path), False), architecture="aarch64")
    with raises(RequestError, "x86_64", "aarch64"):
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
    with raises(RequestError, "debian 12", "6.1.0-31-amd64", "set gpu_node_modules: dkms") as error:
        planned(Node(tmp_path, "debian12"), modules="precompiled")
    assert "available:" not in str(error.value)


def test_an_image_without_a_kernel_is_refused(tmp_path):
    with pytest.raises(RequestError) as error:
        planned(Node(tmp_path), in_image=True)
    assert "the image has no kernel to build modules for: add a kernel to a layer below" in str(error.value)


def test_the_kernel_version_is_parsed_from_the_release():
    assert plan.kernel_version("6.8.0-60-generic") == (6, 8)
    assert plan.kernel_version("custom") == (0, 0)


@pytest.mark.parametrize(
    ("system", "settings", "change", "refusals"),
    [
        (
            "debian12",
            {},
            {"architecture": "aarch64"},
            [Mentions("x86_64", "aarch64")],
        ),
        (
            "debian13",
            {"driver": "580.105.08", "dcgm": False},
            {},
            [Mentions("580.105.08", "13", "gpu_node_driver", "595.91.07")],
        ),
        (
            "debian12",
            {"modules": "precompiled"},
            {},
            [Mentions("595", "6.1.0-31-amd64", "12", "gpu_node_modules")],
        ),
        (
            "ubuntu2204",
            {"modules": "precompiled", "driver": "610.57.04"},
            {},
            [Mentions("610", "5.15.0-130-generic", "22.04", "5.15", "580", "595")],
        ),
        (
            "ubuntu2404",
            {"modules": "precompiled"},
            {"kernels": ("6.11.0-1-generic", "6.8.0-1-generic")},
            [Mentions("595", "6.11.0-1-generic", "24.04", "6.8", "580")],
        ),
        (
            "debian12",
            {},
            {"kernels": ("5.11.22", "5.12.0", "4.19.0")},
            [
                Mentions(kernel, "dma-buf", "RDMA", "5.12", "gpu_node_gpudirect", "gpu_node_rdma")
                for kernel in ("5.11.22", "4.19.0")
            ],
        ),
        ("debian12", {"gpudirect": "none"}, {"kernels": ("5.11.22",)}, []),
        (
            "debian12",
            {},
            {"secure_boot": True},
            [Mentions("DKMS", "gpu_node_module_signing", "gpu_node_modules")],
        ),
        ("debian13", {}, {}, [Mentions("DCGM", "13", "gpu_node_dcgm")]),
        ("debian12", {"rdma": "doca"}, {}, [Mentions("DOCA-Host", "12", "gpu_node_rdma")]),
        (
            "rhel9",
            {"rdma": "doca"},
            {"version": "9.5"},
            [Mentions("DOCA-Host", "9.5", "gpu_node_rdma")],
        ),
        (
            "debian12",
            {"gpudirect": "peermem"},
            {},
            [Mentions("nvidia-peermem", "DOCA's", "RDMA", "gpu_node_gpudirect", "dmabuf", "gpu_node_rdma")],
        ),
        (
            "debian12",
            {"storage": "nvidia_fs", "signing": True},
            {"secure_boot": True},
            [Mentions("nvidia-fs", "gpu_node_storage")],
        ),
        (
            "ubuntu2404",
            {"storage": "nvidia_fs", "modules": "precompiled"},
            {},
            [Mentions("nvidia-fs", "gpu_node_modules")],
        ),
        (
            "ubuntu2404",
            {"fabric": "nvlink5", "modules": "precompiled"},
            {},
            [Mentions("NVLink", "5", "gpu_node_modules")],
        ),
        (
            "debian13",
            {"gpudirect": "peermem"},
            {"architecture": "aarch64"},
            [
                Mentions("x86_64", "aarch64"),
                Mentions("DCGM", "13", "gpu_node_dcgm"),
                Mentions("nvidia-peermem", "DOCA's", "RDMA", "gpu_node_gpudirect", "dmabuf", "gpu_node_rdma"),
            ],
        ),
    ],
)
def test_every_refusal_has_its_cause_and_remedy(tmp_path, system, settings, change, refusals):
    machine = replace(observe(Node(tmp_path, system), False), **change)
    if not refusals:
        assert plan.make(request.read({"dcgm": True, **settings}), machine).kernels == machine.kernels
        return
    with pytest.raises(RequestError) as error:
        plan.make(request.read({"dcgm": True, **settings}), machine)
    assert [refusal for refusal in refusals if str(error.value) != refusal] == []


@pytest.mark.parametrize(
    ("system", "more"),
    [
        ("debian12", {"/etc/apt/preferences.d/sailloft-gpu-node"}),
        ("rhel9", {"/etc/dnf/modules.d/nvidia-driver.module"}),
        ("rhel10", set()),
    ],
)
def test_a_plan_has_the_files_of_the_package_manager(tmp_path, system, more):
    made = planned(Node(tmp_path, system))
    assert set(made.files) == more | {
        "/etc/modprobe.d/sailloft-gpu-node.conf",
        "/etc/modules-load.d/sailloft-gpu-node.conf",
        "/etc/security/limits.d/sailloft-gpu-node.conf",
        "/etc/systemd/system.conf.d/sailloft-gpu-node.conf",
    }
    for text in (made.files[path] for path in more if "dnf" in path):
        assert "stream=595-open\n" in text


@pytest.mark.parametrize(
    ("settings", "services"),
    [
        ({}, ["nvidia-persistenced.service", "nvidia-dcgm.service"]),
        ({"dcgm": False}, ["nvidia-persistenced.service"]),
        ({"dcgm": False, "fabric": "nvswitch"}, ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]),
    ],
)
def test_the_services_are_those_of_the_installed_software(tmp_path, settings, services):
    made = planned(Node(tmp_path), **settings)
    assert made.services == tuple(services)
    assert made.driver == "595.91.07"
    assert made.notes == ()


@pytest.mark.parametrize(
    ("version", "doca"), [("9.6", "3.1"), ("9.7", "3.1"), ("10.0", "3.1"), ("10.1", "3.1"), ("10.2", "3.4.1")]
)
def test_doca_depends_on_the_minor_release(tmp_path, version, doca):
    node = Node(tmp_path, "rhel9")
    node.write("/etc/os-release", f"ID=rhel\nVERSION_ID={version}\n")
    assert f"doca-ofed={doca}" in names(planned(node, rdma="doca"))
