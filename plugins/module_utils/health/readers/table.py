# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one table of readers: what each round runs, and for how long at most."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader

READERS: tuple[Reader, ...] = ()
