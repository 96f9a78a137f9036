# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ACS by port on a server in a directory whose switch has ACS: requested, written, read back."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, acs_ports, pci_tuning

GPU_PORT, NIC_PORT, OTHER, ROOT = "0000:12:00.0", "0000:12:01.0", "0000:10:01.0", "0000:10:00.0"
ACS_CONTROL = 0x148 + 6  # offset in the recorded root port
BY_PORT = {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}


@pytest.fixture
def switched(server):
    """The server with a switch whose downstream ports have the root port's ACS capability."""
    config = server.read_bytes(f"{server.directory(ROOT)}/config")
    for port in (GPU_PORT, NIC_PORT):
        own = server.read_bytes(f"{server.directory(port)}/config")
        server.put(f"{server.directory(port)}/config", own[:0x100] + config[0x100:])
    return server


def ensure(server, by_port=None, settings=(), check=False):
    data = {"settings": list(settings), "acs_by_port": BY_PORT if by_port is None else by_port}
    return pci_tuning.ensure(server, server.host(), data, check)


def test_direct_translated_requests_are_enabled_on_the_port_of_the_nic(switched):
    predicted = ensure(switched, check=True)
    assert switched.effects == []
    outcome = ensure(switched)
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert list(outcome.after) == [f"{NIC_PORT} acs"]
    assert [switched.register(port, ACS_CONTROL) for port in (NIC_PORT, GPU_PORT, ROOT)] == [0x5D, 0x1D, 0x1D]
    assert not ensure(switched).changed


def test_the_report_lists_ports_and_unmet_requirements(switched):
    report = ensure(switched).facts["acs_by_port"]
    roles = {port["address"]: (port["topology"], port["role"], port["mask"]) for port in report["ports"]}
    assert roles[NIC_PORT] == ("inline", "nic_port", "1x11101")
    assert roles[GPU_PORT] == ("inline", "gpu_port", "xx111x1")
    # The NIC of the recording has no ATS capability.
    assert [line for line in report["unmet"] if line.startswith("NIC 0000:14:00.0 has an ATS capability (inline)")]


def test_manual_settings_take_precedence_on_their_ports(switched):
    ensure(switched, settings=[{"devices": [ROOT], "acs": list(acs_bits.DEFAULT)}])
    assert [switched.register(port, ACS_CONTROL) for port in (NIC_PORT, GPU_PORT, ROOT)] == [0x5D, 0x1D, 0x5D]


def test_redirection_is_off_on_bare_metal(switched):
    ensure(switched, {"devices": ["gpu", "0000:14:00.0"], "purpose": "bare_metal"})
    assert [switched.register(port, ACS_CONTROL) for port in (NIC_PORT, GPU_PORT, ROOT)] == [0, 0, 0]
    # No GPU or NIC of the request is below this root port.
    assert switched.register(OTHER, ACS_CONTROL) == 0x1D


def test_bare_metal_is_refused_while_a_device_is_bound_to_vfio_pci(switched):
    switched.bind("0000:13:00.0", "vfio-pci")
    with pytest.raises(HostError, match=r"0000:13:00\.0.*vfio-pci"):
        ensure(switched, {"devices": ["gpu", "nic"], "purpose": "bare_metal"})
    assert switched.effects == []


def test_lockdown_is_reported_with_the_affected_ports(switched):
    switched.lock_down("integrity")
    outcome = ensure(switched)
    assert f"not set acs of 1 device ({NIC_PORT})" in outcome.failed
    assert "pci=config_acs=" in outcome.failed


@pytest.mark.parametrize(
    ("by_port", "message"),
    [
        ({"devices": ["gpu"]}, Mentions("acs_by_port")),
        ({"devices": ["gpu"], "purpose": "speed"}, Mentions("acs_by_port", "purpose", "speed", "virtual_machines")),
        ({"devices": ["gpus"], "purpose": "bare_metal"}, Mentions("gpus")),
        ({"devices": ["0000:66:00.0"], "purpose": "bare_metal"}, Mentions("0000:66:00.0")),
    ],
)
def test_bad_input_is_refused(switched, by_port, message):
    with pytest.raises(SailloftError) as error:
        ensure(switched, by_port)
    assert str(error.value) == message
    assert switched.effects == []


def test_an_image_is_checked_for_form_only():
    settings, plan = pci_tuning.wanted({"settings": [], "acs_by_port": BY_PORT}, None)
    assert (settings, plan) == ({}, None)


def test_bound_devices_are_counted_and_the_first_three_are_named(switched):
    message = (
        "pci_tuning.acs_by_port: purpose bare_metal turns off what keeps tenants apart, but {} bound to vfio-pci for a "
        "guest; use virtual_machines, or release the devices first"
    )
    bound = []
    for address in ("0000:00:03.0", "0000:13:00.0", "0000:14:00.0", "0000:15:00.0"):
        switched.bind(address, "vfio-pci")
        bound.append(address)
        with pytest.raises(HostError) as error:
            ensure(switched, {"devices": ["gpu"], "purpose": "bare_metal"})
        assert str(error.value) == message.format(f"{', '.join(bound[:3])} {'is' if len(bound) == 1 else 'are'}")


@pytest.mark.parametrize(("devices", "counted"), [(["nic"], False), (["nic", "0000:15:00.0"], True)])
def test_a_nic_that_the_host_uses_counts_only_if_it_is_named(switched, devices, counted):
    switched.put("/proc/net/route", "Iface\tDestination\nnic1\t00000000\t0\t3\t0\t0\t0\t00000000\n")
    given = Settings(RequestError, "x", {"devices": devices, "purpose": "virtual_machines"})
    assert ("0000:15:00.0" in acs_ports.wanted(given, switched.host()).nics) is counted


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"purpose": "bare_metal"}, "x: devices is missing; set it"),
        (
            {"devices": [], "purpose": "bare_metal", "y": 1},
            "x: unknown setting 'y'; valid settings: devices, purpose",
        ),
        (
            {"devices": [], "purpose": "z"},
            "x: purpose: 'z' is unknown; use one of: 'virtual_machines', 'bare_metal'",
        ),
    ],
)
def test_the_form_is_checked_without_a_host(data, message):
    with pytest.raises(HostError) as error:
        acs_ports.wanted(Settings(RequestError, "x", data), None)
    assert str(error.value) == message
