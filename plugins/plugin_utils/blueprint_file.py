# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the YAML of a blueprint with the lines of its settings. PyYAML comes with Ansible on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.settings import Source

# Settings of the file that belong to the inventory plugin, not to the blueprint: those of every plugin with constructed
# groups and a cache.
ANSIBLES = (
    "plugin",
    "strict",
    "compose",
    "groups",
    "keyed_groups",
    "use_extra_vars",
    "leading_separator",
    "cache",
    "cache_plugin",
    "cache_timeout",
    "cache_connection",
    "cache_prefix",
)

# PyYAML without libyaml has only the slower SafeLoader.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """A loader that reads values with Ansible's tags (!vault, !unsafe) as null; only ``vars`` have such values."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def load(text: str, file: str) -> tuple[Any, Source]:
    """Return the data and its source. Raises SiteError for text that is not YAML, or has a setting twice."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[tuple[str, ...], int] = {}
        if node is not None:
            _collect(node, (), lines, file)
            return loader.construct_document(node), Source(file, lines)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SiteError(
            f"not valid YAML: {error.problem}", "correct the line", subject="blueprint", where=f"{file}:{line}"
        ) from None
    except yaml.YAMLError as error:
        raise SiteError(f"not valid YAML: {error}", "correct the file", subject="blueprint", where=file) from None
    finally:
        loader.dispose()
    return None, Source(file)


def _collect(node: Any, path: tuple[str, ...], lines: dict[tuple[str, ...], int], file: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = str(getattr(key, "value", ""))
            key_path = (*path, name)
            line = key.start_mark.line + 1
            # A merge key (<<) may occur more than once in a mapping.
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                raise SiteError(
                    "the setting is listed twice",
                    "remove one of them",
                    subject=".".join(key_path),
                    where=f"{file}:{line}",
                )
            seen.add(name)
            lines[key_path] = line
            _collect(value, key_path, lines, file)


def read_site(path: str) -> Site:
    """Return the site of a blueprint's file. Raises SiteError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SiteError(f"cannot be read: {error}", "name a blueprint file", subject="blueprint", where=path) from None
    data, source = load(text, path)
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name not in ANSIBLES}
    return expand(read(data, source))
