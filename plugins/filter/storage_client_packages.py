# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the packages that a node's storage needs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: storage_client_packages
short_description: List the packages that a node's storage needs
version_added: 0.1.0
description:
  - Checks the settings of M(sailloft.fleet.storage_client), so that wrong ones are refused before a package
    is installed.
positional: os_family
options:
  _input:
    description: The settings C(local), C(nfs), C(s3) and C(s3_keys).
    type: dict
    required: true
  os_family:
    description: That of the node.
    type: str
    required: true
"""

EXAMPLES = r"""
packages: "{{ {'nfs': storage_client_nfs} | sailloft.fleet.storage_client_packages(ansible_facts.os_family) }}"
"""

RETURN = r"""
_value:
  description: The names of the packages.
  type: list
  elements: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError

# RHEL has rclone in EPEL.
PACKAGES = {
    "Debian": {"local": ["xfsprogs", "mdadm"], "nfs": ["nfs-common", "cachefilesd"], "s3": ["rclone", "fuse3"]},
    "RedHat": {"local": ["xfsprogs", "mdadm"], "nfs": ["nfs-utils", "cachefilesd"], "s3": ["rclone", "fuse3"]},
}


def storage_client_packages(settings: dict[str, Any], os_family: str) -> list[str]:
    """Return the packages."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
    from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request

    try:
        read_request(settings)
    except RequestError as error:
        raise AnsibleFilterError(str(error)) from error
    if os_family not in PACKAGES:
        raise AnsibleFilterError(
            f"storage_client: the packages of {os_family} are not known; install the tools yourself, and set "
            "packages_install: false"
        )
    return [name for part, names in PACKAGES[os_family].items() if settings.get(part) for name in names]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"storage_client_packages": storage_client_packages}
