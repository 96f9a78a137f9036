# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules of NetBox share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the connection to NetBox."""

    DOCUMENTATION = r"""
options:
  netbox_url:
    description: The URL of NetBox.
    type: str
    required: true
  netbox_token:
    description: A token with the required permissions. One that begins with C(nbt_) is sent in the form of NetBox 4.5.
    type: str
    required: true
  validate_certs:
    description: Verify the certificate of NetBox. Turn it off for a trial only.
    type: bool
    default: true
"""
