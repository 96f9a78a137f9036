# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the sources of an inventory that Ansible has not read, and the cause of each.

Ansible only warns about them, and runs the playbook on the hosts of the other sources, or on none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from ansible import constants
from ansible.inventory.data import InventoryData
from ansible.inventory.manager import IGNORED
from ansible.plugins.loader import inventory_loader
from ansible.utils.path import unfrackpath

# The plugin auto says this of every YAML file that names no plugin.
NO_PLUGIN = "no root 'plugin' key"


def unread(sources: Iterable[str], read: Iterable[str | None]) -> list[str]:
    """Return the files and host lists of ``sources`` (those of -i) that are not in ``read``.

    ``read`` is ``processed_sources`` of Ansible's inventory: a file that a plugin has parsed, None for a directory.
    """
    read_paths = set(read)
    # The default inventory may be missing: without -i, a playbook may run on localhost alone.
    optional = set() if os.path.exists("/etc/ansible/hosts") else {"/etc/ansible/hosts"}
    return [part for source in sources for part in _parts(source) if part not in read_paths | optional]


def _parts(source: str) -> Iterator[str]:
    """Yield the files that Ansible reads of a source, in its order."""
    path = source if "," in source else str(unfrackpath(source, follow=False))
    if "," in source or not os.path.isdir(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        if not IGNORED.search(os.fsencode(name)):
            yield from _parts(os.path.join(path, name))


def cause(source: str, loader: Any) -> str | None:
    """Return the reason why a file or host list is no inventory, in one line, or None.

    This is the error of the first plugin that reads its form.
    """
    if "," not in source and not os.path.exists(source):
        return f"{source} does not exist"
    errors = []
    for name in constants.INVENTORY_ENABLED:
        plugin = inventory_loader.get(name)
        try:
            if not plugin or not plugin.verify_file(source):
                continue
            plugin.parse(InventoryData(), loader, source, cache=False)
        except Exception as error:  # a plugin may raise anything
            errors.append(" ".join(str(error).split()))
            continue
        return None
    told = [error for error in errors if NO_PLUGIN not in error]
    text = (told or [*errors, "no inventory plugin reads this form of file"])[0].rstrip(".")
    return text if source in text else f"{source}: {text}"
