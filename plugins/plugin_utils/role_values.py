# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the inventory's values of a role's variables, in one sentence.

Ansible's own check before a role's first task shows the role's whole specification in its result: hundreds of lines for
one wrong value. This one runs earlier, for all hosts. It does not read templates and secrets, which Ansible checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt

# How to write a value of a type.
FORMS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "text",
}
LONGEST = 60  # characters of a value or of Ansible's text in the sentence


def check_values(role: str, options: Mapping[str, dict[str, Any]], hosts: Iterable[str], hostvars: Any) -> None:
    """Refuse variables of a role whose value has another form than ``options`` (name -> specification).

    The values are those that the inventory and the command line write out. A variable with ``no_log`` is not read, and
    the value of one with a secret in a part of it is not shown. Raises AnsibleActionFail.
    """
    hosts_by_value: dict[
        tuple[str, int], tuple[Any, list[str]]
    ] = {}  # by name and object: hosts of a group share the object
    for host in hosts:
        variables = hostvars.raw_get(host)
        for name in options.keys() & variables.keys():
            value = variables[name]
            hosts_by_value.setdefault((name, id(value)), (value, []))[1].append(host)
    faults: dict[tuple[str, str], list[str]] = {}
    for (name, _object), (value, owners) in hosts_by_value.items():
        text = fault(name, options[name], value)
        if text:
            faults.setdefault((name, text), []).extend(owners)
    if faults:
        name, text = min(faults)
        other_names = {wrong_name for wrong_name, _text in faults} - {name}
        also = f". Wrong, too: {excerpt(sorted(other_names))}" if other_names else ""
        owners_text = excerpt(sorted(faults[name, text]))
        raise AnsibleActionFail(
            f"{owners_text}: {name} {text}; ansible-doc -t role sailloft.fleet.{role} describes it{also}"
        )


def fault(name: str, option: dict[str, Any], value: Any) -> str | None:
    """Return in words how a value differs from its specification, or None: it does not, or is no literal."""
    if option.get("no_log") or value is None or not is_literal(value):
        return None
    errors = _errors(name, option, value)
    if not errors:
        return None
    kind = option.get("type", "str")
    secret = _has_secret(option)
    shown = "has a value that" if secret else f"is {_cut(repr(value))}, which"
    if _errors(name, {"type": kind}, value):
        return f"{shown} is not {FORMS.get(kind, kind)}"
    if kind == "list" and option.get("elements") == "dict" and not all(isinstance(item, Mapping) for item in value):
        return f"{shown} is not a list of dictionaries, like [{{name: value}}]"
    if option.get("choices") and kind != "list":
        return f"{shown} is not one of: {', '.join(map(str, option['choices']))}"
    if secret:
        return f"{shown} is not as specified"
    return f"is wrong: {_cut(errors[0], 3 * LONGEST)}"


def _errors(name: str, option: dict[str, Any], value: Any) -> list[str]:
    result = ArgumentSpecValidator({name: option}).validate({name: value}, validate_role_argument_spec=True)
    errors: list[str] = result.error_messages
    return errors


def is_literal(value: Any) -> bool:
    """Return whether a value is written out: no template, and nothing that Ansible decrypts."""
    if isinstance(value, str):
        return "{{" not in value and "{%" not in value
    if isinstance(value, Mapping):
        return all(map(is_literal, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_literal, value))
    return value is None or isinstance(value, (bool, int, float))


def _has_secret(option: dict[str, Any]) -> bool:
    return any(part.get("no_log") or _has_secret(part) for part in (option.get("options") or {}).values())


def _cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
