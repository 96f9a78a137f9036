#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: netbox_links_info
short_description: Read all cables between interfaces from NetBox
version_added: 0.1.0
description:
  - Reads the interfaces and cables of a site from NetBox's REST API, page by page, and returns which interfaces are
    connected, their speeds and the lengths of their cables.
  - M(sailloft.fleet.cabling_check) compares what devices see with it, and the filter
    P(sailloft.fleet.netbox_roce#filter) returns the ports of the RoCE policy.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  netbox_url:
    description: The URL of NetBox.
    type: str
    required: true
  netbox_token:
    description: A token that may read. One that begins with C(nbt_) is sent as NetBox 4.5 takes it.
    type: str
    required: true
  netbox_site:
    description: The slug of the site. Without it, all sites are read.
    type: str
  validate_certs:
    description: Verify the certificate of NetBox.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Read the cables
  sailloft.fleet.netbox_links_info:
    netbox_url: https://netbox.example.com
    netbox_token: "{{ lookup('ansible.builtin.env', 'NETBOX_TOKEN') }}"
    netbox_site: vela
  delegate_to: localhost
"""

RETURN = r"""
links:
  description: >-
    The connections of two interfaces, each with C(ends) (device and interface of both, the end A first),
    C(speed_gbit_s) (0 if it is not known), C(infiniband) and C(length_m) (none if it is not known, or the way leads
    through patch panels).
  returned: success
  type: list
  elements: dict
  sample:
    - {ends: [[gpu01, ens1np0], [leaf1, Ethernet0]], speed_gbit_s: 400, infiniband: false, length_m: 3.0}
interfaces:
  description: By device and name, the interface's C(label) (its name without one) and C(management).
  returned: success
  type: dict
left_out:
  description: Connections that are not in RV(links), with the cause.
  returned: success
  type: list
  elements: str
  sample: ["leaf1 Ethernet0: its cable has 4 far ends"]
"""

import json
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import read_links
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError

# NetBox's MAX_PAGE_SIZE, unless its administrator has changed it: it answers with less where that is less.
PAGE = 1000


def read_all(arguments: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return all objects of a kind. Raises SiteError."""
    token = arguments["netbox_token"]
    headers = {
        "Accept": "application/json",
        "Authorization": f"{'Bearer' if token.startswith('nbt_') else 'Token'} {token}",
    }
    objects: list[dict[str, Any]] = []
    site = {"site": arguments["netbox_site"]} if arguments["netbox_site"] else {}
    while True:
        query = urlencode({**site, "limit": PAGE, "offset": len(objects), "ordering": "id"})
        url = f"{arguments['netbox_url'].rstrip('/')}/api/dcim/{kind}/?{query}"
        try:
            answer = json.load(open_url(url, headers=headers, validate_certs=arguments["validate_certs"], timeout=120))
            objects += answer["results"]
            if not answer["results"] or len(objects) >= answer["count"]:
                return objects
        except (OSError, URLError) as error:
            raise SiteError("NetBox", f"{url}: {error}", "check the URL, the token and the certificate") from None
        except (KeyError, TypeError, ValueError):
            raise SiteError("NetBox", f"{url}: that is no answer of NetBox", "check the URL") from None


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "netbox_url": {"type": "str", "required": True},
            "netbox_token": {"type": "str", "required": True, "no_log": True},
            "netbox_site": {"type": "str"},
            "validate_certs": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        found = read_links(read_all(module.params, "interfaces"), read_all(module.params, "cables"))
    except SiteError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
