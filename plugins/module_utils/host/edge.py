# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a module and this library meet: its result, or its failure out of the one exception."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.outcome import Outcome


def finish(module: Any, ensure: Callable[[], Outcome]) -> None:
    """End an AnsibleModule with what ``ensure`` came to."""
    try:
        outcome = ensure()
    except HostError as error:
        module.fail_json(msg=str(error))
    else:
        module.exit_json(**outcome.to_result())
