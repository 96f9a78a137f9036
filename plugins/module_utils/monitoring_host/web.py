# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TLS and passwords of exporters, Prometheus and Alertmanager: the file for their option --web.config.file."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import matching, path
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.daemons import HEAD, HostFile

GROUP = "prometheus"
TLS = ("cert_file", "key_file", "client_ca_file")
BCRYPT = matching(re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}"), "write the bcrypt hash of the password")


def options() -> dict[str, Any]:
    """Return the options of TLS and passwords as an argument_spec."""
    return {"tls": {"type": "dict", "default": {}}, "users": {"type": "dict", "default": {}, "no_log": True}}


def web_file(target: str, module: str, request: Mapping[str, Any]) -> HostFile | None:
    """Return the file, readable by the programs only; None without settings. Raises RequestError."""
    settings = Settings(RequestError, f"{module}: tls", request["tls"])
    settings.only(*TLS)
    users = Settings(RequestError, f"{module}: users", request["users"])
    if not settings.data:
        if users.data:
            raise users.refuse("passwords would be sent in clear", "set tls too")
        return None
    settings.need("cert_file", "key_file")
    tls = {name: settings.value(name, path) for name in TLS if name in settings.data}
    if "client_ca_file" in tls:
        tls["client_auth_type"] = "RequireAndVerifyClientCert"
    hashes = {name: users.value(name, BCRYPT) for name in users.data}
    data = {"tls_server_config": tls, **({"basic_auth_users": hashes} if hashes else {})}
    # JSON is YAML.
    return HostFile(target, f"{HEAD.format(module=module)}{json.dumps(data, indent=1)}\n".encode(), GROUP, True)


def check_address(module: str, address: str) -> None:
    """Refuse what is no address of this host. Raises HostError."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        raise RequestError(f"{module}: {address!r} is no IP address", "set monitoring_address") from None
    try:
        with socket.socket(family) as sock:
            sock.bind((address, 0))
    except OSError as error:
        raise HostError(
            f"{module}: this host does not have the address {address}: {error.strerror}",
            "correct monitoring_address in the inventory",
        ) from error


def url(address: str, port: int, is_secure: bool) -> str:
    """Return the address of a program."""
    host = f"[{address}]" if ":" in address else address
    return f"http{'s' if is_secure else ''}://{host}:{port}/"
