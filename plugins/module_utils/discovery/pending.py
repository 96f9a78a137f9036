# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the reports of unknown machines that a boot server keeps."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import LIMIT_BYTES, MachineReport, load
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

FOLDER = "/var/lib/sailloft-pending"
NAME = re.compile(r"[0-9a-f]{2}(?:-[0-9a-f]{2}){5}")
# The keeper keeps no more.
MOST = 4096


def read(folder: str, now_s: float, topologies: Sequence[str] = ()) -> dict[str, Any]:
    """Return ``machines`` (a report without its topology, and age_s), and ``refused`` reports (mac, cause).

    Both are in the order of their MAC addresses. The machines in ``topologies`` also have their topology. Raises
    DiscoveryError if the server keeps no reports.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if NAME.fullmatch(name))
    except OSError as error:
        raise DiscoveryError(
            f"keeps no reports: {error.strerror}",
            "set boot_server_discovery, and run playbooks/boot_servers.yml",
            subject=folder,
        ) from error
    machines, refused = [], []
    for name in names[:MOST]:
        mac = name.replace("-", ":")
        try:
            content, written_s = _content(os.path.join(folder, name))
            report = load(content, mac)
            row = {**report.summary(), "age_s": max(int(now_s - written_s), 0)}
            if mac in topologies:
                row["topology"] = _topology(report)
        except FileNotFoundError:
            continue  # it was accepted in this moment
        except DiscoveryError as error:
            refused.append({"mac": mac, "cause": error.cause})
        except OSError as error:
            refused.append({"mac": mac, "cause": str(error.strerror)})
        else:
            machines.append(row)
    return {"machines": machines, "refused": refused}


def _content(path: str) -> tuple[bytes, float]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as stream:
        return stream.read(LIMIT_BYTES + 1), os.fstat(handle).st_mtime


def _topology(report: MachineReport) -> dict[str, Any] | None:
    """Return the topology once it was checked. Raises DiscoveryError."""
    if report.topology is None:
        return None
    try:
        return read_saved(report.topology).to_dict()
    except TopologyError as error:
        raise DiscoveryError(error.cause, error.remedy, subject=f"topology of {report.mac}") from error
