# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Silence the alerts of hosts in Alertmanager, or end a silence, from the controller."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.silences import (
    RESTARTED,
    RESTARTED_S,
    SilenceApi,
    login_of,
    silence,
)
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction

ALERTMANAGERS = {
    "urls": {"type": "list", "elements": "str", "required": True},
    "credentials_file": {"type": "path"},
    "ca_path": {"type": "path"},
}


class ActionModule(ControllerAction):
    """Ask an Alertmanager. If none answers, this warns: the run is worth more than a message less."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "alertmanagers": {"type": "dict", "required": True, "options": ALERTMANAGERS},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "restarted", "absent"], "default": "present"},
        "id": {"type": "str", "default": ""},
        "comment": {"type": "str", "default": "a run of Sailloft restarts it"},
        "seconds": {"type": "int", "default": 3600},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        if self._task.check_mode:
            return {"changed": False, "id": "", "skipped": True}
        try:
            return {"changed": True, "id": self._ask(arguments)}
        except (SailloftError, OSError) as error:
            warning = f"{', '.join(arguments['hosts'])}: the alerts are not silenced as they should be: {error}"
            return {"changed": False, "id": "", "warnings": [warning]}

    def _ask(self, arguments: dict[str, Any]) -> str:
        """Return the ID of the silence of all alerts, "" if there is none now. Raises MonitoringError, OSError."""
        place = arguments["alertmanagers"]
        login = ""
        if place["credentials_file"]:
            with open(place["credentials_file"], encoding="utf-8") as stream:
                login = login_of(stream.read())
        api = SilenceApi(place["urls"], open_url, login, place["ca_path"])
        hosts, comment, now_s = arguments["hosts"], arguments["comment"], time.time()
        if arguments["state"] == "present":
            return api.create(silence(hosts, comment, now_s, arguments["seconds"]))
        if arguments["state"] == "restarted":  # before the other one ends
            api.create(silence(hosts, comment, now_s, RESTARTED_S, RESTARTED))
        if arguments["id"]:
            api.expire(arguments["id"])
        return ""
