# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disks with the first settings of a guest with cloud-init: its name, root's SSH keys, DHCP on its first interface.

Source: cloud-init's documentation, "NoCloud" (a file system with the label CIDATA and the files meta-data, user-data
and network-config) and "Networking config Version 2". Made if they are missing, and not changed later: cloud-init
applies them at the first boot only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.disk_use import partial
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Disk, DomainSpec

# Programs that write ISO 9660, with the same options: xorriso's (Debian, Ubuntu, RHEL), cdrkit's, cdrtools'.
PROGRAMS = ("xorrisofs", "genisoimage", "mkisofs")


def files(spec: DomainSpec, disk: Disk) -> dict[str, str]:
    """Return the files of a seed by name. JSON is YAML, which cloud-init reads."""
    user = {
        # Without it, cloud-init lets root log in only to be told to log in as another user.
        "disable_root": False,
        "users": ["default", {"name": "root", "ssh_authorized_keys": disk.ssh_keys}],
    }
    interfaces = {}
    if spec.interfaces:
        # By its MAC: cloud-init could otherwise choose a NIC that is passed through.
        interfaces = {"management": {"match": {"macaddress": spec.mac(0)}, "dhcp4": True}}
    return {
        "meta-data": json.dumps({"instance-id": spec.uuid, "local-hostname": spec.name}) + "\n",
        "user-data": "#cloud-config\n" + json.dumps(user) + "\n",
        "network-config": json.dumps({"version": 2, "ethernets": interfaces}) + "\n",
    }


def make(spec: DomainSpec, disk: Disk) -> None:
    """Make a seed. It appears complete or not at all. Raises DomainError."""
    program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if program is None:
        raise DomainError(
            f"disk {disk.path} cannot be made: this host has none of the programs {', '.join(PROGRAMS)}",
            "install xorriso",
            domain=spec.name,
        )
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files(spec, disk).items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(text)
        command = [program, "-quiet", "-output", partial(disk.path), "-volid", "CIDATA", "-joliet", "-rock", directory]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise DomainError(f"disk {disk.path} cannot be made: {process.stderr.strip()}", domain=spec.name)
    os.replace(partial(disk.path), disk.path)
