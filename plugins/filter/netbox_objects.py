# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the objects of NetBox that a blueprint describes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netbox_objects
short_description: List the objects of NetBox that a blueprint describes
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns the arguments C(data) of the modules of the collection C(netbox.netbox) for all objects of a site.
options:
  _input:
    description: The blueprint's file.
    type: path
    required: true
  manufacturer:
    description: The manufacturer of all device types. A blueprint has none, and NetBox needs one.
    type: str
    required: true
"""

EXAMPLES = r"""
cables: "{{ (site_blueprint | sailloft.fleet.netbox_objects('various')).cables }}"
"""

RETURN = r"""
_value:
  description: >-
    Lists by kind of object, C(sites), C(manufacturers), C(device_types), C(device_roles), C(racks), C(prefixes),
    C(devices), C(interfaces) and C(cables).
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def netbox_objects(file: str, manufacturer: str) -> dict[str, Any]:
    """Return the objects. Raises AnsibleFilterError with file, line and rule for a blueprint that is wrong."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
    from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.netbox import netbox
    from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site

    try:
        return netbox(read_site(file), manufacturer)
    except SiteError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"netbox_objects": netbox_objects}
