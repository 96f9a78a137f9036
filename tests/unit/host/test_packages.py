# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of a host: dpkg is this machine's; rpm and systemd do not run here and are simulated."""

from __future__ import annotations

import shutil

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host import packages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common import units
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

SOCKETS = ["virtqemud.socket", "virtnetworkd.socket"]


class Host(System):
    """A host with this /etc/os-release; ``answers`` replace the output of this machine's commands."""

    def __init__(self, release, **answers):
        super().__init__()
        self.release, self.answers, self.commands = release, answers, []

    def read(self, path):
        assert path == "/etc/os-release"
        return self.release

    def run(self, argv, stdin=None, timeout_s=None):
        self.commands.append(argv)
        if argv[0] not in self.answers:
            return super().run(argv, stdin, timeout_s)
        if isinstance(self.answers[argv[0]], HostError):
            raise self.answers[argv[0]]
        return self.answers[argv[0]]


def missing(host, **given):
    outcome = packages.observe(host, {"installed": {}, "sockets": {}, **given})
    return list(outcome.after)


RELEASES = {
    "Debian": ("Debian", 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"'),
    "Ubuntu": ("Debian", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04"),
    "Fedora": ("RedHat", "ID=fedora\nVARIANT_ID=debian"),
    "Rocky Linux": ("RedHat", 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"'),
    "Oracle Linux": ("RedHat", 'ID="ol"\nID_LIKE="fedora"'),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_distribution_has_the_same_family_as_in_ansible(name):
    family, release = RELEASES[name]
    host = Host(release, **{"dpkg-query": "a installed\n", "rpm": "a-1.0-1.x86_64\n"})
    assert missing(host, installed={family: ["a"]}) == []
    assert [argv[0] for argv in host.commands] == [{"Debian": "dpkg-query", "RedHat": "rpm"}[family]]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="there is no dpkg here")
def test_installed_packages_are_read_from_dpkg():
    host = Host(RELEASES["Debian"][1])
    assert missing(host, installed={"Debian": ["dpkg", "libc6"], "RedHat": ["none-such"]}) == []
    with pytest.raises(HostError, match="no packages found matching none-such"):
        missing(host, installed={"Debian": ["dpkg", "none-such"]})


def test_a_package_that_dpkg_does_not_list_as_installed_is_missing():
    shown = "ovmf config-files\nqemu-system-x86 installed\nlibc6 not-installed\nlibc6 installed\n"
    host = Host(RELEASES["Debian"][1], **{"dpkg-query": shown})
    assert missing(host, installed={"Debian": ["ovmf", "qemu-system-x86", "libc6", "unsaid"]}) == ["ovmf", "unsaid"]


def test_a_name_that_no_rpm_provides_is_refused():
    host = Host(RELEASES["Fedora"][1], rpm=HostError("no package provides edk2-ovmf", "run again"))
    with raises(HostError, "edk2-ovmf"):
        missing(host, installed={"RedHat": ["libvirt", "edk2-ovmf"]})
    assert host.commands == [["rpm", "--query", "--whatprovides", "libvirt", "edk2-ovmf"]]


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ([("active", "enabled"), ("active", "enabled")], []),
        ([("active", "enabled"), ("inactive", "enabled")], SOCKETS[1:]),
        ([("active", "disabled"), ("active", "enabled")], SOCKETS[:1]),
        ([("inactive", ""), ("inactive", "")], SOCKETS),  # no such unit
    ],
)
def test_a_socket_must_be_active_and_enabled(states, left):
    shown = "\n".join(f"ActiveState={active}\nUnitFileState={enabled}\n" for active, enabled in states)
    host = Host(RELEASES["Fedora"][1], systemctl=shown)
    assert missing(host, sockets={"RedHat": SOCKETS}) == left
    assert missing(Host(RELEASES["Debian"][1]), sockets={"RedHat": SOCKETS}) == []


def test_an_unknown_family_is_refused_only_if_packages_are_requested():
    host = Host('ID="sles"\nID_LIKE="suse"')
    assert missing(host) == []
    with pytest.raises(HostError, match="distribution"):
        missing(host, installed={"Debian": ["ovmf"]})


def test_missing_packages_and_stopped_sockets_are_shown_with_their_states():
    shown = "ActiveState=inactive\nUnitFileState=disabled\n\nActiveState=active\nUnitFileState=enabled\n"
    listed = "a config-files\na half-installed\nb installed\n"
    host = Host(RELEASES["Debian"][1], **{"dpkg-query": listed, "systemctl": shown})
    given = {"installed": {"Debian": ["a", "b", "c"]}, "sockets": {"Debian": SOCKETS}}
    outcome = packages.observe(host, given)
    assert outcome.before == {"a": ["config-files", "half-installed"], "c": [], SOCKETS[0]: "inactive disabled"}
    assert outcome.after == {"a": "installed", "c": "installed", SOCKETS[0]: "active enabled"}
    assert host.commands == [
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", "a", "b", "c"],
        ["systemctl", "show", f"--property={units.PROPERTIES}", *SOCKETS],
    ]


@pytest.mark.parametrize("given", [{}, {"installed": {"RedHat": ["a"]}}, {"sockets": {"Debian": []}}])
def test_no_command_runs_if_nothing_is_wanted_of_this_family(given):
    host = Host(RELEASES["Debian"][1])
    assert missing(host, **given) == []
    assert host.commands == []
