# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check arguments of other collections' modules with the modules' own argument specifications."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

TOGETHER = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")


class _MadeError(Exception):
    """Raised when the module makes its AnsibleModule."""


@functools.cache
def specification(module: str, maker: str) -> dict[str, Any]:
    """Return the argument specification of a module (netbox.netbox.netbox_cable) that creates a ``maker``."""
    namespace, collection, name = module.split(".")
    python = importlib.import_module(f"ansible_collections.{namespace}.{collection}.plugins.modules.{name}")
    return of_python(python, maker)["argument_spec"]


def of_python(python: ModuleType, maker: str) -> dict[str, Any]:
    """Return the arguments of ArgumentSpecValidator for a module: its options and the relations between them."""
    found: dict[str, Any] = {}

    def made(argument_spec: dict[str, Any], **others: Any) -> None:
        found.update(argument_spec=argument_spec, **{name: others[name] for name in TOGETHER if name in others})
        raise _MadeError

    before = getattr(python, maker)
    setattr(python, maker, made)
    try:
        python.main()
    except _MadeError:
        return found
    finally:
        setattr(python, maker, before)
    raise AssertionError(f"{python.__name__} makes no {maker}")


def faults(module: str, maker: str, arguments: dict[str, Any]) -> list[str]:
    """Return what is wrong with the arguments of a module."""
    return ArgumentSpecValidator(specification(module, maker)).validate(arguments).error_messages
