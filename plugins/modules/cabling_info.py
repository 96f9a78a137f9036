#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: cabling_info
short_description: Read the neighbours that a device sees
version_added: 0.1.0
description:
  - Reads LLDP from C(lldpd), or a switch's table of neighbours that another module has read, and the InfiniBand subnet
    from C(ibnetdiscover). M(sailloft.fleet.cabling_check) compares the result with a blueprint or NetBox.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  system:
    description: The form of O(text). V(linux), V(cumulus), V(sonic) and V(dell_sonic) run lldpd.
    type: str
    choices: [cumulus, dell_sonic, eos, junos, linux, nxos, sonic]
    default: linux
  text:
    description:
      - A table that another module has read. For EOS the output of C(show lldp neighbors | json), for NX-OS of C(show
        lldp neighbors detail | json), for Junos of C(show lldp neighbors | display json), for the others of C(lldpcli
        -f json0 show neighbors).
      - Without it, C(lldpcli) is run on the host.
    type: str
  socket:
    description: The socket of lldpd, if it is not the default one.
    type: path
  infiniband:
    description: Whether to read the host's InfiniBand subnet as well. It needs root.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read the neighbours
  sailloft.fleet.cabling_info:

- name: Read the table of an EOS switch
  arista.eos.eos_command:
    commands: show lldp neighbors | json
  register: table

- name: Read its neighbours
  sailloft.fleet.cabling_info:
    system: eos
    text: "{{ table.stdout[0] | to_json }}"
  delegate_to: localhost
"""

RETURN = r"""
neighbours:
  description: By interface, the C(device) at the far end, and C(ports), all names that it reports for its port.
  returned: success
  type: dict
  sample: {ens1f0np0: {device: leaf-001, ports: [Ethernet0]}}
speeds:
  description: The speed of each interface with a link, in Gbit/s. Empty with O(text).
  returned: success
  type: dict
  sample: {ens1f0np0: 100.0}
infiniband:
  description: The lines of C(ibnetdiscover -p).
  returned: if O(infiniband) is true
  type: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import READERS, read_neighbours
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags

NET = Path("/sys/class/net")


def _speeds(names: Any) -> dict[str, float]:
    speeds = {}
    for name in names:
        try:
            speed = int((NET / name / "speed").read_text())
        # The port has no link, or its driver does not report speeds (OSError: invalid argument).
        except (OSError, ValueError):
            continue
        if speed > 0:
            speeds[name] = speed / 1000
    return speeds


def _lldpd(module: AnsibleModule, arguments: list[str]) -> str:
    path = module.get_bin_path("lldpcli")
    if not path:
        raise SiteError("the host has no lldpcli", "install lldpd", subject="neighbours")
    status, output, error = module.run_command([path, *arguments])
    if status:
        raise SiteError(
            f"lldpcli {' '.join(arguments)} failed: {(error or output).strip()[:400]}",
            "check lldpd on the host",
            subject="neighbours",
        )
    return output


def _read(module: AnsibleModule) -> dict[str, Any]:
    params = module.params
    text = params["text"]
    speeds = {}
    if text is None:
        socket = ["-u", params["socket"]] if params["socket"] else []
        text = _lldpd(module, [*socket, "-f", "json0", "show", "neighbors"])
        speeds = _speeds(path.name for path in NET.iterdir())
    result = {
        "neighbours": {
            name: neighbour._asdict() for name, neighbour in read_neighbours(params["system"], text).items()
        },
        "speeds": speeds,
    }
    if params["infiniband"]:
        result["infiniband"] = Diags().run("ibnetdiscover", "-p")
    return result


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "system": {"type": "str", "choices": sorted(READERS), "default": "linux"},
            "text": {"type": "str"},
            "socket": {"type": "path"},
            "infiniband": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: _read(module))


if __name__ == "__main__":
    main()
