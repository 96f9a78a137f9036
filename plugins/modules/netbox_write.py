#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: netbox_write
short_description: Write the objects of a blueprint to NetBox
version_added: 0.1.0
description:
  - Creates and changes racks, device types and roles, devices, interfaces, addresses, cables and prefixes in NetBox 4.2
    or later, as a blueprint has them. It removes nothing. It runs on the controller.
  - All objects of a kind are read together, and written with many objects per request.
  - Fields that a blueprint does not have stay as they are in NetBox.
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.netbox]
options:
  blueprint:
    description: The file of the blueprint.
    type: path
    required: true
  manufacturer:
    description: The manufacturer of all device types. A blueprint has none, and NetBox needs one.
    type: str
    default: various
"""

EXAMPLES = r"""
- name: Write the site to NetBox
  sailloft.fleet.netbox_write:
    blueprint: "{{ site_blueprint }}"
    netbox_url: https://netbox.example.com
    netbox_token: "{{ lookup('ansible.builtin.env', 'NETBOX_TOKEN') }}"
"""

RETURN = r"""
objects:
  description: By kind of object, how many were C(created), were C(updated), and stayed the C(same).
  returned: success
  type: dict
  sample: {devices: {created: 8, updated: 0, same: 328}}
report:
  description: The same in lines.
  returned: success
  type: list
  elements: str
  sample: ["devices: 8 created, 0 updated, 328 same"]
"""
