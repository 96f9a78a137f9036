# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import client

CAPABILITIES = """<domainCapabilities><machine>pc-q35-7.2</machine><vcpu max='288'/><os supported='yes'>
<enum name='firmware'>{}</enum><loader supported='yes'/></os></domainCapabilities>"""


class Respawn:
    """The functions of ansible.module_utils.common.respawn that are called."""

    def __init__(self, found, has_respawned=False):
        self.found, self.before, self.started = found, has_respawned, []

    def has_respawned(self):
        return self.before

    def probe_interpreters_for_module(self, interpreters, module):
        assert module == "libvirt"
        return self.found if self.found in interpreters else None

    def respawn_module(self, interpreter):
        self.started.append(interpreter)


@pytest.mark.parametrize(
    ("missing", "found", "before", "started"),
    [
        (True, "/usr/bin/python3", False, ["/usr/bin/python3"]),
        (True, None, False, []),
        (True, "/usr/bin/python3", True, []),
        (False, "/usr/bin/python3", False, []),
    ],
)
def test_the_module_restarts_with_the_interpreter_that_has_the_binding(monkeypatch, missing, found, before, started):
    monkeypatch.setattr(client, "libvirt", None if missing else object())
    respawn = Respawn(found, before)
    client.run_with_binding(respawn)
    assert respawn.started == started


def test_an_accelerator_is_read_from_the_domain_capabilities() -> None:
    with_ovmf = client.accelerator(CAPABILITIES.format("<value>efi</value>"), {"pc-q35-7.2": 255})
    assert (with_ovmf.max_vcpus, with_ovmf.firmwares, with_ovmf.machine) == (288, ["bios", "efi"], "pc-q35-7.2")
    assert with_ovmf.machines == {"pc-q35-7.2": 255}
    assert client.accelerator(CAPABILITIES.format(""), {}).firmwares == ["bios"]


def test_only_q35_machines_of_x86_64_are_read() -> None:
    capabilities = """<capabilities><guest><arch name='i686'><machine maxCpus='8'>pc-q35-1.0</machine></arch></guest>
<guest><arch name='x86_64'><machine maxCpus='288'>pc-q35-8.2</machine><machine canonical='pc-q35-9.0'>q35</machine>
<machine maxCpus='255'>pc-i440fx-8.2</machine><domain type='kvm'><machine>pc-q35-rhel9.4.0</machine></domain></arch>
</guest></capabilities>"""
    assert client.q35_machines(capabilities) == {"pc-q35-8.2": 288, "pc-q35-rhel9.4.0": 0}


def test_huge_page_sizes_are_read_from_mounts_and_meminfo() -> None:
    mounts = """proc /proc proc rw 0 0
hugetlbfs /dev/hugepages hugetlbfs rw,relatime 0 0
none /dev/hugepages-1G hugetlbfs rw,relatime,pagesize=1024M 0 0
none /dev/hugepages-16M hugetlbfs rw,pagesize=16384K 0 0
"""
    assert client.hugetlbfs_sizes(mounts, 2) == [2, 16, 1024]
    assert client.hugetlbfs_sizes(mounts.splitlines()[0], 2) == []
    assert client.default_huge_page_mib("MemTotal: 1 kB\nHugepagesize:    1048576 kB\n") == 1024
    assert client.default_huge_page_mib("MemTotal: 1 kB\n") == 0


def test_a_missing_binding_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "libvirt", None)
    with raises(DomainError, "python3-libvirt"):
        client.Client()
