# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run ConMan on this host with a configuration and a unit of its own, and read back which consoles it has."""

from __future__ import annotations

import os
import time

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import private, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.conman import ConsoleError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state

CONFIG, UNIT = "/etc/sailloft/conman.conf", "/etc/systemd/system/sailloft-consoles.service"
SERVICE = "sailloft-consoles.service"
START_S = 10.0
UNIT_TEXT = f"""[Unit]
Description=Keeps the consoles of the nodes
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/sbin/conmand -F -c {CONFIG}
Restart=on-failure
RestartSec=10
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def converge(system: System, text: str, log_dir: str, names: set[str], port: int, is_check: bool) -> list[str]:
    """Make the service keep these consoles, and return what was changed: "configuration", "unit", "service".

    Raises HostError and ConsoleError.
    """
    changed = []
    if system.read_bytes(CONFIG) != text.encode():
        changed.append("configuration")
    if system.read_bytes(UNIT) != UNIT_TEXT.encode():
        changed.append("unit")
    state = unit_state(system, SERVICE)
    if changed or not (state.is_enabled and state.runs):
        changed.append("service")
    if is_check or not changed:
        return changed
    os.makedirs(system.path(log_dir), mode=0o700, exist_ok=True)
    if "unit" in changed:
        system.replace(UNIT, UNIT_TEXT.encode())
        system.run(["systemctl", "daemon-reload"])
    if "configuration" in changed:
        os.makedirs(os.path.dirname(system.path(CONFIG)), exist_ok=True)
        write_atomic(system.path(CONFIG), text.encode(), private)
    system.run(["systemctl", "enable", SERVICE])
    system.run(["systemctl", "restart", SERVICE])
    check(system, names, port)
    return changed


def check(system: System, names: set[str], port: int) -> None:
    """Check that ConMan has these consoles. Raises ConsoleError."""
    end = time.monotonic() + START_S
    while True:
        served = set(system.run(["sh", "-c", f"conman -d 127.0.0.1:{port} -q 2>&1 || true"]).split())
        if names <= served:
            return
        if time.monotonic() > end:
            missing = ", ".join(sorted(names - served))
            raise ConsoleError(f"conmand does not have the consoles {missing}", f"read journalctl -u {SERVICE}")
        time.sleep(0.2)
