# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the subnet manager of a host to its planned files, or compare it: files, service, reload or restart.

The service of each fabric is Sailloft's own, because those of the distributions differ in what they start: Debian's
runs opensm on all ports. It keeps a copy of the files with which opensm started, since opensm takes some of the options
only then.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot.unit import check_systemd
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import UnitState, unit_state
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import CONF, NAMES
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.opensm_options import need_restart, values
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import TOP_PRIORITY
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.read import LOG, LOG_BYTES

OPENSM = "/usr/sbin/opensm"
# The services of the packages, which must not run beside Sailloft's: that of Debian and Red Hat, and MLNX_OFED's.
# Debian's starts opensm@GUID.service for each port, and stops them, too (PartOf).
PACKAGED = ("opensm.service", "opensmd.service")
DISTRIBUTION_FOLDERS = ("/etc/opensm", "/etc/rdma")
UNIT = """# Written by sailloft.fleet.ib_manager; changes here are lost.
[Unit]
Description=opensm of the InfiniBand fabric {fabric} (Sailloft)
Documentation=man:opensm(8)
Conflicts={packaged}

[Service]
Environment=OSM_CACHE_DIR=/var/cache/opensm/{fabric}
CacheDirectory=opensm/{fabric}
LogsDirectory=opensm/{fabric}
RuntimeDirectory={runtime}
ExecStartPre=-/sbin/modprobe ib_umad
ExecStartPre=/bin/cp {folder}/{conf} {folder}/{names} {units}/%n /run/{runtime}/
ExecStart={opensm} -F {folder}/{conf}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
UNITS = "/etc/systemd/system"
_FABRIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_FILE = re.compile(r"[A-Za-z0-9_.-]+")
_STATE = re.compile(r"Entering (DISCOVERING|STANDBY|MASTER|NOT-ACTIVE) state")
_SWEPT = "SUBNET UP"
# opensm then makes all ports full members of the default partition.
_PARTITION_ERROR = re.compile(r"PARSE ERROR.*|.*retrying with default config.*")
PAUSE_S = 0.5


def converge(system: System, options: Mapping[str, Any], check: bool = False) -> Outcome:
    """Bring the host to the options of the module ``ib_manager``. Raises HostError.

    Facts: ``needs_restart``, the options and files that opensm takes only when it starts; ``manager``, what opensm is
    now by its log ("" in check mode and where it does not run).
    """
    check_systemd(system, "ib_manager", True)
    fabric, folder = options["fabric"], options["directory"]
    texts = _texts(options)
    unit_file = f"{UNITS}/{_unit(fabric)}"
    files = {**{f"{folder}/{name}": text for name, text in texts.items()}, unit_file: _unit_text(fabric, folder)}
    present = {path: _read(system, path) for path in files}
    outcome = Outcome()
    taken_over = present[f"{folder}/{CONF}"] is None
    for path, text in files.items():
        if present[path] != text:
            outcome.differ(
                path, _earlier(system, path) if taken_over and present[path] is None else present[path], text
            )
    written = list(outcome.after)
    waits = system.exists(_pending(fabric))
    if waits and not written:
        outcome.differ(f"{_unit(fabric)} loaded", "other files", "the planned ones")
    service = unit_state(system, _unit(fabric))
    packaged_units = [unit for unit in (unit_state(system, name) for name in PACKAGED) if unit.is_enabled or unit.runs]
    for unit in packaged_units:
        outcome.differ(unit.name, str(unit), "masked, stopped")
    if not (service.is_enabled and service.runs):
        outcome.differ(service.name, str(service), "enabled, running")
    if service.is_outdated and unit_file not in written:
        outcome.differ(f"{service.name} read by systemd", "an older one", "the planned one")
    reasons = _restart_reasons(system, fabric, texts, files[unit_file]) if service.runs else []
    reasons += ["the unit"] if service.runs and service.is_outdated and "the unit" not in reasons else []
    restarts = bool(reasons) and options["restart"]
    if restarts:
        outcome.differ(f"{service.name} started", "with other settings", f"with {', '.join(reasons)} as planned")
    unmet_reasons = [] if restarts else reasons
    outcome.facts = {"needs_restart": unmet_reasons, "manager": ""}
    if check:
        return outcome
    if service.runs and [path for path in written if path != unit_file]:
        # A run that is killed now, or whose files opensm refuses, leaves it to the next one to let opensm read them.
        system.replace(_pending(fabric), b"")
    for path in written:
        system.replace(path, files[path].encode())
    _run(system, options, service, packaged_units, restarts, written, unit_file)
    system.remove(_pending(fabric))
    outcome.facts["manager"] = _manager(system, fabric)
    return outcome


def _run(
    system: System,
    options: Mapping[str, Any],
    service: UnitState,
    packaged_units: list[UnitState],
    restarts: bool,
    written: list[str],
    unit_file: str,
) -> None:
    """Start, restart or reload the service where it is needed, and wait until opensm has done its work."""
    # Also after a run that was killed before.
    if unit_file in written or service.is_outdated:
        system.run(["systemctl", "daemon-reload"])
    for unit in packaged_units:
        system.run(["systemctl", "mask", "--now", unit.name])
    planned = values(_texts(options)[CONF])
    log = planned.get("log_file", LOG)
    # Only the first manager of a plan has this priority. It may stand by until the present master hands over.
    first = planned.get("sm_priority") == str(TOP_PRIORITY)
    running_log = _log(system, options["fabric"])
    if not service.runs or restarts:
        start = _size(system, log)
        if not service.is_enabled:
            system.run(["systemctl", "enable", service.name])
        system.run(["systemctl", "restart" if restarts else "start", service.name])
        _wait(system, service.name, log, start, options["limit_s"], first)
    elif system.exists(_pending(options["fabric"])):
        start = _size(system, running_log)
        # A standby reads its opensm.conf again, too, but sweeps nothing.
        sweeps = _manager(system, options["fabric"]) == "master"
        system.run(["systemctl", "reload", service.name])
        if sweeps:
            _wait(system, service.name, running_log, start, options["limit_s"], True)
    elif not service.is_enabled:
        system.run(["systemctl", "enable", service.name])


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the planned files of this host by name. Raises RequestError for those that opensm must not get."""
    files, config = options["files"], options["config"]
    if not _FABRIC.fullmatch(options["fabric"]):
        raise RequestError(
            f"fabric {options['fabric']!r} cannot be in the name of a service", "use letters, digits, '-' and '_'"
        )
    for name, text in files.items():
        if not _FILE.fullmatch(name) or not isinstance(text, str):
            raise RequestError(f"files: {name!r} is no name of a file with a text", "give what ib_plan returns")
    if config not in files:
        raise RequestError(f"files: there is no {config}", "name the host's HCA in the managers of ib_plan")
    # Further opensm-HOST.conf are those of other managers.
    texts = {name: text for name, text in files.items() if not name.startswith("opensm")}
    if "guid" not in values(files[config]):
        raise RequestError(
            f"{config}: the GUID of the host's HCA is not known, so opensm would take the first port of the host",
            "give it in guids or readings of ib_plan",
        )
    return {**texts, CONF: files[config]}


def _unit(fabric: str) -> str:
    return f"sailloft-opensm-{fabric}.service"


def _runtime(fabric: str) -> str:
    return f"sailloft-opensm-{fabric}"


def _pending(fabric: str) -> str:
    """Return the mark of files that the running opensm has not read; systemd removes it when the service stops."""
    return f"/run/{_runtime(fabric)}/reload"


def _unit_text(fabric: str, folder: str) -> str:
    return UNIT.format(
        fabric=fabric,
        folder=folder,
        packaged=" ".join(PACKAGED),
        runtime=_runtime(fabric),
        conf=CONF,
        names=NAMES,
        opensm=OPENSM,
        units=UNITS,
    )


def _earlier(system: System, path: str) -> str | None:
    """Return the text of the distribution's file of that name, so that a difference shows what is taken over."""
    texts = (_read(system, f"{folder}/{os.path.basename(path)}") for folder in DISTRIBUTION_FOLDERS)
    return next((text for text in texts if text is not None), None)


def _restart_reasons(system: System, fabric: str, texts: Mapping[str, str], unit: str) -> list[str]:
    """Return what the running opensm does not have: options, the names of switches, the unit's settings."""
    started = {name: _read(system, f"/run/{_runtime(fabric)}/{name}") for name in (CONF, NAMES, _unit(fabric))}
    reasons = need_restart(values(started[CONF] or ""), values(texts[CONF]))
    reasons += [NAMES] if started[NAMES] != texts[NAMES] else []
    return reasons + (["the unit"] if started[_unit(fabric)] != unit else [])


def _log(system: System, fabric: str) -> str:
    """Return the log of the running opensm."""
    return values(_read(system, f"/run/{_runtime(fabric)}/{CONF}") or "").get("log_file", LOG)


def _read(system: System, path: str) -> str | None:
    content = system.read_bytes(path)
    return None if content is None else content.decode(errors="replace")


def _size(system: System, path: str) -> int:
    try:
        return os.stat(system.path(path)).st_size
    except OSError:
        return 0


def _log_since(system: System, path: str, start: int) -> str:
    """Return the text of a log after its first ``start`` bytes; all of it if opensm has begun it anew."""
    try:
        with open(system.path(path), "rb") as stream:
            stream.seek(start if _size(system, path) >= start else 0)
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def _manager(system: System, fabric: str) -> str:
    """Return what the running opensm is by its log: "master", "standby", "discovering" or "not-active"."""
    log = _log(system, fabric)
    return _state(_log_since(system, log, max(0, _size(system, log) - LOG_BYTES)))


def _state(log: str) -> str:
    states = _STATE.findall(log)
    return states[-1].lower() if states else ""


def _wait(system: System, service: str, log: str, start: int, limit_s: float, master: bool) -> None:
    """Wait until opensm has swept its subnet as master, or is a standby where it need not be ``master``."""
    end = time.monotonic() + limit_s
    while True:
        text = _log_since(system, log, start)
        error = _PARTITION_ERROR.search(text)
        if error:
            raise HostError(
                f"{service}: opensm refuses partitions.conf, and all ports are members of the default partition: "
                f"{error[0].strip()}",
                "correct the partitions at once",
            )
        if _SWEPT in text or (_state(text) == "standby" and not master):
            return
        if time.monotonic() > end:
            raise HostError(
                f"{service}: opensm has not become {'master' if master else 'master or standby'} in {limit_s:g} s",
                f"look into {log} and journalctl -u {service}, and for other subnet managers (saquery SMInfoRecord)",
            )
        time.sleep(PAUSE_S)
