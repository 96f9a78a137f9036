# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The argument specification that the vsphere modules share; documented in the doc fragment vsphere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LOGIN: dict[str, dict[str, Any]] = {
    "hostname": {"type": "str"},
    "username": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "port": {"type": "int", "default": 443},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
}
VMS: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "default": ""},
    "gpu_module_ids": {"type": "dict", "default": {}},
    "accelerators": {"type": "dict", "default": {}},
}
HOSTS: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "default": ""},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "accelerators": {"type": "dict", "default": {}},
}
# The names that other collections for vSphere read as well.
ENVIRONMENT = {"hostname": "VMWARE_HOST", "username": "VMWARE_USER", "password": "VMWARE_PASSWORD"}


def with_environment(options: dict[str, dict[str, Any]], env_fallback: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Return the options; those of ``ENVIRONMENT`` that the task does not set are read from the environment."""
    return {
        name: {**option, "fallback": (env_fallback, [ENVIRONMENT[name]])} if name in ENVIRONMENT else option
        for name, option in options.items()
    }
