# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of Prometheus and of its blackbox exporter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import ScrapeJob

# A TCP port is open although its program hangs; an SSH server must send its banner.
BLACKBOX = {
    "modules": {
        "tcp_connect": {"prober": "tcp", "timeout": "5s"},
        "ssh_banner": {"prober": "tcp", "timeout": "5s", "tcp": {"query_response": [{"expect": "^SSH-2.0-"}]}},
    }
}


# The label that tells the servers of a pair apart. Alerts lose it, so that Alertmanager sees those of the pair as one.
REPLICA = "replica"


@dataclass(frozen=True)
class ScrapeLogin:
    """The certificate and the login with which Prometheus reaches others by HTTPS; paths are those of its server."""

    ca_file: str
    username: str = ""
    password_file: str = ""


@dataclass(frozen=True)
class Peers:
    """The programs around a Prometheus, each HOST:PORT. ``replica``: its own name in a pair, or ""."""

    blackbox: str
    alertmanagers: tuple[str, ...] = ()
    client: ScrapeLogin | None = None
    replica: str = ""


def prometheus(
    site: str, evaluation_s: int, jobs: Mapping[str, ScrapeJob], with_targets: Iterable[str], peers: Peers
) -> dict[str, Any]:
    """Return the configuration. Its paths are relative to its file, those of ``peers.client`` are absolute."""
    labels = {"site": site, **({REPLICA: peers.replica} if peers.replica else {})}
    return {
        "global": {"scrape_interval": "60s", "evaluation_interval": f"{evaluation_s}s", "external_labels": labels},
        "rule_files": ["rules/*.yml"],
        **({"alerting": _alerting(peers)} if peers.alertmanagers else {}),
        "scrape_configs": [_scrape(name, jobs[name], peers) for name in with_targets],
    }


def _alerting(peers: Peers) -> dict[str, Any]:
    alerting: dict[str, Any] = {
        "alertmanagers": [{**_reached(peers.client), "static_configs": [{"targets": list(peers.alertmanagers)}]}]
    }
    if peers.replica:
        alerting["alert_relabel_configs"] = [{"action": "labeldrop", "regex": REPLICA}]
    return alerting


def _reached(client: ScrapeLogin | None) -> dict[str, Any]:
    if client is None:
        return {}
    login = {"username": client.username, "password_file": client.password_file}
    secured: dict[str, Any] = {"scheme": "https", "tls_config": {"ca_file": client.ca_file}}
    return {**secured, "basic_auth": login} if client.username else secured


def _scrape(name: str, job: ScrapeJob, peers: Peers) -> dict[str, Any]:
    config: dict[str, Any] = {
        "job_name": name,
        "scrape_interval": f"{job.interval_s}s",
        "scrape_timeout": f"{min(job.interval_s, 10)}s",
        **_reached(None if job.plain else peers.client),
        "file_sd_configs": [{"files": [f"targets/{name}.json"]}],
    }
    if job.module:
        config["metrics_path"] = "/probe"
        config["params"] = {"module": [job.module]}
        config["relabel_configs"] = [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"target_label": "__address__", "replacement": peers.blackbox},
        ]
    return config
