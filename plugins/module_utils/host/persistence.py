# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What brings the settings back after a reboot: a file of settings, the code, and a systemd unit that runs it."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import archive, boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System

SETTINGS = "/etc/sailloft/gpu_host.json"
CODE = "/usr/lib/sailloft/gpu_host.pyz"
UNIT = "sailloft-gpu-host.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
# driverctl's own units come from udev rules; both at once would pull one device from under each other.
ORDER_FILE = "/etc/systemd/system/driverctl@.service.d/sailloft.conf"
ORDER = f"""# Written by sailloft.fleet.gpu_host_boot; changes here are lost.
[Unit]
Before={UNIT}
"""
# Where systemd itself lies, with and without a merged /usr.
MANAGERS = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")
WANTS = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
# Both ways in which libvirt comes: one daemon, or one a driver. A guest that starts earlier would find no VFs,
# no huge pages and ACS off.
TEMPLATE = """# Written by sailloft.fleet.gpu_host_boot; changes here are lost.
[Unit]
Description=VFs, VFIO bindings, huge pages and PCIe settings of a GPU host (Sailloft)
Wants=systemd-udev-settle.service
After=systemd-udev-settle.service systemd-modules-load.service
Before=libvirtd.service virtqemud.service libvirt-guests.service
ConditionPathExists={settings}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} {code} {settings}
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""


def files(settings: dict[str, Any], python: str) -> dict[str, bytes]:
    """What has to be in which file; the unit last, so that it never runs without the others."""
    return {
        SETTINGS: (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode(),
        CODE: archive.build(boot.__name__),
        ORDER_FILE: ORDER.encode(),
        UNIT_FILE: TEMPLATE.format(python=python, code=CODE, settings=SETTINGS).encode(),
    }


def ensure(
    system: System,
    settings: dict[str, Any],
    check: bool = False,
    python: str = sys.executable,
    running: bool = True,
) -> Outcome:
    """Have ``settings`` brought about at every boot. Raises HostError.

    ``running`` is whether ``system`` is up; an image is not, and there is no systemd in it to speak to.
    """
    outcome = Outcome(facts={"unit": UNIT, "settings_file": SETTINGS})
    _check_systemd(system, running)
    wanted = files(settings, python)
    for path, content in wanted.items():
        there = system.read_bytes(path)
        if there != content:
            outcome.differ(path, _shown(path, there), _shown(path, content))
    enabled = system.exists(WANTS)
    if not enabled:
        outcome.differ(f"{UNIT} enabled", False, True)
    if check or not outcome.changed:
        return outcome
    for path, content in wanted.items():
        if path in outcome.after:
            system.replace(path, content)
    if not running:
        if not enabled:
            # With a root named, it only makes the link, whatever runs around it.
            system.run(["systemctl", "--root=/", "enable", UNIT])
        return outcome
    # "enable" reads all units again too.
    system.run(["systemctl", "enable", UNIT] if not enabled else ["systemctl", "daemon-reload"])
    return outcome


def _check_systemd(system: System, running: bool) -> None:
    if running and not system.exists("/run/systemd/system"):
        raise HostError("gpu_host_boot: this host is not run by systemd, whose unit brings the settings back at boot")
    if not running and not any(system.exists(path) for path in MANAGERS):
        raise HostError(
            "gpu_host_boot: there is no systemd in this image, whose unit brings the settings about at boot: "
            "add its package (systemd-sysv on Debian, systemd on RHEL)"
        )


def _shown(path: str, content: bytes | None) -> str | None:
    if content is None:
        return None
    return f"code, sha256 {sha256(content).hexdigest()}" if path == CODE else content.decode(errors="replace")
