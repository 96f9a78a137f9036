# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of what a node's BMC says: power supplies, redundancy, fans, temperatures, its event log. Pure.

The number of power supplies is the limit of bmc_power_supplies, which only the inventory gives.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    AT_LEAST,
    CONFIGURATION,
    HARDWARE,
    NOT_TRUE,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import event, flag

UNREAD = "bmc_unread"
REDFISH, IPMI, PLAN = "DMTF Redfish Schema Supplement", "IPMI 2.0, table 42-3", "the inventory"


RULES = (
    # Only where BMCs are asked.
    Rule(UNREAD, "the BMC could not be read", CONFIGURATION, NOT_TRUE, "watch", "the health check itself", "bmc"),
    flag("bmc_power_supply", "power supply faulty", "watch", REDFISH, "power-supply"),
    # Not each BMC says this. GPUs slow down as soon as the other supplies do not suffice.
    flag(
        "bmc_power_input",
        "power supply without input: feed or cord",
        "drain",
        REDFISH,
        "power-supply",
        is_occasional=True,
    ),
    Rule(
        "bmc_power_supplies",
        "fewer power supplies than expected",
        HARDWARE,
        AT_LEAST,
        "watch",
        PLAN,
        "power-supply",
    ),
    flag("bmc_redundancy", "no redundancy", "watch", REDFISH, "power-supply"),
    flag("bmc_fan", "fan faulty", "watch", REDFISH, "cooling"),
    flag("bmc_temperature", "temperature beyond its limit", "watch", REDFISH, "cooling"),
    flag("bmc_voltage", "voltage beyond its limit", "watch", IPMI, "bmc"),
    event("bmc_memory", "uncorrected memory error in the BMC's log", "person", IPMI, "memory"),
    event("bmc_memory_corrected", "corrected memory error in the BMC's log", "note", IPMI, "memory"),
    event("bmc_pci_error", "PCI error in the BMC's log", "watch", IPMI, "pcie-errors"),
    # Only where nothing else explains it.
    flag("bmc_health", "the BMC says that the server is not healthy", "watch", REDFISH, "bmc", is_occasional=True),
)
