# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of the role boot_server as Ansible would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_plan

TEMPLATES = Path(__file__).parents[3] / "roles" / "boot_server" / "templates"


def render(template: str, **variables: object) -> str:
    """Render a template as Ansible would on Debian."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(
        ansible_managed="a test's", ansible_facts={"os_family": "Debian"}, **variables
    )


def dnsmasq_configuration(nodes: Sequence[Mapping[str, Any]], **changed: object) -> str:
    """Render dnsmasq's configuration with ``changed`` variables, and the role's defaults for all others."""
    values = {
        "boot_server_interface": "lo",
        "boot_server_tftp_dir": "/srv/tftp",
        "boot_server_address": "10.9.0.1",
        "boot_server_netmask": "255.255.255.0",
        "boot_server_nodes": nodes,
        "boot_server_dhcp": "full",
        "boot_server_gateway": "",
        "boot_server_name_servers": [],
        "boot_server_subnets": [],
        "boot_server_servers": ["http://10.9.0.1"],
        "boot_server_discovery": {},
        **changed,
    }
    plan = boot_plan.plan(
        values["boot_server_address"],
        values["boot_server_netmask"],
        values["boot_server_gateway"],
        values["boot_server_subnets"],
        nodes,
        values["boot_server_discovery"],
    )
    url = f"http://{values['boot_server_address']}"
    return render("dnsmasq.conf.j2", __boot_server_plan=plan, __boot_server_url=url, **values)


def nginx_configuration(
    folder: Path,
    store: Path,
    port: int,
    tftp: Path = Path("/srv/tftp"),
    nodes: Sequence[Mapping[str, Any]] = (),
    discovery: Mapping[str, Any] | None = None,
    upstreams: Sequence[str] = (),
    address: str = "127.0.0.1",
    crash_dumps_gib: int = 0,
) -> str:
    """Render nginx's configuration for the current user, with all output files in ``folder``.

    With ``upstreams``, the ADDRESS:PORT of boot servers, it is that of a cache.
    """
    text = render(
        "nginx.conf.j2",
        __boot_server_plan=boot_plan.plan("10.9.0.1", "255.255.255.0", "", [], nodes),
        __boot_server_upstreams=upstreams,
        boot_server_cache_dir=folder / "cache",
        boot_server_cache_gib=1,
        boot_server_address=address,
        boot_server_http_port=port,
        boot_server_store_dir=store,
        boot_server_tftp_dir=tftp,
        boot_server_discovery=discovery or {},
        boot_server_nodes=nodes,
        boot_server_crash_dumps_gib=crash_dumps_gib,
    )
    for ours, tests in (
        ("user www-data;", "user root;"),
        ("/run/nginx.pid", f"{folder}/pid"),
        ("/var/log/nginx", str(folder)),
        ("/run/sailloft-health-keeper", str(folder)),
    ):
        assert ours in text or upstreams
        text = text.replace(ours, tests)
    return text
