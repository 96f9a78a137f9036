# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The differences between two images, as data and as the lines that a reviewer reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import file_capabilities
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Manifest

# The number of lines of one kind that are shown; the rest is only counted.
SHOWN = 40
# The properties of a file that may change, in the order in which they are reported.
PROPERTIES = {
    "type": ("type",),
    "content": ("sha256", "size_bytes"),
    "target": ("target",),
    "mode": ("mode",),
    "owner": ("owner", "group"),
    "capabilities": ("capabilities",),
}
DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB")

Listing = Mapping[str, Mapping[str, Any]]


def changes(
    old: Manifest | None,
    new: Manifest,
    old_listings: Mapping[str, Listing],
    new_listings: Mapping[str, Listing],
) -> dict[str, Any]:
    """Return the differences of ``new`` from ``old`` (None: there was no image), as plain data for ``text``.

    ``old_listings``, ``new_listings``: the listing of each layer by its name (path -> entry). Files are compared as a
    node sees them, all layers on top of each other; a whiteout or a file hides what is below it. The same inputs give
    the same result. Raises ImageError if a layer's listing is not given.

    ``fetch_bytes`` counts the bytes of kernel, first stage and layers that are in no blob of ``old``: the download of a
    machine that has the old image's blobs.
    """
    return {
        "image": {
            "name": new.name,
            "old": manifests.digest(manifests.dump(old)) if old else None,
            "new": manifests.digest(manifests.dump(new)),
        },
        "settings": _settings(old, new),
        "kernel_arguments": _arguments(old, new),
        "packages": _packages(old, new),
        "files": _files(_merged(old, old_listings), _merged(new, new_listings)),
        "bytes": _bytes(old, new),
    }


def text(changes: Mapping[str, Any], shown: int = SHOWN) -> list[str]:
    """Return the lines for a result of ``changes``; none if nothing differs.

    At most ``shown`` lines of packages and of files are returned.

    Lines begin with "+" for added, "-" for removed and "~" for changed entries.
    """
    image = changes["image"]
    if image["old"] == image["new"]:
        return []
    lines = [f"image {image['name']}: {image['old'] or 'none'} -> {image['new']}"]
    lines += [f"  ~ {row['what']}: {row['old'] or 'none'} -> {row['new']}" for row in changes["settings"]]
    arguments = changes["kernel_arguments"]
    lines += [f"  - kernel argument {argument}" for argument in arguments["removed"]]
    lines += [f"  + kernel argument {argument}" for argument in arguments["added"]]
    if arguments["reordered"]:
        lines.append("  ~ kernel arguments in another order")
    lines += _section("packages", changes["packages"], _package_line, shown)
    lines += _section("files", changes["files"], _file_line, shown)
    lines.append("bytes:")
    for row in changes["bytes"]["parts"]:
        sizes = [_size(row[side]) for side in ("old_bytes", "new_bytes")]
        if row["same"]:
            lines.append(f"    {row['name']}: {sizes[1]}, unchanged")
        elif row["new_bytes"] is None:
            lines.append(f"  - {row['name']}: {sizes[0]}")
        else:
            lines.append(f"  {'+' if row['old_bytes'] is None else '~'} {row['name']}: {sizes[0]} -> {sizes[1]}")
    total = changes["bytes"]
    lines.append(f"    total: {_size(total['old_bytes'])} -> {_size(total['new_bytes'])}")
    lines.append(f"    to fetch if the old image is there: {_size(total['fetch_bytes'])}")
    return lines


def _settings(old: Manifest | None, new: Manifest) -> list[dict[str, Any]]:
    rows = [
        ("distribution", lambda image: f"{image.distribution} {image.suite} {image.architecture}"),
        ("kernel", lambda image: image.kernel.version),
        ("writable_mib", lambda image: image.writable_mib),
        ("layers", lambda image: " ".join(layer.name for layer in image.layers)),
    ]
    changes = [{"what": setting, "old": value(old) if old else None, "new": value(new)} for setting, value in rows]
    return [row for row in changes if row["old"] != row["new"]]


def _arguments(old: Manifest | None, new: Manifest) -> dict[str, Any]:
    old_arguments, new_arguments = list(old.kernel_arguments if old else ()), list(new.kernel_arguments)
    removed, added = _without(old_arguments, new_arguments), _without(new_arguments, old_arguments)
    return {
        "added": added,
        "removed": removed,
        "reordered": _without(old_arguments, removed) != _without(new_arguments, added),
    }


def _without(values: Iterable[str], removed: Iterable[str]) -> list[str]:
    """Return ``values`` without ``removed``, counting repeated values."""
    remaining = list(removed)
    result = []
    for value in values:
        if value in remaining:
            remaining.remove(value)
        else:
            result.append(value)
    return result


def _packages(old: Manifest | None, new: Manifest) -> dict[str, list[dict[str, Any]]]:
    old_versions, new_versions = _versions(old), _versions(new)
    changes: dict[str, list[dict[str, Any]]] = {"added": [], "removed": [], "changed": []}
    for name, architecture in sorted({*old_versions, *new_versions}):
        olds, news = old_versions.get((name, architecture), {}), new_versions.get((name, architecture), {})
        going = sorted(version for version in olds if version not in news)
        coming = sorted(version for version in news if version not in olds)
        package = {"name": name, "architecture": architecture}
        # RPM may have several versions of a kernel installed. Only if one version replaces one other is it a change.
        if len(going) == len(coming) == 1:
            changes["changed"].append(
                {**package, "layer": news[coming[0]], "old_version": going[0], "new_version": coming[0]}
            )
            continue
        changes["removed"] += [{**package, "layer": olds[version], "version": version} for version in going]
        changes["added"] += [{**package, "layer": news[version], "version": version} for version in coming]
    return changes


def _versions(image: Manifest | None) -> dict[tuple[str, str], dict[str, str]]:
    """Return (name, architecture) -> version -> layer."""
    versions: dict[tuple[str, str], dict[str, str]] = {}
    for package in image.packages if image else ():
        versions.setdefault((package.name, package.architecture), {})[package.version] = package.layer
    return versions


def _merged(image: Manifest | None, listings: Mapping[str, Listing]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return path -> (layer, entry) as a node sees it."""
    seen: dict[str, tuple[str, Mapping[str, Any]]] = {}
    if image is None:
        return seen
    for layer in image.layers:
        if layer.name not in listings:
            raise ImageError(
                f"the listing of layer {layer.name} is missing", "build it again", subject=f"image {image.name}"
            )
        listing = listings[layer.name]
        hidden = {path for path, entry in listing.items() if entry["type"] != "directory" and path in seen}
        if hidden:
            seen = {path: value for path, value in seen.items() if not _below(path, hidden)}
        seen.update({path: (layer.name, entry) for path, entry in listing.items() if entry["type"] != "whiteout"})
    return seen


def _below(path: str, folders: set[str]) -> bool:
    """Return whether the path is one of the directories, or inside one of them."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def _files(
    old_files: Mapping[str, tuple[str, Mapping[str, Any]]], new_files: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    changes: dict[str, list[dict[str, Any]]] = {"added": [], "removed": [], "changed": []}
    for path in sorted({*old_files, *new_files}):
        if path not in new_files:
            layer, entry = old_files[path]
            changes["removed"].append(_file(path, layer, entry))
        elif path not in old_files:
            layer, entry = new_files[path]
            changes["added"].append(_file(path, layer, entry))
        else:
            (_layer, old), (layer, new) = old_files[path], new_files[path]
            properties = [
                name for name, keys in PROPERTIES.items() if any(old.get(key) != new.get(key) for key in keys)
            ]
            if properties:
                changes["changed"].append(
                    {**_file(path, layer, new), "what": properties, "old": dict(old), "new": dict(new)}
                )
    return changes


def _file(path: str, layer: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": path, "layer": layer, "type": entry["type"], "size_bytes": entry.get("size_bytes", 0)}


def _bytes(old: Manifest | None, new: Manifest) -> dict[str, Any]:
    old_parts, new_parts = _parts(old), _parts(new)
    old_blobs = old.boot_blobs() if old else {}
    rows = []
    for name in [*new_parts, *(name for name in old_parts if name not in new_parts)]:
        was, now = old_parts.get(name), new_parts.get(name)
        rows.append(
            {
                "name": name,
                "old_bytes": was[1] if was else None,
                "new_bytes": now[1] if now else None,
                "same": was == now,
            }
        )
    fetched = {sha256: size for sha256, size in new.boot_blobs().items() if sha256 not in old_blobs}
    return {
        "parts": rows,
        "old_bytes": sum(old_blobs.values()) if old else None,
        "new_bytes": sum(new.boot_blobs().values()),
        "fetch_bytes": sum(fetched.values()),
    }


def _parts(image: Manifest | None) -> dict[str, tuple[str, int]]:
    """Return the parts that a node fetches: name for the reviewer -> (sha256, bytes)."""
    if image is None:
        return {}
    parts = {
        "kernel": (image.kernel.sha256, image.kernel.size_bytes),
        "first stage": (image.first_stage.sha256, image.first_stage.size_bytes),
    }
    parts.update({f"layer {layer.name}": (layer.sha256, layer.size_bytes) for layer in image.layers})
    return parts


def _section(title: str, rows: Mapping[str, list[dict[str, Any]]], line: Any, shown: int) -> list[str]:
    """Return a title with counts, and at most ``shown`` lines: removed, changed, added."""
    if not any(rows.values()):
        return []
    lines = [f"{title}: {len(rows['added'])} added, {len(rows['removed'])} removed, {len(rows['changed'])} changed"]
    every = [
        f"  {sign} {line(row)}"
        for kind, sign in (("removed", "-"), ("changed", "~"), ("added", "+"))
        for row in rows[kind]
    ]
    lines += every[:shown]
    if len(every) > shown:
        lines.append(f"    and {len(every) - shown} more")
    return lines


def _package_line(row: Mapping[str, Any]) -> str:
    version = row["version"] if "version" in row else f"{row['old_version']} -> {row['new_version']}"
    return f"{row['name']} {version} {row['architecture']} (layer {row['layer']})"


def _file_line(row: Mapping[str, Any]) -> str:
    path = _plain(row["path"])
    if "what" not in row:
        size = f", {_size(row['size_bytes'])}" if row["type"] == "file" else f", {row['type']}"
        return f"{path} (layer {row['layer']}{size})"
    texts = [_change_text(name, row["old"], row["new"]) for name in row["what"]]
    return f"{path} (layer {row['layer']}): {', '.join(texts)}"


def _change_text(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if name == "content":
        return f"content, {_size(old.get('size_bytes'))} -> {_size(new.get('size_bytes'))}"
    if name == "capabilities":
        return "capabilities " + " -> ".join(file_capabilities.text(side.get(name)) for side in (old, new))
    values = [_plain(":".join(str(side.get(key)) for key in PROPERTIES[name])) for side in (old, new)]
    return f"{name} {values[0]} -> {values[1]}"


def _plain(text: str) -> str:
    """Return the text on one line without terminal control characters.

    A path or a link's target may have any character but NUL.
    """
    return text if text.isprintable() else ascii(text)


def _size(size: int | None) -> str:
    """Return a size as readable text in decimal units; exact below 1 kB."""
    if size is None:
        return "none"
    value, unit = float(size), 0
    while value >= 1000 and unit < len(DECIMAL_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {DECIMAL_UNITS[unit]}"
