# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, nic_firmware

ROLE = Path(__file__).parents[3] / "roles" / "gpu_host"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


DEFAULTS = load("defaults/main.yml")
OPTIONS = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def test_the_default_acs_is_the_papers():
    acs = [entry["acs"] for entry in DEFAULTS["gpu_host_pci"] if "acs" in entry]
    assert acs == [list(acs_bits.DEFAULT)]


def test_the_default_firmware_is_the_papers():
    assert DEFAULTS["gpu_host_nic_firmware"] == [
        {"devices": ["15b3:*"], "values": {name: value for name, value, _why in nic_firmware.PAPER}}
    ]


def test_every_bios_claim_can_be_required():
    assert OPTIONS["gpu_host_bios_required"]["choices"] == list(bios_settings.NAMES)
