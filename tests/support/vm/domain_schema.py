# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Libvirt's own schema of a domain (RELAX NG, of the package libvirt-common)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from lxml import etree

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
needs_schema = pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schemas are not installed here")


@cache
def _schema() -> etree.RelaxNG:
    return etree.RelaxNG(file=str(SCHEMA))


def assert_valid(xml: str) -> None:
    """Raise lxml's DocumentInvalid, with line and reason, if libvirt does not accept ``xml`` as a domain."""
    _schema().assertValid(etree.fromstring(xml.encode()))
