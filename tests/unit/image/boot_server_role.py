# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role boot_server's files, as Ansible would write them."""

from __future__ import annotations

from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).parents[3] / "roles" / "boot_server" / "templates"


def render(template: str, **variables: object) -> str:
    """A template, as Ansible would write it on Debian."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(
        ansible_managed="a test's", ansible_facts={"os_family": "Debian"}, **variables
    )


def nginx_configuration(folder: Path, store: Path, port: int) -> str:
    """nginx's, with all that it writes in ``folder``, and as the user that runs the test."""
    text = render("nginx.conf.j2", boot_server_http_port=port, boot_server_store_dir=store)
    for ours, tests in (
        ("user www-data;", "user root;"),
        ("/run/nginx.pid", f"{folder}/pid"),
        ("/var/log/nginx", str(folder)),
    ):
        assert ours in text
        text = text.replace(ours, tests)
    return text
