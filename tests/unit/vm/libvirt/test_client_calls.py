# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The calls to libvirt in order, on a connection that records them, and what becomes of each of its errors.

One file because all tests drive the same recording connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from clock import Clock
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import Lent
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import client
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Accelerator,
    Hypervisor,
    ObservedDomain,
)

libvirt = pytest.importorskip("libvirt")
GIB_KB = 1048576


def error(code: int, message: str = "no") -> Any:
    made = libvirt.libvirtError(message)
    made.args = (message,)  # the binding puts the last error of an earlier test there
    made.err = (code, 0, message, 0, "", None, None, 0, 0)
    return made


class Recorder:
    """An object of libvirt: each method returns or raises its answer, or the next one of a list; calls are recorded."""

    def __init__(self, calls: list[Any], **answers: Any) -> None:
        self._calls, self._answers = calls, answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self._calls.append((name, *arguments))
            answer = self._answers[name]
            if isinstance(answer, list) and answer and isinstance(answer[0], tuple):
                answer = answer.pop(0)[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def opened(connection: Recorder) -> client.Client:
    with mock.patch.object(libvirt, "open", return_value=connection):
        return client.Client()


def connected(**answers: Any) -> tuple[client.Client, list[Any]]:
    calls: list[Any] = []
    return opened(Recorder(calls, **answers)), calls


def with_domain(**answers: Any) -> tuple[client.Client, list[Any]]:
    """Return a client whose only domain gives these answers; the calls of both are recorded together."""
    calls: list[Any] = []
    return opened(Recorder(calls, lookupByName=Recorder(calls, **answers))), calls


CAPABILITIES = (
    "<capabilities><guest><arch name='x86_64'><machine maxCpus='288'>pc-q35-7.2</machine></arch></guest></capabilities>"
)
OF_KVM = "<domainCapabilities><machine>pc-q35-7.2</machine><vcpu max='255'/></domainCapabilities>"
OF_QEMU = "<domainCapabilities/>"
NETWORK = {"name": "default", "isActive": 1, "XMLDesc": "<network/>"}


@pytest.fixture(autouse=True)
def proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "mounts").write_text("h /dev/hugepages hugetlbfs rw 0 0\n")
    (folder / "meminfo").write_text(f"Hugepagesize:    {GIB_KB} kB\n")
    (tmp_path / "nx_huge_pages").write_text("N\n")
    monkeypatch.setattr(client, "PROC", str(folder))
    monkeypatch.setattr(client, "NX_HUGE_PAGES", str(tmp_path / "nx_huge_pages"))
    return folder


def domain(name: str, active: int, persistent: int = 1, autostart: int = 1) -> dict[str, Any]:
    state = libvirt.VIR_DOMAIN_RUNNING if active else libvirt.VIR_DOMAIN_SHUTOFF
    return {
        "name": name,
        "UUIDString": f"uuid-{name}",
        "state": [state, 1],
        "isActive": active,
        "isPersistent": persistent,
        "autostart": autostart,
        "XMLDesc": [("<inactive/>",), ("<live/>",)],
    }


def answers(**changes: Any) -> dict[str, Any]:
    return {
        "getCapabilities": CAPABILITIES,
        "getDomainCapabilities": [(OF_KVM,), (OF_QEMU,)],
        "getLibVersion": 9000000,
        "getVersion": 7002022,
        "listAllNetworks": [],
        "listAllStoragePools": [],
        "listAllDomains": [],
        **changes,
    }


def test_everything_is_observed_in_order(monkeypatch, tmp_path):
    monkeypatch.setattr(client, "ARCHITECTURE", "x86_64")
    (tmp_path / "disk").touch()
    link = tmp_path / "nvme-A"
    link.symlink_to(tmp_path / "disk")
    calls: list[Any] = []
    running, stopped, transient = (
        Recorder(calls, **domain("a", 1)),
        Recorder(calls, **domain("b", 0, autostart=0)),
        Recorder(calls, **domain("c", 1, persistent=0)),
    )
    pool = "<network><forward mode='hostdev'><pf dev='eno1'/></forward></network>"
    networks = [Recorder([], **NETWORK), Recorder([], name="lan", isActive=0, XMLDesc=pool)]
    storage = Recorder([], name="db", XMLDesc=f"<pool><source><device path='{link}'/></source></pool>")
    made, asked = connected(
        **answers(listAllNetworks=networks, listAllDomains=[running, stopped, transient], listAllStoragePools=[storage])
    )
    machines = {"pc-q35-7.2": 288}
    assert made.observe([str(tmp_path / "disk"), str(tmp_path / "missing")]) == Hypervisor(
        accelerators={
            "kvm": Accelerator(255, ["bios"], "pc-q35-7.2", machines),
            "qemu": Accelerator(1, ["bios"], "", machines),
        },
        libvirt_version=(9, 0, 0),
        qemu_version=(7, 2, 22),
        hugetlbfs_mib=[1024],
        networks={"default": True, "lan": False},
        lent={"default": Lent(), "lan": Lent(owners=["eno1"])},
        pools={"db": [str(link)]},
        real_paths={str(link): str(tmp_path / "disk")},
        missing_paths=[str(tmp_path / "missing")],
        domains={
            "a": ObservedDomain("a", "uuid-a", "<inactive/>", "<live/>", True, "running"),
            "b": ObservedDomain("b", "uuid-b", "<inactive/>", None, False, "shutoff"),
            "c": ObservedDomain("c", "uuid-c", "<inactive/>", "<live/>", False, "running"),
        },
    )
    assert [call[0] for call in asked] == [
        "getCapabilities", "getDomainCapabilities", "getDomainCapabilities", "listAllNetworks", "listAllDomains",
        "listAllStoragePools", "getLibVersion", "getVersion",
    ]  # fmt: skip
    assert [call[1:] for call in asked if call[0] == "getDomainCapabilities"] == [
        (None, "x86_64", "q35", "kvm"), (None, "x86_64", "q35", "qemu"),
    ]  # fmt: skip
    secret = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    assert [call[1] for call in calls if call[0] == "XMLDesc"] == [secret, 0, secret, secret, 0]
    # A transient domain is not asked for its autostart.
    assert [call[0] for call in calls].count("autostart") == 2


@pytest.mark.parametrize("code", [libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_CONFIG_UNSUPPORTED])
def test_a_kind_that_the_host_lacks_is_left_out(code):
    made, _calls = connected(**answers(getDomainCapabilities=[(error(code),), (OF_QEMU,)]))
    assert list(made.observe([]).accelerators) == ["qemu"]


@pytest.mark.parametrize(
    "method", ["getCapabilities", "getDomainCapabilities", "listAllNetworks", "listAllStoragePools", "listAllDomains"]
)
def test_another_error_of_libvirt_ends_the_observation(method):
    made, _calls = connected(**answers(**{method: error(libvirt.VIR_ERR_INTERNAL_ERROR, "gone")}))
    with raises(DomainError, "libvirt", "gone"):
        made.observe([])


def test_a_libvirt_without_networks_and_storage_pools_has_none():
    none = error(libvirt.VIR_ERR_NO_SUPPORT)
    made, _calls = connected(**answers(listAllNetworks=none, listAllStoragePools=none))
    seen = made.observe([])
    assert (seen.networks, seen.pools) == ({}, {})


@pytest.mark.parametrize(
    ("number", "version"),
    [(9000000, (9, 0, 0)), (7002022, (7, 2, 22)), (10000999, (10, 0, 999)), (1999000, (1, 999, 0)), (1, (0, 0, 1))],
)
def test_a_version_is_three_numbers(number, version):
    made, _calls = connected(**answers(getLibVersion=number, getVersion=number))
    seen = made.observe([])
    assert seen.libvirt_version == seen.qemu_version == version


def test_each_change_is_one_call():
    flags = (
        libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    )
    for change, call in (
        (lambda made: made.start("vm"), ("create",)),
        (lambda made: made.resume("vm"), ("resume",)),
        (lambda made: made.undefine("vm"), ("undefineFlags", flags)),
        (lambda made: made.set_autostart("vm", True), ("setAutostart", 1)),
        (lambda made: made.set_autostart("vm", False), ("setAutostart", 0)),
    ):
        made, calls = with_domain(create=0, resume=0, undefineFlags=0, setAutostart=0)
        change(made)
        assert calls == [("lookupByName", "vm"), call]
    made, calls = connected(defineXMLFlags=None, close=None)
    made.define("<domain><name>vm</name></domain>")
    made.close()
    assert calls == [
        ("defineXMLFlags", "<domain><name>vm</name></domain>", libvirt.VIR_DOMAIN_DEFINE_VALIDATE), ("close",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("no", ""),
        ("Unable to find any usable hugetlbfs mount for 2048 KiB", Mentions("hugetlbfs", "restart")),
        ("group 16 is not viable", Mentions("IOMMU group", "host driver")),
        ("cgroup trouble", ""),
        ("Cannot allocate memory", Mentions("memory", "huge pages")),
    ],
)
def test_a_change_that_fails_has_its_words_and_remedy(message, remedy):
    failure = error(libvirt.VIR_ERR_INTERNAL_ERROR, message)
    failing = dict.fromkeys(("create", "resume", "undefineFlags", "setAutostart"), failure)
    for change, words in (
        (lambda made: made.start("vm"), "start"),
        (lambda made: made.resume("vm"), "resume"),
        (lambda made: made.undefine("vm"), "undefine"),
        (lambda made: made.set_autostart("vm", True), "set autostart of"),
    ):
        made, _calls = with_domain(**failing)
        with raises(DomainError, "virtual machine vm", words, message) as caught:
            change(made)
        assert caught.value.remedy == remedy
    made, _calls = connected(defineXMLFlags=failure)
    for xml, name in (("<domain><name>vm</name></domain>", "vm"), ("<domain/>", "")):
        with pytest.raises(DomainError) as caught:
            made.define(xml)
        assert (caught.value.cause, caught.value.domain) == (f"libvirt cannot define it: {message}", name)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(client, "time", made)
    return made


def test_a_guest_that_shuts_down_is_watched_until_it_has(clock):
    made, calls = with_domain(shutdown=0, isActive=[(1,), (1,), (0,)])
    made.stop("vm", 5)
    assert [call[0] for call in calls] == ["lookupByName", "shutdown", "isActive", "isActive", "isActive"]
    assert clock.pauses == [1, 1]


@pytest.mark.parametrize("failure", [0, error(libvirt.VIR_ERR_OPERATION_INVALID)])
def test_a_guest_that_does_not_shut_down_is_forced_off(clock, failure):
    made, calls = with_domain(shutdown=0, isActive=1, destroy=failure)
    made.stop("vm", 2)
    assert [call[0] for call in calls] == ["lookupByName", "shutdown", "isActive", "isActive", "destroy"]
    assert clock.now == 2


def test_a_guest_that_cannot_be_forced_off_is_an_error(clock):
    made, calls = with_domain(shutdown=0, destroy=error(libvirt.VIR_ERR_SYSTEM_ERROR, "busy"))
    with raises(DomainError, "virtual machine vm", "force it off", "busy"):
        made.stop("vm", 0)
    assert [call[0] for call in calls] == ["lookupByName", "shutdown", "destroy"]


def card(mac: str, *addresses: str) -> dict[str, Any]:
    return {"hwaddr": mac, "addrs": [{"addr": address} for address in addresses] or None}


LEASE = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE
AGENT = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
KNOWN = {"vnet1": card("52:54:00:00:00:02"), "vnet0": card("52:54:00:00:00:01", "192.0.2.1", "2001:db8::1")}
LOOP = {"lo": card("00:00:00:00:00:00", "127.0.0.1")}


def rows(source: str) -> list[dict[str, Any]]:
    return [
        {"mac": "52:54:00:00:00:01", "addresses": ["192.0.2.1", "2001:db8::1"], "source": source},
        {"mac": "52:54:00:00:00:02", "addresses": [], "source": source},
    ]


@pytest.mark.parametrize(
    ("found", "expected", "sources"),
    [
        ([(KNOWN,)], rows("lease"), [LEASE]),
        ([({},), ({**LOOP, **KNOWN},)], rows("agent"), [LEASE, AGENT]),
        ([(LOOP,), ({},)], [], [LEASE, AGENT]),
        *(
            ([(error(code),), (KNOWN,)], rows("agent"), [LEASE, AGENT])
            for code in (
                libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
                libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
                libvirt.VIR_ERR_OPERATION_INVALID,
                libvirt.VIR_ERR_NO_SUPPORT,
            )
        ),
    ],
)
def test_addresses_are_those_of_the_leases_or_else_of_the_agent(found, expected, sources):
    made, calls = with_domain(interfaceAddresses=found)
    assert made.addresses("vm") == expected
    assert calls[1:] == [("interfaceAddresses", source, 0) for source in sources]


def test_another_error_while_reading_addresses_is_an_error():
    made, _calls = with_domain(interfaceAddresses=error(libvirt.VIR_ERR_INTERNAL_ERROR, "gone"))
    with raises(DomainError, "virtual machine vm", "addresses", "gone"):
        made.addresses("vm")


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (libvirt.VIR_DOMAIN_RUNNING, "running"),
        (libvirt.VIR_DOMAIN_BLOCKED, "blocked"),
        (libvirt.VIR_DOMAIN_PAUSED, "paused"),
        (libvirt.VIR_DOMAIN_SHUTDOWN, "shutdown"),
        (libvirt.VIR_DOMAIN_SHUTOFF, "shutoff"),
        (libvirt.VIR_DOMAIN_CRASHED, "crashed"),
        (libvirt.VIR_DOMAIN_PMSUSPENDED, "pmsuspended"),
        (99, "unknown"),
    ],
)
def test_each_state_has_libvirts_name(state, name):
    assert observed_state([state, 0]) == name


def observed_state(state: list[Any]) -> str:
    guest = Recorder([], **{**domain("vm", 1), "state": state})
    made, _calls = connected(**answers(listAllDomains=[guest]))
    return made.observe([]).domains["vm"].state


STARTING = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]


def test_a_start_by_another_program_is_awaited(clock):
    running = [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED]
    assert observed_state([(STARTING,), (STARTING,), (running,)]) == "running"
    assert clock.pauses == [0.5, 0.5]


def test_a_start_by_another_program_is_awaited_for_ten_minutes(clock):
    with raises(DomainError, "virtual machine vm", "another process", "600"):
        observed_state(STARTING)
    assert (clock.now, set(clock.pauses)) == (600.5, {0.5})


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ("rw", [7]),
        ("rw,pagesize=2M", [2]),
        ("pagesize=2048k", [2]),
        ("pagesize=1G", [1024]),
        ("pagesize=16384K,rw", [16]),
    ],
)
def test_the_page_size_of_a_mount_is_in_mib(options, sizes):
    assert client.hugetlbfs_sizes(f"x /mnt hugetlbfs {options} 0 0\n", 7) == sizes
    assert client.hugetlbfs_sizes(f"x /mnt tmpfs {options} 0 0\nhugetlbfs\nx /mnt hugetlbfs\n", 7) == []
    assert client.hugetlbfs_sizes(f"x /mnt hugetlbfs {options}", 7) == sizes


def test_a_file_that_cannot_be_read_is_an_error(proc):
    (proc / "mounts").unlink()
    made, _calls = connected(**answers())
    with raises(DomainError, f"{proc}/mounts", "No such file or directory"):
        made.observe([])


def test_a_libvirt_that_is_not_reachable_is_an_error(monkeypatch):
    def refuse(_uri: str) -> None:
        raise error(libvirt.VIR_ERR_NO_CONNECT, "no connection")

    monkeypatch.setattr(libvirt, "open", refuse)
    with raises(DomainError, "test:///x", "no connection"):
        client.Client("test:///x")
