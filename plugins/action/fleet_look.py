# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Look at the whole fleet in one call on the controller: states, page, and log of changes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet import kept, look
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.floor import floor_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import STORE, SWITCHES, fleet_hosts, refreshed
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.metrics import boot_server_metrics, fleet_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.page import fleet_page
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import read_proofs
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import publish
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction

PAGE, STATE, LOG = "fleet.html", "fleet.json", "fleet-log.jsonl"
ENDING = ".json"


class ActionModule(ControllerAction):
    """Read files and results, and write what differs; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "path": {"type": "path", "required": True},
        "proofs": {"type": "path", "required": True},
        "blueprint": {"type": "path"},
        "title": {"type": "str", "default": "The inventory"},
        "metrics_path": {"type": "path"},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        groups, hostvars = variables["groups"], variables["hostvars"]
        site = read_site(arguments["blueprint"]) if arguments["blueprint"] else None
        host_vars = {name: hostvars[name] for name in groups["all"] if name != "localhost"}
        hosts = fleet_hosts(groups, host_vars, site)
        switches = groups.get(SWITCHES, []) if site is None else []
        floor = floor_of(site, ((name, host_vars[name].get("roce_switch_ports") or {}) for name in switches))
        path, write = arguments["path"], not self._task.check_mode
        page_path, state_path, log_path = (os.path.join(path, name) for name in (PAGE, STATE, LOG))
        with _alone(log_path, write):
            state_text = files.read(state_path)
            earlier = kept.read_kept(state_text, state_path)
            log_bytes, tail = _end(log_path, earlier.log_bytes)
            log_bytes += _append(log_path, kept.left_to_append(earlier, log_bytes, tail), write)
            now_s = time.time()
            current = refreshed(earlier.readings, hosts, host_vars, groups.get("boot_servers", []), now_s)
            seen = look.look_at(hosts, current, read_proofs(_proofs(arguments["proofs"]), host_vars), now_s)
            new = kept.keep(earlier, current, seen, log_bytes)
            page = fleet_page(seen, floor, arguments["title"], os.path.relpath(arguments["proofs"], path))
            texts = {state_path: (state_text, new.to_json()), page_path: (files.read(page_path), page)}
            written = [name for name, (old, text) in texts.items() if old != text]
            for name in written if write else ():
                files.write(name, texts[name][1])
            if new is not earlier:
                _append(log_path, new.log_lines.encode(), write)
        servers = {name: host_vars[name].get(STORE) for name in groups.get("boot_servers", []) if name in host_vars}
        metrics = self._publish(arguments["metrics_path"], seen, servers) if arguments["metrics_path"] else []
        changes = new.log_lines if new is not earlier else ""
        return {
            **look.to_dict(seen),
            "changed": bool(written) or any(changed for _path, changed in metrics),
            "changes": changes.splitlines(),
            "files": [page_path, state_path, log_path, *(name for name, _changed in metrics)],
            "diff": {"before_header": log_path, "after_header": log_path, "before": "", "after": changes},
        }

    def _publish(self, folder: str, seen: look.Look, servers: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """Write the metrics; those of the boot servers only if this run has asked all of them."""
        published = [publish(folder, "fleet", fleet_metrics(seen), seen.now_s, self._task.check_mode)]
        if servers and None not in servers.values():
            metrics = boot_server_metrics(servers)
            published.append(publish(folder, "boot_servers", metrics, seen.now_s, self._task.check_mode))
        return published


@contextmanager
def _alone(path: str, write: bool) -> Iterator[None]:
    """Keep other runs with the same log waiting; in check mode nothing is written, and nobody waits."""
    if not write:
        yield
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise kept.FleetError(f"cannot write {path}: {error.strerror}", "give a directory that you own") from error


def _end(path: str, offset: int) -> tuple[int, bytes]:
    """Return the size of the log, and its content from an offset on."""
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return os.fstat(stream.fileno()).st_size, stream.read()
    except FileNotFoundError:
        return 0, b""


def _append(path: str, lines: bytes, write: bool) -> int:
    """Append to the log, and return how much; in check mode, how much it would be."""
    if lines and write:
        with open(path, "ab") as stream:
            stream.write(lines)
            stream.flush()
            os.fsync(stream.fileno())
    return len(lines)


def _proofs(folder: str) -> dict[str, tuple[str, float]]:
    """Return content and time of each NAME.json in a directory, by NAME."""
    texts = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if name.endswith(ENDING) and not name.startswith(".") and os.path.isfile(path):
            texts[name[: -len(ENDING)]] = (files.read(path) or "", os.stat(path).st_mtime)
    return texts
