# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts that restore settings after a reboot: a file of settings, the code, and a systemd unit that runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# The template of a unit, which ``unit_text`` fills in. The service starts after devices and their drivers are ready.
UNIT = """# Written by sailloft.fleet.{module}; changes here are lost.
[Unit]
Description={description} (Sailloft)
Wants=systemd-udev-settle.service
After=systemd-udev-settle.service systemd-modules-load.service {after}
Before={before}
ConditionPathExists={settings}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} {code} {settings}
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
# The path of systemd itself, with and without a merged /usr.
MANAGERS = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")


@dataclass(frozen=True)
class BootService:
    """A task that runs at every boot.

    ``start`` names the module whose ``main`` runs; the creator of the Service must import it. ``after``: units that it
    waits for; ``before``: units that wait for it. ``others``: further files, by path. ``module``: the module named in
    errors.
    """

    module: str
    start: str
    settings: str
    code: str
    unit: str
    description: str
    after: tuple[str, ...]
    before: tuple[str, ...]
    others: dict[str, str] = field(default_factory=dict)

    @property
    def unit_file(self) -> str:
        """Return the path of the unit."""
        return f"/etc/systemd/system/{self.unit}"

    @property
    def wants(self) -> str:
        """Return the path of the link that enables the unit."""
        return f"/etc/systemd/system/multi-user.target.wants/{self.unit}"


def files(service: BootService, settings: dict[str, Any], python: str) -> dict[str, bytes]:
    """Return the required content by file; the unit last, so that it never runs without the others."""
    return {
        service.settings: (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode(),
        service.code: archive.build(service.start),
        **{path: text.encode() for path, text in service.others.items()},
        service.unit_file: unit_text(service, python).encode(),
    }


def unit_text(service: BootService, python: str) -> str:
    """Return the unit of a service."""
    return UNIT.format(
        module=service.module,
        description=service.description,
        after=" ".join(service.after),
        before=" ".join(service.before),
        python=python,
        code=service.code,
        settings=service.settings,
    )


def ensure(
    system: System,
    service: BootService,
    settings: dict[str, Any],
    check: bool = False,
    python: str = sys.executable,
    running: bool = True,
) -> Outcome:
    """Install the service that applies ``settings`` at every boot. Raises HostError.

    ``running`` is True if ``system`` is up; an image is not, and has no running systemd.
    """
    outcome = Outcome(facts={"unit": service.unit, "settings_file": service.settings})
    check_systemd(system, service.module, running)
    wanted = files(service, settings, python)
    compare(system, wanted, outcome)
    enabled = system.exists(service.wants)
    if not enabled:
        outcome.differ(f"{service.unit} enabled", False, True)
    if check or not outcome.changed:
        return outcome
    write(system, wanted, outcome)
    if not running:
        if not enabled:
            # With --root, systemctl only creates the link, and does not use the running systemd.
            system.run(["systemctl", "--root=/", "enable", service.unit])
        return outcome
    # "enable" also reloads all units.
    system.run(["systemctl", "enable", service.unit] if not enabled else ["systemctl", "daemon-reload"])
    return outcome


def saved(system: System, service: BootService) -> dict[str, Any] | None:
    """Return the saved settings; None if there are none or they cannot be read."""
    content = system.read_bytes(service.settings)
    try:
        settings = json.loads(content) if content is not None else None
    except ValueError:
        return None
    return settings if isinstance(settings, dict) else None


def remove(system: System, service: BootService, check: bool = False) -> Outcome:
    """Remove the unit, its link and its files, so that nothing is done at boot. Raises HostError."""
    paths = [service.unit_file, service.settings, service.code, *service.others]
    return remove_unit(system, service.unit, service.wants, paths, [], check)


def remove_unit(
    system: System, unit: str, link: str, paths: Sequence[str], options: Sequence[str], check: bool
) -> Outcome:
    """Disable a unit and remove its files. ``link``: the link that enables it. Raises HostError.

    ``options`` are those of ``systemctl disable``; with ``--root=/``, in an image, no systemd is reloaded.
    """
    outcome = Outcome()
    if system.exists(link):
        outcome.differ(f"{unit} enabled", True, False)
        if not check:
            system.run(["systemctl", "disable", *options, unit])
    for path in paths:
        if system.exists(path):
            outcome.differ(path, "there", None)
            if not check:
                system.remove(path)
    if outcome.changed and not check and "--root=/" not in options:
        system.run(["systemctl", "daemon-reload"])
    return outcome


def install_in_image(
    system: System, unit: str, wanted: Mapping[str, bytes], facts: dict[str, Any], check: bool
) -> Outcome:
    """Write the files of a unit of multi-user.target into an image and enable it. Raises HostError."""
    outcome = Outcome(facts=facts)
    compare(system, wanted, outcome)
    enabled = system.exists(f"/etc/systemd/system/multi-user.target.wants/{unit}")
    if not enabled:
        outcome.differ(f"{unit} enabled", False, True)
    if not check:
        write(system, wanted, outcome)
    if not (check or enabled):
        system.run(["systemctl", "--root=/", "enable", unit])
    return outcome


def compare(system: System, wanted: Mapping[str, bytes | None], outcome: Outcome) -> None:
    """Record how files differ from ``wanted``, their content by path; None: no file. Raises HostError."""
    for path, content in wanted.items():
        present = system.read_bytes(path)
        if present != content and not (present and content and archive.is_same(present, content)):
            outcome.differ(path, _shown(present), _shown(content))


def write(system: System, wanted: Mapping[str, bytes | None], outcome: Outcome) -> None:
    """Write or remove the files of ``wanted`` that differ by ``outcome``, in their order. Raises HostError."""
    for path, content in wanted.items():
        if path not in outcome.after:
            continue
        if content is None:
            system.remove(path)
        else:
            system.replace(path, content)


def check_systemd(system: System, module: str, running: bool) -> None:
    """Refuse a host that does not run systemd, and an image without it. Raises HostError."""
    if running and not system.exists("/run/systemd/system"):
        raise HostError(
            f"{module}: this host does not run systemd, which is needed to run its service",
            "use a host whose process 1 is systemd",
        )
    if not running and not any(system.exists(path) for path in MANAGERS):
        raise HostError(
            f"{module}: this image has no systemd, which is needed to run its service",
            "add its package (systemd-sysv on Debian, systemd on RHEL)",
        )


def _shown(content: bytes | None) -> str | None:
    if content is None:
        return None
    is_binary = b"\0" in content  # as git tells them apart
    return f"binary, sha256 {sha256(content).hexdigest()}" if is_binary else content.decode(errors="replace")
