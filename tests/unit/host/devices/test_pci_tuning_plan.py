# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan for the registers of one device: which setting wins, what is shown, and what is refused."""

from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, pci_tuning
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.pci_tuning import DeviceTuning

GPU, NIC, PORT, SWITCH_PORT = "0000:13:00.0", "0000:15:00.0", "0000:10:00.0", "0000:12:00.0"
DISPLAY = "0000:00:03.0"  # not a PCI Express device
ACS_CONTROL = 0x148 + 6  # offset in the recorded root port
DEVICE_CONTROL = 0xA0 + 8  # offset in the recorded igb


def wanted(server, *entries, **more):
    return pci_tuning.wanted({"settings": list(entries), **more}, server.host())[0]


def ensure(server, *entries, check=False):
    return pci_tuning.ensure(server, server.host(), {"settings": list(entries)}, check)


def refused(server, *entries):
    with pytest.raises(HostError) as error:
        ensure(server, *entries)
    assert server.effects == []
    return str(error.value)


def test_a_setting_knows_how_its_device_was_named(server):
    entries = [
        {"devices": [GPU], "max_read_request_bytes": 512, "relaxed_ordering": False},
        {"devices": ["bridge"], "acs": [], "allow_less_isolation": True},
        {"devices": ["gpu"], "relaxed_ordering": True, "allow_less_isolation": False},
    ]
    found = wanted(server, *entries)
    assert found[GPU] == {
        "max_read_request_bytes": DeviceTuning("max_read_request_bytes", 512, True, False),
        "relaxed_ordering": DeviceTuning("relaxed_ordering", True, False, False),
    }
    assert found[PORT] == {"acs": DeviceTuning("acs", [], False, True)}


def test_a_port_of_the_plan_without_acs_is_left_alone(server):
    """The plan names ports by address, although no user did."""
    data = {"settings": [], "acs_by_port": {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}}
    report = pci_tuning.ensure(server, server.host(), data).facts["devices"]
    assert report[SWITCH_PORT] == {"not_applicable": {"acs": Mentions("ACS", "capability")}}


@pytest.mark.parametrize("size_bytes", [128, 256, 512, 1024, 2048, 4096])
def test_each_size_of_a_read_request_is_written_and_shown(server, size_bytes):
    outcome = ensure(server, {"devices": [NIC], "max_read_request_bytes": size_bytes})
    assert outcome.facts["devices"] == {NIC: {"max_read_request_bytes": size_bytes}}
    assert 128 << (server.register(NIC, DEVICE_CONTROL) >> 12 & 7) == size_bytes
    assert outcome.before == ({} if size_bytes == 128 else {f"{NIC} max_read_request_bytes": 128})


@pytest.mark.parametrize("wanted_value", [True, False])
def test_relaxed_ordering_is_one_bit(server, wanted_value):
    before = server.register(NIC, DEVICE_CONTROL)
    ensure(server, {"devices": [NIC], "relaxed_ordering": not wanted_value})
    outcome = ensure(server, {"devices": [NIC], "relaxed_ordering": wanted_value})
    assert server.register(NIC, DEVICE_CONTROL) == before & ~0x10 | 0x10 * wanted_value
    assert outcome.before == {f"{NIC} relaxed_ordering": not wanted_value}
    assert outcome.after == {f"{NIC} relaxed_ordering": wanted_value}


@pytest.mark.parametrize("name", acs_bits.BITS)
def test_each_bit_of_acs_can_be_lost_only_if_it_does_not_isolate(server, name):
    config = bytearray(server.read_bytes(f"{server.directory(PORT)}/config"))
    config[ACS_CONTROL - 2] = config[ACS_CONTROL] = 0x7F
    server.put(f"{server.directory(PORT)}/config", bytes(config))
    entry = {"devices": [PORT], "acs": [bit for bit in acs_bits.BITS if bit != name]}
    if name != "direct_translated":
        assert refused(server, entry) == (Mentions("pci_tuning", PORT, "ACS", name))
    ensure(server, {**entry, "allow_less_isolation": True})
    assert server.register(PORT, ACS_CONTROL) == 0x7F & ~acs_bits.BITS[name]


def test_the_bits_of_acs_are_those_of_the_specification():
    assert list(acs_bits.BITS.values()) == [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40]
    assert acs_bits.names(0x45) == ["source_validation", "request_redirect", "direct_translated"]
    assert acs_bits.mask([]) == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"devices": [SWITCH_PORT], "acs": []},
            Mentions("pci_tuning", SWITCH_PORT, "acs", "ACS"),
        ),
        (
            {"devices": [DISPLAY], "relaxed_ordering": True},
            Mentions("pci_tuning", DISPLAY, "relaxed_ordering", "PCI"),
        ),
        (
            {"devices": [PORT], "acs": list(acs_bits.BITS)},
            Mentions("pci_tuning", PORT, "ACS", "egress_control"),
        ),
        ({"devices": [GPU]}, Mentions("pci_tuning.settings[0]", "max_read_request_bytes", "relaxed_ordering", "acs")),
        ({"relaxed_ordering": True}, Mentions("pci_tuning.settings[0]", "pci_tuning")),
        (
            {"devices": [GPU], "relaxed": True},
            Mentions("pci_tuning.settings[0]", "relaxed"),
        ),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused(server, entry, message):
    assert refused(server, entry) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "pci_tuning: settings is missing; set it"),
        ({"settings": [], "acs": []}, "pci_tuning: unknown setting 'acs'; valid settings: acs_by_port, settings"),
    ],
)
def test_a_misspelt_or_missing_part_is_refused(data, message):
    with pytest.raises(HostError) as error:
        pci_tuning.wanted(data, None)
    assert str(error.value) == message


def test_a_device_that_is_gone_is_named(server):
    host = server.host()
    server.remove(f"{server.directory(GPU)}/config")
    with raises(HostError, "pci_tuning", GPU, "gone"):
        pci_tuning.ensure(server, host, {"settings": [{"devices": [GPU], "relaxed_ordering": True}]})


@pytest.mark.parametrize("size_bytes", [64, 128])
def test_a_config_space_that_was_read_without_root_is_refused(server, size_bytes):
    server.put(f"{server.directory(GPU)}/config", server.read_bytes(f"{server.directory(GPU)}/config")[:size_bytes])
    assert refused(server, {"devices": ["gpu"], "acs": []}) == (Mentions("pci_tuning", GPU, size_bytes))


def test_a_config_space_without_extended_capabilities_has_no_acs(server):
    server.put(f"{server.directory(PORT)}/config", server.read_bytes(f"{server.directory(PORT)}/config")[:256])
    outcome = ensure(server, {"devices": ["bridge"], "acs": [], "allow_less_isolation": True}, check=True)
    assert outcome.facts["devices"][PORT] == {"not_applicable": {"acs": Mentions("ACS", "capability")}}


def test_a_register_that_is_writable_again_is_no_longer_known_as_read_only(server):
    entry = {"devices": [NIC], "max_read_request_bytes": 512}
    server.read_only = {(NIC, DEVICE_CONTROL)}
    assert not ensure(server, entry).changed
    assert server.read(pci_tuning.READ_ONLY) == f'[\n "{NIC} max_read_request_bytes"\n]'
    server.effects.clear()
    assert not ensure(server, entry, check=True).changed
    assert server.effects == []
    # Nothing new is known, so nothing is written.
    assert not ensure(server, entry).changed
    assert server.effects == [f"poke /sys/bus/pci/devices/{NIC}/config"]
    server.read_only = set()
    assert ensure(server, entry).changed
    assert server.read(pci_tuning.READ_ONLY) == "[]"


def test_a_refusal_by_the_kernel_for_another_reason_is_not_taken_for_lockdown(server, monkeypatch):
    host = server.host()
    gone = f"/sys/bus/pci/devices/{GPU}/config"
    poke = server.poke_bytes

    def first_gone(path, data, offset):
        poke("/sys/nothing/config" if path == gone else path, data, offset)

    monkeypatch.setattr(server, "poke_bytes", first_gone)
    data = {"settings": [{"devices": ["gpu", "nic"], "max_read_request_bytes": 512}]}
    outcome = pci_tuning.ensure(server, host, data)
    assert outcome.failed.startswith("the kernel refused to write ")
    assert "lockdown" not in outcome.failed
    assert outcome.facts["devices"][GPU] == {"max_read_request_bytes": 128, "refused": {"max_read_request_bytes": 512}}
    assert outcome.after[f"{NIC} max_read_request_bytes"] == 512


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0], "acs of 1 device (0)"),
        ([0, 1], "acs of 2 devices (0, 1)"),
        ([0, 1, 2], "acs of 3 devices (0, 1, 2)"),
        ([0, 1, 2, 3], "acs of 4 devices (0, 1, 2, ...)"),
    ],
)
def test_the_first_three_devices_are_named(numbers, words):
    setting = DeviceTuning("acs", [], False, False)
    assert (
        pci_tuning.counts_of_devices([pci_tuning.TuningWrite(str(number), setting, None) for number in numbers])
        == words
    )
