#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan the monitoring of 10,000 hosts from their variables, against the limits of 10 s and 500 MiB.

    benchmarks/monitoring/plan.py [--hosts 10000]

The inventory is made in Ansible's own objects, with the variables that a blueprint gives, as Ansible would have it
after reading it. Measured is what the action does: reading the variables of each host and making the files' texts, in
processor time, so that other load does not count. A run reads the inventory before.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import monitored_hosts
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan

LIMIT_S, LIMIT_MIB = 10.0, 500.0


def variables(number: int) -> dict[str, Any]:
    """Return the variables of a node: racks of 4, a leaf for each of 8 rails and 32 nodes."""
    address = f"{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
    return {
        "ansible_host": f"10.{address}",
        "site_addresses": {"bmc": f"172.{address}"},
        "site_rack": f"rack-{number // 4:04}",
        "site_unit": number % 4 * 6 + 1,
        "site_blocks": {"pod": number // 128 + 1, "rack": number // 4 + 1},
        "site_ports": {
            f"mlx5_{rail}": {"peer": f"leaf-{number // 32}-{rail} Ethernet{number % 32}", "rail": rail}
            for rail in range(8)
        },
    }


def hostvars_of(hosts: int) -> HostVars:
    """Return the variables of an inventory of nodes."""
    loader = DataLoader()
    inventory = InventoryManager(loader, [])
    for group in ("nodes", "gpu_nodes"):
        inventory.add_group(group)
    for number in range(hosts):
        name = f"node-{number:05}"
        inventory.add_host(name, "nodes")
        inventory.add_host(name, "gpu_nodes")
        host = inventory.get_host(name)
        for variable, value in variables(number).items():
            host.set_variable(variable, value)
    inventory.reconcile_inventory()
    return HostVars(inventory, VariableManager(loader, inventory), loader)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10000)
    number = parser.parse_args().hosts
    init_plugin_loader([str(ROOT / ".collections")])
    hostvars = hostvars_of(number)
    groups = hostvars._inventory.get_groups_dict()
    start = time.process_time()
    hosts = monitored_hosts(groups, hostvars)
    read_s = time.process_time() - start
    planned = plan({}, hosts, groups)
    seconds = time.process_time() - start
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(planned.summary[0])
    print(f"time {seconds:.1f} s, {seconds / LIMIT_S:.2f} of {LIMIT_S:g} s (the limit); variables {read_s:.1f} s")
    print(f"memory {mebibytes:.0f} MiB, {mebibytes / LIMIT_MIB:.2f} of {LIMIT_MIB:g} MiB (the limit)")
    if seconds > LIMIT_S or mebibytes > LIMIT_MIB:
        sys.exit("a limit is exceeded")


if __name__ == "__main__":
    main()
