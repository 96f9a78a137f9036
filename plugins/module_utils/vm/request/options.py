# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The argument specification of a virtual machine, shared by the modules; documented in the doc fragment gpu_domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    NO_DEFAULT,
    SETTING,
    DomainSpec,
    inner_kind,
)


def module_of(make: Any, validator: Callable[..., Any], **arguments: Any) -> Any:
    """Return the AnsibleModule that ``make`` makes from ``given``, even if a nested option is no dictionary.

    For such an option (``gpus: 8``), Ansible raises a TypeError (ansible.module_utils.common.parameters,
    _validate_sub_spec). Then the module gets no nested options, and ``parse_specs`` checks and refuses them. Ansible's
    own error of another wrong value names no virtual machine, so ``validator`` (ArgumentSpecValidator) looks for it.
    """
    options = arguments["argument_spec"]["domains"]["options"]

    def fail_json(self: Any, msg: str, **result: Any) -> None:
        make.fail_json(self, msg=_invalid(self.params.get("domains"), validator(options)) or msg, **result)

    try:
        return type("Module", (make,), {"fail_json": fail_json})(**arguments)
    except TypeError:
        domains = {key: value for key, value in arguments["argument_spec"]["domains"].items() if key != "options"}
        return make(**{**arguments, "argument_spec": {**arguments["argument_spec"], "domains": domains}})


def _invalid(domains: Any, validator: Any) -> str | None:
    """Return Ansible's first error on one of ``domains`` with the name of the virtual machine, or None."""
    for domain in domains if isinstance(domains, list) else []:
        errors = validator.validate(domain).error_messages if isinstance(domain, dict) else []
        if errors:
            return str(DomainError(errors[0], "correct it", domain=str(domain.get("name") or "without a name")))
    return None


def gpu_domain_options(uri: str) -> dict[str, Any]:
    """Return the options of the module gpu_domain; ``uri`` is the default URI of libvirt."""
    return {
        **requests_options(),
        "state": {"type": "str", "choices": ["present", "running", "stopped", "absent"], "default": "running"},
        "topology": {"type": "dict"},
        "gpu_module_ids": {"type": "dict", "default": {}},
        "gpu_partitions": {"type": "dict", "default": {}},
        "accelerators": {"type": "dict", "default": {}},
        "uri": {"type": "str", "default": uri},
        "allow_restart": {"type": "bool", "default": False},
        "keep_host_off_pinned_cpus": {"type": "bool", "default": True},
        "remove_disks": {"type": "bool", "default": False},
        "shutdown_timeout_s": {"type": "int", "default": 120},
    }


def requests_options() -> dict[str, Any]:
    """Return the options domains and whole_host of the modules."""
    domains = {"type": "list", "elements": "dict", "options": domain_options()}
    return {"domains": domains, "whole_host": {"type": "dict"}}


def domain_options() -> dict[str, Any]:
    """Return the options of one element of ``domains``: the fields of DomainSpec."""
    return _options(DomainSpec)


def _options(kind: type) -> dict[str, Any]:
    # Ansible takes a name with "key" for a secret; these are public keys.
    public = {"ssh_keys": {"no_log": False}}
    return {item.name: {**_option(item), **public.get(item.name, {})} for item in fields(kind)}


def _option(item: Field[Any]) -> dict[str, Any]:
    # Annotations are text (from __future__ import annotations).
    annotation = str(item.type)
    if SETTING not in item.metadata:
        several = {"elements": "dict", "default": []} if annotation.startswith("list") else {}
        return {"type": "list" if several else "dict", **several, "options": _options(inner_kind(annotation))}
    setting = item.metadata[SETTING]
    option: dict[str, Any] = {"type": setting.type}
    if setting.elements:
        option["elements"] = setting.elements
    if setting.choices:
        option["choices"] = list(setting.choices)
    if item.default is MISSING and item.default_factory is MISSING:
        option["required"] = True
    elif item.default_factory is not MISSING:
        option["default"] = item.default_factory()
    elif item.default is not None and not item.metadata[NO_DEFAULT]:
        option["default"] = item.default
    return option
