# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import pytest
from gpu_nodes import SYSTEMS, Node
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import machine, systems
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError


def test_all_facts_of_a_machine_are_read(tmp_path):
    node = Node(tmp_path, gpus=3, nvswitches=2, secure_boot=True)
    node.write("/sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n")
    node.write("/sys/bus/pci/devices/0000:00:00.0/class", "0x030000\n")
    node.write("/sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de\n")
    node.write("/sys/bus/pci/devices/0000:00:01.0/class", "0x030000\n")
    node.write("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x10de\n")
    node.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  595.91.07  Release\n")
    node.packages, node.modules = {"bash": "5.2-1"}, {"6.1.0-31-amd64": "595.91.07"}
    assert machine.observe(node, False) == machine.MachineFacts(
        system=systems.find("debian", "12"),
        version="12",
        in_image=False,
        kernels=("6.1.0-31-amd64",),
        architecture="x86_64",
        devices=machine.SoftwareDevices(gpus=4, nvswitches=2),
        secure_boot=True,
        installed={"bash": "5.2-1"},
        modules={"6.1.0-31-amd64": "595.91.07"},
        loaded="595.91.07",
    )


def test_an_image_has_no_facts_of_the_machine_that_builds_it(tmp_path):
    node = Node(tmp_path, gpus=3, nvswitches=2, secure_boot=True)
    node.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  595.91.07  Release\n")
    node.write("/lib/modules/6.1.0-40-amd64/kernel/x.ko", "")
    node.write("/lib/modules/6.1.0-41-amd64/kernel/x.ko", "")
    node.modules = {"6.1.0-40-amd64": "595.91.07"}
    seen = machine.observe(node, True)
    assert (seen.devices, seen.secure_boot, seen.loaded, seen.in_image) == (None, None, None, True)
    assert seen.kernels == ("6.1.0-40-amd64", "6.1.0-41-amd64")
    assert seen.modules == {"6.1.0-40-amd64": "595.91.07"}


@pytest.mark.parametrize(
    ("value", "on"), [(b"", False), (b"\6\0\0\0\0", False), (b"\6\0\0\0\1", True), (b"\1\1\1\1\2", False)]
)
def test_secure_boot_is_the_last_byte_of_the_variable(tmp_path, value, on):
    node = Node(tmp_path, secure_boot=True)
    (variable,) = (tmp_path / "sys/firmware/efi/efivars").iterdir()
    variable.write_bytes(value)
    assert machine.observe(node, False).secure_boot is on


def test_secure_boot_is_off_on_a_machine_without_efi(tmp_path):
    assert machine.observe(Node(tmp_path), False).secure_boot is False


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, "this system "),
        ("", "this system "),
        ("ID=fedora\n", "fedora "),
        ("# ID=debian\nVERSION_ID=1=2\nID='my os'\n\n=x\n", "my os 1=2"),
    ],
)
def test_an_unknown_distribution_is_refused_by_its_name(tmp_path, text, shown):
    node = Node(tmp_path)
    release = Path(node.path("/etc/os-release"))
    release.unlink()
    if text is not None:
        release.write_text(text)
    with raises(HostError, "gpu_node", shown):
        machine.observe(node, False)


class Answering(Node):
    """A node whose package manager answers with ``output``."""

    output = ""

    def run(self, argv, stdin=None, timeout_s=None):
        if argv[0] in ("dpkg-query", "rpm"):
            self.ran.append(argv)
            return self.output
        return super().run(argv, stdin, timeout_s)


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("debian12", ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n"]),
        (
            "rhel9",
            ["rpm", "--query", "--all", "--queryformat", "installed %{NAME} %{EPOCH}:%{VERSION}-%{RELEASE}\n"],
        ),
    ],
)
def test_only_packages_that_are_installed_are_listed(tmp_path, system, command):
    node = Answering(tmp_path, system)
    node.output = "installed a 1:2-3\ninstalled b (none):4-5\nconfig-files c 1-1\ninstalled d\ninstalled e 1 2\n\n"
    assert machine.observe(node, False).installed == {"a": "1:2-3", "b": "4-5"}
    assert node.ran[0] == command


def test_the_driver_of_the_running_kernel_is_asked_of_modinfo(tmp_path):
    node = Node(tmp_path)
    node.modules = {"6.1.0-31-amd64": ""}
    assert machine.observe(node, False).modules == {}
    assert node.ran[-1] == ["modinfo", "--set-version", "6.1.0-31-amd64", "--field", "version", "nvidia"]


@pytest.mark.parametrize(
    "text", ["", "NVRM version: none\n", "x NVRM version: a  1.2  b\n", "NVRM version: a  595  b\n"]
)
def test_a_driver_version_in_another_form_is_not_read(tmp_path, text):
    node = Node(tmp_path)
    node.write("/proc/driver/nvidia/version", text)
    assert machine.observe(node, False).loaded is None


@pytest.mark.parametrize(
    ("system", "package"),
    [("ubuntu2404", "linux-headers-6.8.0-60-generic"), ("rhel9", "kernel-devel-5.14.0-570.el9.x86_64")],
)
def test_headers_are_those_of_the_kernel(tmp_path, system, package):
    assert machine.headers(machine.observe(Node(tmp_path, system), False)) == [package]
    assert SYSTEMS[system][2] in package


def vpd(field):
    area = b"VA" + bytes([len(field)]) + field
    return b"\x90" + len(area).to_bytes(2, "little") + area + b"\x78"


def connectx(node, address, data, physfn=False):
    place = f"/sys/bus/pci/devices/{address}"
    node.write(f"{place}/vendor", "0x15b3\n")
    node.write(f"{place}/device", "0x1021\n")
    node.write(f"{place}/class", "0x020700\n")
    if data is not None:
        Path(node.path(f"{place}/vpd")).write_bytes(data)
    if physfn:
        node.write(f"{place}/physfn/vendor", "0x15b3\n")


@pytest.mark.parametrize(("gpus", "device"), [(8, "0x2901"), (1, "0x3182"), (0, "")])
def test_the_management_of_nvlink5_boards_is_known_by_vpd(tmp_path, gpus, device):
    node = Node(tmp_path, gpus=gpus, device=device)
    connectx(node, "0000:a0:00.0", vpd(b"MLX:MODL=X"))
    connectx(node, "0000:a1:00.0", vpd(b"MLX:SMDL=SW_MNG:MODL=X"))
    connectx(node, "0000:a2:00.0", b"")
    connectx(node, "0000:a3:00.0", None)
    connectx(node, "0000:a4:00.0", b"", physfn=True)
    found = machine.observe(node, False).devices
    assert (found.gpus, found.management) == (gpus, ("0000:a1:00.0",))
    # Without a GPU, only a machine that serves the board has such functions: the others are NICs.
    assert found.unknown == (("0000:a2:00.0",) if gpus else ())


def test_vpd_is_not_read_beside_older_gpus(tmp_path):
    node = Node(tmp_path, device="0x2330")
    connectx(node, "0000:a1:00.0", vpd(b"SMDL=SW_MNG"))
    connectx(node, "0000:a2:00.0", b"")
    assert machine.observe(node, False).devices == machine.SoftwareDevices(gpus=8)


@pytest.mark.parametrize(("device", "old"), [("0x1db6", 2), ("0x1e30", 0), ("", 0)])
def test_gpus_that_the_open_modules_cannot_drive_are_known_by_their_id(tmp_path, device, old):
    found = machine.observe(Node(tmp_path, gpus=2, device=device), False).devices
    assert found.old_gpus == ("0000:01:00.0", "0000:02:00.0")[:old]
