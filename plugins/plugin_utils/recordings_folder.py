# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The recorded topologies of hosts in a directory on the controller."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording


class RecordingsFolder(dict[str, Host]):
    """The recorded hosts by name, read from a directory when they are asked for; equal files once."""

    def __init__(self, folder: str | None) -> None:
        super().__init__()
        self.folder = folder
        self.by_text: dict[bytes, Host] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Return the host that is recorded as NAME.json; without such a file, the default. Raises TopologyError."""
        path = os.path.join(self.folder or "", f"{name}.json")
        if not self.folder or not os.path.exists(path):
            return default
        try:
            with open(path, "rb") as stream:
                text = stream.read()
        except OSError:
            # read_recording names the cause.
            text = b""
        if text not in self.by_text:
            self.by_text[text] = read_recording(path)
        return self.by_text[text]
