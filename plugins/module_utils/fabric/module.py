# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module whose arguments are a whole fabric's configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule


def fabric_arguments(**arguments: Any) -> dict[str, Any]:
    """Return the argument_spec of a module that compares readings of a fabric with its policy, with ``arguments``."""
    return {
        "policy": {"type": "dict", "default": {}},
        "switches": {"type": "dict", "required": True},
        "asics": {"type": "dict"},
        "running": {"type": "dict", "required": True},
        "hosts": {"type": "dict"},
        "nics": {"type": "dict", "default": {}},
        "guests": {"type": "dict", "default": {}},
        **arguments,
    }


class FabricModule(AnsibleModule):
    """An AnsibleModule that returns and logs none of its arguments except those in ``returned``.

    Switches' running configurations contain password hashes. These must not be in the controller's journal, where
    Ansible logs a module's arguments, nor in its output with -vvv. ``no_log`` is not used because it would search every
    string of the result for every configuration. For a large fabric, that takes longer than the module's work.
    """

    def __init__(self, argument_spec: dict[str, Any], returned: Sequence[str], **kwargs: Any) -> None:
        self._returned = returned
        super().__init__(argument_spec, supports_check_mode=True, **kwargs)

    def exit_json(self, **kwargs: Any) -> NoReturn:
        super().exit_json(**kwargs, invocation=self._invocation())
        raise AssertionError

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn:
        # This also runs when arguments are refused, before there are parameters.
        super().fail_json(msg, **kwargs, invocation=self._invocation())
        raise AssertionError

    def _invocation(self) -> dict[str, Any]:
        params = getattr(self, "params", None) or {}
        return {"module_args": {name: params.get(name) for name in self._returned}}

    def _log_invocation(self) -> None:
        self.log(f"Invoked with {self._invocation()['module_args']}")
