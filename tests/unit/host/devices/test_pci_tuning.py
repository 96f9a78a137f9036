# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, pci_tuning

GPU, NIC, PORT = "0000:13:00.0", "0000:15:00.0", "0000:10:00.0"
ACS_CONTROL = 0x148 + 6  # offset in the recorded root port
PAPER = {
    "settings": [
        {"devices": ["gpu", "nic"], "max_read_request_bytes": 4096},
        {"devices": ["bridge"], "acs": list(acs_bits.DEFAULT)},
    ]
}


def ensure(server, data=None, check=False):
    return pci_tuning.ensure(server, server.host(), PAPER if data is None else data, check)


def device_control(server, address):
    return next(function for function in server.host().functions if function.address == address)


def test_the_settings_of_the_paper_are_applied(server):
    outcome = ensure(server)
    assert device_control(server, GPU).max_read_request_bytes == 4096
    assert device_control(server, NIC).max_read_request_bytes == 4096
    assert server.register(PORT, ACS_CONTROL) == 0x5D
    assert outcome.before[f"{PORT} acs"] == list(acs_bits.DEFAULT[:-1])
    assert outcome.facts["devices"]["0000:12:00.0"] == {"not_applicable": {"acs": Mentions("ACS", "capability")}}
    assert not ensure(server).changed


def test_the_default_acs_mask_is_that_of_vela():
    assert acs_bits.mask(list(acs_bits.DEFAULT)) == 0x5D


def test_check_mode_does_nothing(server):
    predicted = ensure(server, check=True)
    assert server.effects == []
    done = ensure(server)
    assert (predicted.before, predicted.after, predicted.facts) == (done.before, done.after, done.facts)


def test_two_settings_of_one_register_do_not_undo_each_other(server):
    data = {"settings": [{"devices": [NIC], "max_read_request_bytes": 1024, "relaxed_ordering": True}]}
    ensure(server, data)
    nic = device_control(server, NIC)
    assert (nic.max_read_request_bytes, nic.relaxed_ordering) == (1024, True)
    ensure(server, {"settings": [{"devices": [NIC], "relaxed_ordering": False}]})
    nic = device_control(server, NIC)
    assert (nic.max_read_request_bytes, nic.relaxed_ordering) == (1024, False)


def test_a_later_entry_overrides_an_earlier_one(server):
    ensure(server, {"settings": [*PAPER["settings"], {"devices": [NIC], "max_read_request_bytes": 512}]})
    assert device_control(server, NIC).max_read_request_bytes == 512
    assert device_control(server, GPU).max_read_request_bytes == 4096


def test_a_read_only_register_is_reported_and_is_not_a_change(server):
    offset = 0xA0 + 8  # DevCtl of the recorded igb
    server.read_only = {(NIC, offset), ("0000:14:00.0", offset)}
    outcome = ensure(server)
    assert outcome.facts["devices"][NIC] == {"max_read_request_bytes": 128, "not_writable": ["max_read_request_bytes"]}
    assert f"{NIC} max_read_request_bytes" not in outcome.after
    assert not ensure(server).changed
    assert not ensure(server, check=True).changed


def test_a_register_that_reads_back_another_value_is_a_failure(server):
    poke = server.poke_bytes
    server.poke_bytes = lambda path, data, offset: poke(path, bytes([data[0], 0x20]), offset)
    outcome = ensure(server, {"settings": [{"devices": [GPU], "max_read_request_bytes": 4096}]})
    assert outcome.failed == (Mentions("pci_tuning", GPU, "max_read_request_bytes", "4096", "512"))
    assert not outcome.changed


def test_one_device_that_refuses_does_not_stop_the_others(server):
    poke = server.poke_bytes
    server.poke_bytes = lambda path, data, offset: poke(path, bytes([data[0], 0x20]) if GPU in path else data, offset)
    outcome = ensure(server)
    assert f"{GPU} max_read_request_bytes: wrote 4096, reads back 512" in outcome.failed
    assert device_control(server, NIC).max_read_request_bytes == 4096
    assert server.register(PORT, ACS_CONTROL) == 0x5D


@pytest.mark.parametrize("level", ["integrity", "confidentiality"])
def test_lockdown_is_reported_with_the_blocked_settings_and_a_remedy(server, level):
    server.lock_down(level)
    predicted = ensure(server, check=True)
    assert server.effects == []
    done = ensure(server)
    assert server.effects == []
    assert predicted == done
    assert not done.changed
    assert done.failed == (Mentions("pci_tuning", level, "PCI", "2", "0000:10:00.0", "0000:10:01.0"))
    assert done.facts["devices"][GPU] == {"max_read_request_bytes": 128, "refused": {"max_read_request_bytes": 4096}}


def test_lockdown_is_not_a_failure_if_all_settings_are_correct(server):
    ensure(server)
    server.lock_down("integrity")
    outcome = ensure(server)
    assert (outcome.failed, outcome.changed) == ("", False)


def test_settings_are_applied_if_lockdown_is_off(server):
    server.lock_down("none")
    outcome = ensure(server)
    assert outcome.failed == ""
    assert device_control(server, GPU).max_read_request_bytes == 4096


def test_a_refused_write_is_reported_if_the_lockdown_state_is_unknown(server):
    """Without securityfs, only the failed write itself shows the lockdown."""
    server.locked_down = True
    outcome = ensure(server)
    assert not outcome.changed
    assert outcome.failed.startswith(
        "pci_tuning: the kernel refuses writes to PCI config space (EPERM), and /sys/kernel/security/lockdown does not "
        "say whether lockdown is on: not set acs of 2 devices"
    )


def test_weaker_isolation_is_refused_unless_it_is_allowed(server):
    weaker = {"settings": [{"devices": [PORT], "acs": ["source_validation", "direct_translated"]}]}
    with pytest.raises(
        HostError, match=r"0000:10:00.0 has ACS request_redirect, completion_redirect, upstream_forwarding on"
    ):
        ensure(server, weaker)
    assert server.effects == []
    weaker["settings"][0]["allow_less_isolation"] = True
    ensure(server, weaker)
    assert server.register(PORT, ACS_CONTROL) == 0x41


def test_a_missing_acs_bit_is_skipped_for_a_kind_and_refused_for_an_address(server):
    config = bytearray(server.read_bytes(f"{server.directory(PORT)}/config"))
    config[ACS_CONTROL - 2] &= ~0x40
    server.put(f"{server.directory(PORT)}/config", bytes(config))
    ensure(server)
    assert server.register(PORT, ACS_CONTROL) == 0x1D
    with raises(HostError, "0000:10:00.0", "ACS direct_translated"):
        ensure(server, {"settings": [{"devices": [PORT], "acs": list(acs_bits.DEFAULT)}]})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"devices": ["0000:12:00.0"], "acs": ["source_validation"]}, Mentions("0000:12:00.0", "acs", "ACS")),
        (
            {"devices": ["0000:00:03.0"], "max_read_request_bytes": 512},
            Mentions("max_read_request_bytes", "PCI"),
        ),
        (
            {"devices": ["gpu"], "max_read_request_bytes": 8192},
            Mentions("max_read_request_bytes", "8192"),
        ),
        (
            {"devices": ["gpu"], "acs": ["redirect"]},
            Mentions("acs", "0", "redirect"),
        ),
        ({"devices": ["gpu"]}, Mentions("max_read_request_bytes")),
        ({"devices": ["0000:66:00.0"], "relaxed_ordering": True}, Mentions("0000:66:00.0")),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(server, entry, message):
    with pytest.raises(SailloftError) as error:
        ensure(server, {"settings": [{"devices": [GPU], "max_read_request_bytes": 4096}, entry]})
    assert str(error.value) == message
    assert server.effects == []


def test_settings_of_a_vf_are_left_to_its_physical_function(server):
    server.poke(f"/sys/bus/pci/devices/{NIC}/sriov_numvfs", "1")
    outcome = ensure(server)
    assert (
        "physical function 0000:15:00.0"
        in outcome.facts["devices"]["0000:15:10.0"]["not_applicable"]["max_read_request_bytes"]
    )
    with pytest.raises(HostError, match=r"0000:15:10\.0.*max_read_request_bytes.*VF"):
        ensure(server, {"settings": [{"devices": ["0000:15:10.0"], "max_read_request_bytes": 512}]})


def test_config_space_that_is_truncated_without_root_is_refused(server):
    server.put(f"{server.directory(GPU)}/config", server.read_bytes(f"{server.directory(GPU)}/config")[:64])
    with pytest.raises(
        HostError,
        match=r"0000:13:00\.0.*64",
    ):
        ensure(server)


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: None, ensure) == 5
