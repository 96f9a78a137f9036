# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dell's SONiC in the form in which the modules of dellemc.enterprise_sonic accept and return it."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic

PORTS = ["Eth1/1", "Eth1/2"]


def dell(policy=None, ports=None, **changes) -> Switch:
    return switch("dell_sonic", list(PORTS if ports is None else ports), policy, **changes)


def rendered(wanted: Switch) -> dict:
    return json.loads(dell_sonic.render(wanted))


def read(config: dict) -> Switch:
    return dell_sonic.parse(json.dumps(config), "leaf1")


def held(wanted: Switch) -> Switch:
    """Return ``wanted`` without what the system does not hold."""
    nothing = {"headroom": (None,) * 8, "cable_m": None}
    assert nothing.keys() == dell_sonic.DELL_SONIC.not_held.keys()
    return replace(wanted, ports={port: replace(qos, **nothing) for port, qos in wanted.ports.items()})


def gathered(arguments: dict) -> dict:
    """Return the arguments as ansible_network_resources after the modules' own validation, with all their defaults."""
    found = {}
    for module, given_arguments in arguments.items():
        resource = module[len("sonic_") :]
        valid = validate(module, given_arguments)
        assert not valid.error_messages, (module, valid.error_messages)
        found[resource] = valid.validated_parameters["config"]
    return json.loads(json.dumps(found))


def validate(module: str, arguments: dict):
    resource = module[len("sonic_") :]
    path = "ansible_collections.dellemc.enterprise_sonic.plugins.module_utils.network.sonic.argspec"
    argspec = importlib.import_module(f"{path}.{resource}.{resource}")
    spec = getattr(argspec, f"{resource.capitalize()}Args").argument_spec
    return ArgumentSpecValidator(spec).validate(arguments)
