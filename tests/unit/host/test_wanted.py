# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module's options are the role's variables, and each part gets its arguments from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.host import wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

ROLE = Path(__file__).parents[3] / "roles" / "gpu_host"
SPEC = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
# The module's own options, and the variables that only the role's tasks use.
OF_THE_CALL = {"parts", "now", "outcomes", "packages", "sockets", "whole_host"}
OF_THE_TASKS = {
    "reboot_with_guests",
}
BY_PORT = {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}
BINDING = {"devices": [], "release": [], "keep_drivers_off": True}


def host(**given):
    return {**wanted.defaults(), **given}


def test_bare_metal_contradicts_devices_for_guests():
    given = host(acs="bare_metal", vfio=["gpu"])
    for arguments in (wanted.settings, wanted.kernel_arguments):
        with pytest.raises(RequestError, match=r"bare_metal.* vfio .*gpu"):
            arguments(given)


def test_the_options_are_the_variables_of_the_role_with_their_types_and_defaults():
    variables = {name.removeprefix("gpu_host_"): option for name, option in SPEC.items()}
    assert set(variables) - set(wanted.options()) == OF_THE_TASKS
    assert set(wanted.options()) - set(variables) == OF_THE_CALL
    for name, option in wanted.options().items():
        for key in ("type", "elements", "default", "choices"):
            # The role leaves the names of BIOS claims to the module.
            if name not in OF_THE_CALL and (name, key) != ("bios_required", "choices"):
                assert option.get(key) == variables[name].get(key), (name, key)


def test_each_part_gets_its_arguments():
    pages = [{"node": 0, "size_mib": 1024, "count": 4}]
    given = host(
        iommu="translated",
        hugepages=pages,
        kernel_arguments=["pci=realloc"],
        kernel_arguments_removed=["quiet"],
        kernel_settings={"avic": True},
        sriov=[{"devices": ["15b3:1021"], "count": 8}],
        vfio=["gpu"],
        vfio_released=["nic"],
        nic_firmware=[{"devices": ["nic"], "values": {"ATS_ENABLED": True}}],
    )
    binding = {"devices": ["gpu"], "release": ["nic"], "keep_drivers_off": True}
    assert wanted.kernel_arguments(given) == {
        "iommu": "translated",
        "pages": pages,
        "arguments": ["pci=realloc"],
        "remove": ["quiet"],
        "avic": True,
        "vfio_binding": binding,
        "nic_firmware": given["nic_firmware"],
        "acs_by_port": BY_PORT,
    }
    assert wanted.nic_firmware(given) == {"settings": given["nic_firmware"], "by_family": BY_PORT}
    assert wanted.settings(given) == {
        "now": True,
        "hugepages": {"pages": pages},
        "sriov": {"functions": given["sriov"]},
        "vfio_binding": binding,
        "pci_tuning": {"settings": wanted.READS, "acs_by_port": BY_PORT},
        "kernel_settings": {"avic": True},
    }


def test_what_is_switched_off_is_left_out():
    pages = [{"node": 0, "size_mib": 2, "count": 4}]
    given = host(iommu="unchanged", hugepages=pages, acs_at_boot=False)
    arguments = {
        "pages": pages,
        "arguments": [],
        "remove": [],
        "avic": None,
        "vfio_binding": BINDING,
        "nic_firmware": [],
    }
    assert wanted.kernel_arguments(given) == arguments
    assert wanted.settings(given)["hugepages"] == {"pages": pages}
    assert wanted.nic_firmware(host(nic_firmware_by_family=False)) == {"settings": [], "by_family": None}


def test_acs_is_computed_unless_it_is_unchanged_or_a_list_of_settings():
    bare_metal = host(acs="bare_metal")
    purpose = {**BY_PORT, "purpose": "bare_metal"}
    assert wanted.settings(bare_metal)["pci_tuning"]["acs_by_port"] == purpose
    assert wanted.kernel_arguments(bare_metal)["acs_by_port"] == purpose
    assert wanted.nic_firmware(bare_metal)["by_family"] == purpose
    by_hand = [{"devices": ["bridge"], "acs": ["source_validation"]}]
    for acs, more in (("unchanged", []), (by_hand, by_hand)):
        assert wanted.settings(host(acs=acs))["pci_tuning"] == {"settings": [*wanted.READS, *more]}
        assert "acs_by_port" not in wanted.kernel_arguments(host(acs=acs))


@pytest.mark.parametrize("acs", ["yes", "Auto", "", 1, {"devices": ["bridge"]}])
def test_another_value_of_acs_is_refused(acs):
    with pytest.raises(RequestError, match="acs"):
        wanted.settings(host(acs=acs))
