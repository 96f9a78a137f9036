# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The address of a host that is not reached."""

from __future__ import annotations

from types import SimpleNamespace

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.sailloft.fleet.plugins.action.reached import ActionModule


def test_a_templated_port_of_the_inventory_is_reported_as_a_number():
    """The connection does not show its port, so the port of the inventory is reported."""
    action = ActionModule.__new__(ActionModule)
    given = {"site_ports": {"lab": 2201}, "ansible_port": trust_as_template("{{ site_ports.lab }}")}
    action._connection = SimpleNamespace()
    action._templar = Templar(DataLoader(), variables=given)
    assert action._address("hv01", given) == "hv01, port 2201"
