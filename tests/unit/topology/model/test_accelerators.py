# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import models, recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, TopologyError

GPUS = ["0000:13:00.0", "0000:83:00.0"]
CONSOLE = "0000:00:01.0"


@pytest.fixture
def host(recording) -> Host:
    """The emulated server: two stand-ins 1af4:1043, a console 1234:1111."""
    return recording("emulated-gpu-server")


def gpus(host: Host) -> list[str]:
    return [function.address for function in host.functions if function.kind == "gpu"]


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        ({}, GPUS),
        ({"1234:1111": True}, [CONSOLE, *GPUS]),
        ({"1234:*": True}, [CONSOLE, *GPUS]),
        ({"1AF4:1043": False}, []),
        ({"1af4:*": False}, []),
        ({"1af4:*": False, "1af4:1043": True}, GPUS),
        ({"1af4:*": True, "1af4:1043": False}, []),
        # No device of this host has the first id, and a vendor's wildcard selects only devices that can be
        # accelerators.
        ({"1002:744c": True, "8086:*": True, "1b36:*": True}, GPUS),
        ({"8086:10c9": False}, GPUS),
    ],
)
def test_the_inventory_adds_and_removes_accelerators(host, says, wanted):
    assert [item.address for item in host.functions if item.vendor_id == 0x1234] == [CONSOLE]
    before = {item.address: item.kind for item in host.functions if item.address not in (*GPUS, CONSOLE)}
    recognise(host, says)
    assert gpus(host) == wanted
    assert {item.address: item.kind for item in host.functions if item.address in before} == before


@pytest.mark.parametrize("says", [{"gpu": True}, {"10de": True}, {"10de:23": True}, {"*:*": True}, {"10de:2330": "no"}])
def test_an_invalid_accelerator_entry_is_refused(host, says):
    ((name, value),) = says.items()
    with raises(TopologyError, repr(name), repr(value)):
        recognise(host, says)


def test_a_nic_listed_as_an_accelerator_is_refused(host):
    nic = host.function("0000:14:00.0")
    name = f"{nic.vendor_id:04x}:{nic.device_id:04x}"
    with pytest.raises(TopologyError) as error:
        recognise(host, {name: True})
    assert str(error.value).startswith(f"accelerators: {name} (0000:")
    assert str(error.value).endswith(") has class 020000 and kind nic, which is not an accelerator; leave it out")


def test_devices_are_grouped_by_model_and_sorted_by_address(host):
    assert models([host.function(address) for address in (GPUS[1], CONSOLE, GPUS[0])]) == {
        "1234:1111": [CONSOLE],
        "1af4:1043": GPUS,
    }
