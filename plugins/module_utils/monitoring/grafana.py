# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Grafana's dashboards, which are files of the collection, and its provisioning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Written by docs/site/dashboards.py, from the tables of alerts and of GPU metrics.
FOLDER = Path(__file__).with_name("dashboards")


def dashboards() -> dict[str, str]:
    """Return the dashboards as JSON, by name of the file."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.json"))}


def provisioning(prometheus_url: str) -> dict[str, Any]:
    """Return Grafana's provisioning: the source of the data, and the folder of the dashboards."""
    return {
        "grafana/provisioning/datasources/sailloft.yml": {
            "apiVersion": 1,
            "datasources": [
                {
                    "name": "Sailloft",
                    "type": "prometheus",
                    "access": "proxy",
                    "url": prometheus_url,
                    "isDefault": True,
                    "jsonData": {"httpMethod": "POST", "timeInterval": "60s"},
                }
            ],
        },
        "grafana/provisioning/dashboards/sailloft.yml": {
            "apiVersion": 1,
            "providers": [
                {
                    "name": "sailloft",
                    "folder": "Sailloft",
                    "type": "file",
                    "allowUiUpdates": False,
                    "options": {"path": "/etc/prometheus/dashboards"},
                }
            ],
        },
    }
