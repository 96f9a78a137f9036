# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of Prometheus and of its blackbox exporter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import ScrapeJob

# A TCP port is open although its program hangs; an SSH server must send its banner.
BLACKBOX = {
    "modules": {
        "tcp_connect": {"prober": "tcp", "timeout": "5s"},
        "ssh_banner": {"prober": "tcp", "timeout": "5s", "tcp": {"query_response": [{"expect": "^SSH-2.0-"}]}},
    }
}


def prometheus(
    site: str, jobs: Mapping[str, ScrapeJob], with_targets: Iterable[str], blackbox: str, alertmanagers: Iterable[str]
) -> dict[str, Any]:
    """Return the configuration. ``blackbox``, ``alertmanagers``: HOST:PORT. Its paths are relative to its file."""
    targets = list(alertmanagers)
    return {
        "global": {"scrape_interval": "60s", "evaluation_interval": "30s", "external_labels": {"site": site}},
        "rule_files": ["rules/*.yml"],
        **({"alerting": {"alertmanagers": [{"static_configs": [{"targets": targets}]}]}} if targets else {}),
        "scrape_configs": [_scrape(name, jobs[name], blackbox) for name in with_targets],
    }


def _scrape(name: str, job: ScrapeJob, blackbox: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "job_name": name,
        "scrape_interval": f"{job.interval_s}s",
        "scrape_timeout": f"{min(job.interval_s, 10)}s",
        "file_sd_configs": [{"files": [f"targets/{name}.json"]}],
    }
    if job.module:
        config["metrics_path"] = "/probe"
        config["params"] = {"module": [job.module]}
        config["relabel_configs"] = [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"target_label": "__address__", "replacement": blackbox},
        ]
    return config
