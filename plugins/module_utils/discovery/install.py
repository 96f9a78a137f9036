# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install the inspection stage in an image: its code, and the service that starts it."""

from __future__ import annotations

import sys

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import stage
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

MODULE = "node_inspection"
CODE = "/usr/lib/sailloft/inspection.pyz"
SERVICE = "sailloft-inspection.service"
SERVICE_FILE = f"/etc/systemd/system/{SERVICE}"
SERVICE_TEXT = """# Written by sailloft.fleet.{module}; changes here are lost.
[Unit]
Description=Reports this machine, which is no node, and waits (Sailloft)
Wants=network-online.target
After=network-online.target
ConditionKernelCommandLine=sailloft.inspect=1

[Service]
# The driver of the BMC itself is loaded for the device; this is its interface for programs.
ExecStartPre=-/sbin/modprobe ipmi_devintf
ExecStart={python} {code}
Restart=always
RestartSec=10
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
"""


def ensure(system: System, in_image: bool, check: bool = False, python: str = sys.executable) -> Outcome:
    """Install the stage. Raises HostError, also on a host that runs: it would report itself, and reboot."""
    if not in_image:
        raise HostError(
            f"{MODULE}: this host is no image: nothing was changed",
            "add the role node_inspection to a layer of an image",
        )
    unit.check_systemd(system, MODULE, running=False)
    wanted = {
        CODE: archive.build(stage.__name__),
        SERVICE_FILE: SERVICE_TEXT.format(module=MODULE, python=python, code=CODE).encode(),
    }
    return unit.install_in_image(system, SERVICE, wanted, {"service": SERVICE}, check)
