# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan a site from its blueprint, on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.files import write
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.plan import plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site


class ActionModule(ActionBase):
    """Expand, check and write; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(
            {
                "blueprint": {"type": "path", "required": True},
                "before": {"type": "path"},
                "path": {"type": "path"},
            }
        )
        try:
            site = read_site(arguments["blueprint"])
            old_site = read_site(arguments["before"]) if arguments["before"] else None
            site_files = plan(site, old_site)
        except SiteError as error:
            raise AnsibleActionFail(str(error)) from error
        files = site_files.pop("files")
        written = []
        if arguments["path"]:
            folder = Path(arguments["path"])
            check_mode = self._task.check_mode
            for name, text in files.items():
                file = folder / name
                if not file.is_file() or file.read_text(encoding="utf-8") != text:
                    written.append(str(file))
                    if not check_mode:
                        folder.mkdir(parents=True, exist_ok=True)
                        write(str(file), text)
        return {**result, **site_files, "written": written, "changed": bool(written)}
