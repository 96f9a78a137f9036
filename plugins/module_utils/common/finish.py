# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""End a module with its result, or with a failure where the library raises an error."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


def finish(module: Any, work: Callable[[], dict[str, Any]], subject: str = "") -> None:
    """End an AnsibleModule with the result of ``work``, or fail with the SailloftError that ``work`` raises.

    A result with ``failed`` fails the module with the result's ``msg``. Its ``warnings`` (texts) become those of
    Ansible, which deprecates them in a result. ``subject`` is put before an error's message.
    """
    try:
        result = work()
    except SailloftError as error:
        module.fail_json(msg=f"{subject}: {error}" if subject else str(error), **error.result())
    else:
        for text in result.pop("warnings", []):
            module.warn(text)
        if result.get("failed"):
            module.fail_json(**result)
        module.exit_json(**{"changed": False, **result})
