# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the settings of a host's modules, from their arguments or from those saved for every boot."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError


class HostSettings(Settings):
    """Settings of a host by name. Raises RequestError."""

    refusal = RequestError
