# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpu_nodes import ARCHIVE, FINGERPRINT, KEY, Node
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import ensure, packages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

PINS = "/etc/apt/preferences.d/sailloft-gpu-node"
SOURCE = "/etc/apt/sources.list.d/sailloft-cuda.list"


def files(node):
    return {str(path): path.read_bytes() for path in Path(node.root).rglob("*") if path.is_file()}


def test_check_mode_writes_nothing_and_predicts_the_run(tmp_path):
    node = Node(tmp_path)
    before = files(node)
    predicted = ensure.ensure(node, {"repositories": [ARCHIVE]}, in_image=False, check=True)
    assert files(node) == before
    done = ensure.ensure(node, {"repositories": [ARCHIVE]}, in_image=False)
    assert (done.before, done.after, done.facts) == (predicted.before, predicted.after, predicted.facts)
    assert done.facts["archives_changed"]
    again = ensure.ensure(node, {"repositories": [ARCHIVE]}, in_image=False)
    assert not again.changed
    assert not again.facts["archives_changed"]


def test_the_apt_source_trusts_only_the_key_of_the_archive(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {"repositories": [ARCHIVE]}, in_image=False)
    key = "/etc/apt/keyrings/sailloft-cuda.asc"
    assert node.read(SOURCE).splitlines()[1] == f"deb [signed-by={key}] {ARCHIVE['url']} /"
    assert Path(node.path(key)).read_text() == KEY


def test_dnf_verifies_packages_and_uses_the_stream_of_the_branch(tmp_path):
    node = Node(tmp_path, "rhel9")
    ensure.ensure(node, {"repositories": [ARCHIVE], "driver": "580.173.02"}, in_image=False)
    text = node.read("/etc/yum.repos.d/sailloft-cuda.repo")
    assert "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-sailloft-cuda" in text
    assert "stream=580-open\n" in node.read("/etc/dnf/modules.d/nvidia-driver.module")


def test_files_that_are_no_longer_wanted_are_removed(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {"repositories": [ARCHIVE], "rails_on_one_subnet": True}, in_image=False)
    done = ensure.ensure(node, {}, in_image=False)
    gone = {path for path, after in done.after.items() if after is None}
    assert gone == {SOURCE, "/etc/apt/keyrings/sailloft-cuda.asc", "/etc/sysctl.d/60-sailloft-gpu-node.conf"}
    assert not any(node.exists(path) for path in gone)


def test_absent_removes_every_file_and_lists_the_packages_to_remove(tmp_path):
    node = Node(tmp_path)
    before = files(node)
    done = ensure.ensure(node, {"repositories": [ARCHIVE], "rails_on_one_subnet": True}, in_image=False)
    node.packages = {name.split("=")[0]: "1" for name in done.facts["install"]} | {"bash": "5"}
    gone = ensure.remove(node, in_image=False)
    assert files(node) == before
    assert "nvidia-kernel-open-dkms" in gone.facts["remove"]
    assert {"bash", "rdma-core", "ethtool"}.isdisjoint(gone.facts["remove"])
    assert not ensure.remove(node, in_image=False).changed


def test_only_missing_packages_and_packages_of_other_versions_are_installed(tmp_path):
    node = Node(tmp_path)
    every = ensure.ensure(node, {}, in_image=False).facts["install"]
    assert "nvidia-kernel-open-dkms=595.91.07*" in every
    assert "datacenter-gpu-manager-4-core=1:4.6.0*" in every
    node.packages = {
        "nvidia-kernel-open-dkms": "595.91.07-1",
        "nvidia-driver-cuda": "595.71.05-1",
        "datacenter-gpu-manager-4-core": "1:4.6.0-1",
        "ethtool": "1:6.1-1",
    }
    facts = ensure.ensure(node, {}, in_image=False).facts
    assert set(every) - set(facts["install"]) == {
        *("nvidia-kernel-open-dkms=595.91.07*", "datacenter-gpu-manager-4-core=1:4.6.0*", "ethtool")
    }
    assert facts["versions"]["nvidia-driver-cuda"] == "595.71.05-1"


@pytest.mark.parametrize(
    ("wanted", "there", "same"),
    [
        ("595.91.07", "595.91.07-1ubuntu1", True),
        ("595.91.07", "3:595.91.07-1.el9", True),
        ("595.91.07", "595.91.070-1", False),
        ("595.91.07", "1595.91.07-1", False),
        ("3.1", "3.1.0-091000", True),
        ("3.1", "3.10.0-1", False),
    ],
)
def test_any_revision_of_the_wanted_version_is_accepted(wanted, there, same):
    assert packages.Package("x", wanted).is_installed({"x": there}) is same


def test_modules_of_another_driver_count_as_missing(tmp_path):
    node = Node(tmp_path)
    assert ensure.ensure(node, {}, in_image=False).facts["modules_missing"] == ["kernel 6.1.0-31-amd64 has none"]
    node.modules = {"6.1.0-31-amd64": "580.173.02"}
    missing = ensure.ensure(node, {}, in_image=False).facts["modules_missing"]
    assert missing == ["kernel 6.1.0-31-amd64 has modules of 580.173.02"]
    node.modules = {"6.1.0-31-amd64": "595.91.07"}
    assert ensure.ensure(node, {}, in_image=False).facts["modules_missing"] == []


@pytest.mark.parametrize(
    ("text", "gpus", "required", "loaded"),
    [
        ("", 8, True, None),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build  (x@y)\n",
            8,
            False,
            "595.91.07",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Mon Jan  1\n", 8, True, "580.173.02"),
    ],
)
def test_a_reboot_is_required_if_gpus_exist_and_the_driver_is_not_loaded(tmp_path, text, gpus, required, loaded):
    node = Node(tmp_path, gpus=gpus)
    if text:
        node.write("/proc/driver/nvidia/version", text + "GCC version:  gcc 12\n")
    facts = ensure.ensure(node, {}, in_image=False).facts
    assert (facts["reboot_required"], facts["loaded"]) == (required, loaded)


def test_every_installed_package_of_the_driver_is_pinned(tmp_path):
    node = Node(tmp_path, nvswitches=4)
    done = ensure.ensure(node, {"storage": "nvidia_fs"}, in_image=False)
    pins = node.read(PINS)
    for spec in (name for name in done.facts["install"] if "=" in name):
        name, version = spec.split("=")
        assert re.search(rf"Package: (.* )?{re.escape(name)}( .*)?\nPin: version {re.escape(version)}\n", pins), spec
    assert "nvidia-* libnvidia-*" in pins


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fingerprints": ["0" * 40]}, Mentions(FINGERPRINT)),
        ({"fingerprints": []}, Mentions("fingerprints")),
        ({"key": "-----BEGIN\n"}, Mentions("armored")),
        ({"url": "https://a b"}, Mentions("URL")),
        ({"url": "https://a [trusted=yes]"}, Mentions("URL")),
        ({"name": "../x"}, Mentions("part")),
        ({"suite": "bookworm"}, Mentions("flat")),
        ({"components": ["main"]}, Mentions("flat")),
    ],
)
def test_an_invalid_or_untrusted_archive_is_refused(tmp_path, change, why):
    node = Node(tmp_path)
    before = files(node)
    with pytest.raises(RequestError) as error:
        ensure.ensure(node, {"repositories": [{**ARCHIVE, **change}]}, in_image=False)
    assert str(error.value) == why
    assert files(node) == before


def test_fingerprints_may_be_written_as_gpg_shows_them(tmp_path):
    spaced = " ".join(FINGERPRINT[at : at + 4] for at in range(0, 40, 4)).lower()
    assert ensure.ensure(
        Node(tmp_path), {"repositories": [{**ARCHIVE, "fingerprints": [spaced]}]}, in_image=False
    ).changed


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"driver": "1.2.3"}, Mentions("1.2.3")), ({"extra_packages": ["a=1"]}, Mentions("package"))],
)
def test_an_invalid_request_is_refused(tmp_path, settings, why):
    with pytest.raises(RequestError) as error:
        ensure.ensure(Node(tmp_path), settings, in_image=False)
    assert str(error.value) == why


def test_only_the_pin_of_the_driver_matches_driver_packages(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {"storage": "nvidia_fs"}, in_image=False)
    pins = dict(re.findall(r"Package: (.*)\nPin: version (.*)\n", node.read(PINS)))
    assert {version for names, version in pins.items() if "libnvidia-*" in names.split()} == {"595.91.07*"}
    assert len(pins) == 3


def test_each_rail_answers_arp_only_for_its_own_address(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {"rails_on_one_subnet": True}, in_image=False)
    lines = node.read("/etc/sysctl.d/60-sailloft-gpu-node.conf").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "net.ipv4.conf.all.arp_announce = 1",
        "net.ipv4.conf.all.arp_filter = 1",
        "net.ipv4.conf.all.arp_ignore = 2",
    ]


def test_all_facts_of_a_node_are_returned(tmp_path):
    node = Node(tmp_path, gpus=2)
    facts = ensure.ensure(node, {"dcgm": False}, in_image=False).facts
    names = [
        "linux-headers-6.1.0-31-amd64",
        *("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"),
        *("rdma-core", "ibverbs-providers", "ibverbs-utils", "ethtool"),
    ]
    assert facts == {
        "archives_changed": False,
        "package_manager": "apt",
        "install": [f"{name}=595.91.07*" if name.startswith("nvidia") else name for name in names],
        "versions": dict.fromkeys(names),
        "services": ["nvidia-persistenced.service"],
        "driver": "595.91.07",
        "fabric": "none",
        "signing_key": {"key": "/var/lib/dkms/mok.key", "certificate": "/var/lib/dkms/mok.pub"},
        "kernels": ["6.1.0-31-amd64"],
        "modules_missing": ["kernel 6.1.0-31-amd64 has none"],
        "loaded": None,
        "reboot_required": True,
        "secure_boot": False,
        "notes": [],
    }


def test_an_image_gets_the_facts_of_no_machine(tmp_path):
    node = Node(tmp_path, "ubuntu2404", secure_boot=True)
    node.write("/lib/modules/6.8.0-60-generic/kernel/x.ko", "")
    facts = ensure.ensure(node, {}, in_image=True).facts
    assert (facts["reboot_required"], facts["secure_boot"], facts["loaded"]) == (False, False, None)
    assert facts["signing_key"] == {
        "key": "/var/lib/shim-signed/mok/MOK.priv",
        "certificate": "/var/lib/shim-signed/mok/MOK.der",
    }
    assert facts["notes"] == [Mentions("gpu_node_fabric", "nvswitch", "nvlink5", "NVLink", "5")]
    signed = ensure.ensure(Node(tmp_path / "b", secure_boot=True), {"signing": True}, in_image=False).facts
    assert signed["secure_boot"] is True


def test_removal_in_check_mode_removes_nothing_and_predicts_the_removal(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {"repositories": [ARCHIVE]}, in_image=False)
    node.packages = {"nvidia-persistenced": "595.91.07-1", "bash": "5"}
    before = files(node)
    predicted = ensure.remove(node, in_image=False, check=True)
    assert files(node) == before
    assert predicted.facts == {
        "archives_changed": True,
        "package_manager": "apt",
        "remove": ["nvidia-persistenced"],
        "notes": [],
    }
    done = ensure.remove(node, in_image=False)
    assert (done.before, done.after, done.facts) == (predicted.before, predicted.after, predicted.facts)
    assert set(done.after.values()) == {None}
    assert done.before[SOURCE] == before[f"{tmp_path}{SOURCE}"].decode()


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("/etc/apt/sources.list.d/sailloft-old.list", True),
        ("/etc/apt/keyrings/sailloft-old.asc", True),
        ("/etc/sysctl.d/60-sailloft-gpu-node.conf", False),
    ],
)
def test_package_lists_are_outdated_if_a_file_of_an_archive_is_removed(tmp_path, path, changed):
    node = Node(tmp_path)
    ensure.ensure(node, {}, in_image=False)
    node.write(path, "x\n")
    done = ensure.ensure(node, {}, in_image=False)
    assert (done.before, done.after) == ({path: "x\n"}, {path: None})
    assert done.facts["archives_changed"] is changed


@pytest.mark.parametrize("name", ["sailloft-old.list.save", "xsailloft-old.list", "sailloft-A.list", "sailloft-axlist"])
def test_files_with_other_names_are_kept(tmp_path, name):
    node = Node(tmp_path)
    node.write(f"/etc/apt/sources.list.d/{name}", "x\n")
    assert not ensure.remove(node, in_image=False).changed


def test_a_file_that_is_not_utf_8_is_replaced(tmp_path):
    node = Node(tmp_path)
    ensure.ensure(node, {}, in_image=False)
    pins = node.read_bytes(PINS)
    Path(node.path(PINS)).write_bytes(b"\xff")
    done = ensure.ensure(node, {}, in_image=False)
    assert (done.before, done.after) == ({PINS: "\ufffd"}, {PINS: pins.decode()})
    assert node.read_bytes(PINS) == pins


P2PDMA = {"storage": "p2pdma"}
CUFILE, MODPROBE = "/etc/cufile.json", "/etc/modprobe.d/sailloft-gpu-node.conf"


def newer(tmp_path) -> Node:
    """Return a node whose kernel has P2PDMA, and whose driver runs with what P2PDMA needs."""
    node = Node(tmp_path, system="ubuntu2404")
    node.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  595.91.07  Release\n")
    node.write("/proc/driver/nvidia/params", 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\n')
    node.write("/sys/module/nvme_core/parameters/multipath", "N\n")
    return node


def test_p2pdma_writes_the_settings_of_cufile_nvme_and_driver_once(tmp_path):
    node = newer(tmp_path)
    done = ensure.ensure(node, P2PDMA, in_image=False)
    assert {CUFILE, MODPROBE} <= set(done.after)
    assert 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1;"' in node.read(MODPROBE)
    assert "options nvme_core multipath=N" in node.read(MODPROBE)
    assert not any("nvidia-fs" in name for name in done.facts["install"])
    assert (done.pending, done.facts["reboot_required"]) == ([], False)
    assert not ensure.ensure(node, P2PDMA, in_image=False).changed


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/driver/nvidia/params", 'RegistryDwords: ""\n'),
        ("/sys/module/nvme_core/parameters/multipath", "Y\n"),
    ],
)
def test_what_p2pdma_needs_of_the_next_boot_is_pending(tmp_path, path, text):
    node = newer(tmp_path)
    node.write(path, text)
    done = ensure.ensure(node, P2PDMA, in_image=False)
    assert len(done.pending) == 1
    assert done.facts["reboot_required"]
    assert ensure.ensure(node, {"storage": "nvidia_fs"}, in_image=False).pending == []


def test_cufile_json_of_a_package_is_replaced_and_never_removed(tmp_path):
    node = newer(tmp_path)
    node.write(CUFILE, "{}\n")
    assert CUFILE not in ensure.ensure(node, {}, in_image=False).after
    ensure.remove(node, False)
    assert node.read(CUFILE) == "{}"
    ensure.ensure(node, P2PDMA, in_image=False, check=True)
    assert node.read(CUFILE) == "{}"
    assert ensure.ensure(node, P2PDMA, in_image=False).before[CUFILE] == "{}\n"
    ensure.ensure(node, {}, in_image=False)
    assert not node.exists(CUFILE)


def test_an_older_kernel_is_refused_before_anything_is_written(tmp_path):
    node = Node(tmp_path)
    before = files(node)
    with pytest.raises(RequestError) as error:
        ensure.ensure(node, P2PDMA, in_image=False)
    assert str(error.value) == Mentions("6.2", "nvidia_fs")
    assert files(node) == before


def test_the_rails_of_a_node_stand_in_cufile_json_and_an_image_has_none(tmp_path):
    node = newer(tmp_path)
    rails = {**P2PDMA, "storage_settings": {"properties.rdma_dev_addr_list": "rails"}}
    with pytest.raises(RequestError) as error:
        ensure.ensure(node, rails, in_image=False)
    assert str(error.value) == Mentions("rails")
    node.write("/sys/class/infiniband/mlx5_0/device/net/eth0/mtu", "9000\n")
    shown = '[{"ifname": "eth0", "addr_info": [{"local": "10.0.0.1"}]}]'
    node.answers[("ip", "-j", "-4", "address", "show")] = shown
    ensure.ensure(node, rails, in_image=False)
    assert '"10.0.0.1"' in node.read(CUFILE)
    with pytest.raises(RequestError):
        ensure.ensure(node, rails, in_image=True)


def test_settings_without_gpudirect_storage_are_refused(tmp_path):
    with pytest.raises(RequestError) as error:
        ensure.ensure(Node(tmp_path), {"storage_settings": {"logging.level": "INFO"}}, in_image=False)
    assert str(error.value) == Mentions("storage_settings", "gpu_node_storage")
