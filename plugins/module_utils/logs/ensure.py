# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Send a node's journal to Kafka and Elasticsearch by a rsyslogd of its own; in an image, from its next boot on."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state
from ansible_collections.sailloft.fleet.plugins.module_utils.logs import bulk, config, counts
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.request import LogsRequest, read_request

MODULE = "node_logs"
RSYSLOGD = "/usr/sbin/rsyslogd"
CONFIG, BULK_SETTINGS = "/etc/sailloft/logs.conf", "/etc/sailloft/logs_bulk.json"
COUNTS_CODE, BULK_CODE = "/usr/lib/sailloft/log_counts.pyz", "/usr/lib/sailloft/log_bulk.pyz"
SERVICE = "sailloft-logs.service"
SERVICE_FILE, WANTS = f"/etc/systemd/system/{SERVICE}", f"/etc/systemd/system/multi-user.target.wants/{SERVICE}"
FILES = (CONFIG, BULK_SETTINGS, COUNTS_CODE, BULK_CODE, SERVICE_FILE)
SERVICE_TEXT = f"""# Written by sailloft.fleet.{MODULE}; changes here are lost.
[Unit]
Description=Logs of this node to Kafka and Elasticsearch (Sailloft)
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
# rsyslogd does not make its directory.
ExecStartPre=/bin/mkdir -p {config.WORK}
ExecStart={RSYSLOGD} -n -iNONE -f {CONFIG}
Restart=on-failure
RestartSec=5
UMask=0077
LimitNOFILE=16384

[Install]
WantedBy=multi-user.target
"""


def options() -> dict[str, Any]:
    """Return the options of the module node_logs as an argument_spec."""
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "host": {"type": "str", "default": ""},
        "rack": {"type": "str", "default": ""},
        "kafka": {"type": "dict"},
        "elasticsearch": {"type": "dict"},
        "queue_mib": {"type": "int", "default": 256},
        "counts_file": {"type": "str", "default": ""},
    }


def ensure(
    system: System, params: Mapping[str, Any], in_image: bool, check: bool = False, python: str = sys.executable
) -> Outcome:
    """Bring the node to its state. A configuration that rsyslogd refuses changes nothing. Raises HostError."""
    if params["state"] == "absent":
        return remove(system, in_image, check)
    request = read_request({name: value for name, value in params.items() if name != "state"})
    unit.check_systemd(system, MODULE, not in_image)
    wanted = {**dict.fromkeys(FILES), **files(request, in_image, python)}
    outcome = Outcome(facts={"unit": SERVICE})
    unit.compare(system, wanted, outcome)
    has_changed_files = outcome.changed
    is_enabled = system.exists(WANTS)
    if not is_enabled:
        outcome.differ(f"{SERVICE} enabled", False, True)
    is_stopped = not in_image and unit_state(system, SERVICE).active_state != "active"
    if is_stopped:
        outcome.differ(f"{SERVICE} running", False, True)
    if CONFIG in outcome.after and not (check and not system.exists(RSYSLOGD)):  # its package may be installed later
        _check_configuration(system, request, in_image, python)
    if not check and outcome.changed:
        unit.write(system, wanted, outcome)
        _start(system, in_image, is_enabled, has_changed_files or is_stopped)
    return outcome


def _start(system: System, in_image: bool, is_enabled: bool, must_restart: bool) -> None:
    if not in_image and must_restart:
        system.run(["systemctl", "daemon-reload"])
        system.run(["systemctl", "restart", SERVICE])
    # The service is enabled last, so that the next run completes one that was killed.
    if not is_enabled:
        system.run(["systemctl", *(["--root=/"] if in_image else []), "enable", SERVICE])


def files(request: LogsRequest, in_image: bool, python: str) -> dict[str, bytes]:
    """Return the content by file."""
    wanted = {CONFIG: _text(request, in_image, python, config.WORK).encode(), SERVICE_FILE: SERVICE_TEXT.encode()}
    if request.counts_file:
        wanted[COUNTS_CODE] = archive.build(counts.__name__)
    if request.elasticsearch:
        stem, _ending = os.path.splitext(request.counts_file)
        settings = {
            **asdict(request.elasticsearch),
            "refused_file": f"{stem}_refused.prom" if stem else "",
            "unconfirmed_file": f"{config.WORK}/elasticsearch.unconfirmed",
        }
        wanted[BULK_SETTINGS] = (json.dumps(settings, indent=1, sort_keys=True) + "\n").encode()
        wanted[BULK_CODE] = archive.build(bulk.__name__)
    return wanted


def _text(request: LogsRequest, in_image: bool, python: str, work: str) -> str:
    commands = config.Commands(
        counts=f"{python} {COUNTS_CODE} {request.counts_file}", bulk=f"{python} {BULK_CODE} {BULK_SETTINGS}"
    )
    source = config.FROM_BOOT if in_image else config.FROM_NOW
    return config.configuration(request, commands, work, source)


def _check_configuration(system: System, request: LogsRequest, in_image: bool, python: str) -> None:
    """Let rsyslogd read the configuration, with a work directory that exists. Raises HostError."""
    with tempfile.TemporaryDirectory() as folder:
        candidate = os.path.join(folder, "logs.conf")
        with open(candidate, "w", encoding="utf-8") as file:
            file.write(_text(request, in_image, python, folder))
        try:
            system.run([RSYSLOGD, "-N1", "-f", candidate])
        except HostError as error:
            cause = f"rsyslogd refuses the configuration, and nothing was changed: {error.cause}"
            raise HostError(cause, error.remedy, subject=MODULE) from error


def remove(system: System, in_image: bool, check: bool = False) -> Outcome:
    """Remove service, configuration and programs; lines that wait on disk stay. Raises HostError."""
    return unit.remove_unit(system, SERVICE, WANTS, FILES, ["--root=/" if in_image else "--now"], check)
