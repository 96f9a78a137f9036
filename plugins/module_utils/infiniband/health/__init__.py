# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The health of a fabric's links, from two readings of its counters: faults with their cause, and isolation."""

from __future__ import annotations
