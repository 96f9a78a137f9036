# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the user's settings of images and layers. They are only checked here; later code relies on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_name
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import DISTRIBUTIONS, family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import contents
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.kernel_arguments import (
    MOST_ARGUMENT_BYTES,
    read_kernel_arguments,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.model import Archive, Image, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.record import Record

# A release, such as bookworm or 9: it becomes part of a URL.
RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
LEAST_WRITABLE_MIB = 16
# The archives of Debian and Ubuntu themselves, on any mirror; and their suites that are another name of a release.
DISTRIBUTIONS_ARCHIVE = re.compile(r"/(debian|debian-security|ubuntu|ubuntu-ports)$")
RELEASE_ALIASES = {"stable", "oldstable", "testing", "unstable", "sid", "devel"}
# Linux' own default is 0: a node that panics halts. In 30 s, its console shows the cause. A node's
# own argument comes later and has precedence.
PANIC = "panic=30"


def read_images(images: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Image]:
    """Return all images by name, from the variables ``node_image_images`` and ``node_image_layers``, in their order.

    None stands for "not given", as Ansible passes it. Every layer is checked, used or not. Raises ImageError for the
    first problem.
    """
    if not isinstance(layers, Mapping) or not isinstance(images, Mapping):
        what = "node_image_layers" if not isinstance(layers, Mapping) else "node_image_images"
        raise ImageError(what, "not a dictionary", "write each by its name: base: {...}")
    given = {checked_name(name, "layer"): Record(f"layer {name}", data) for name, data in layers.items()}
    read: dict[str, Layer] = {}
    for name in given:
        for below in reversed(_ancestry(name, given)):
            if below not in read:
                parent = given[below].data.get("parent")
                read[below] = _layer(below, given[below], read.get(parent) if parent else None)
    return {name: _image(name, data, read) for name, data in images.items()}


def _ancestry(name: str, given: Mapping[str, Record]) -> list[str]:
    """Return the layer and those below it, the lowest last."""
    chain = [name]
    while True:
        parent = given[chain[-1]].data.get("parent")
        if parent is None:
            return chain
        if not isinstance(parent, str) or parent not in given:
            raise ImageError(
                f"layer {chain[-1]}",
                f"its parent {parent!r} is not defined",
                _one_of(given),
            )
        if parent in chain:
            circle = " -> ".join([*chain[chain.index(parent) :], parent])
            raise ImageError(
                f"layer {chain[-1]}", f"is on top of itself: {circle}", "remove the parent from the lowest of them"
            )
        chain.append(parent)


def _image(name: Any, data: Any, layers: Mapping[str, Layer]) -> Image:
    checked_name(name, "image")
    record = Record(f"image {name}", data)
    record.only("layer", "writable_mib", "kernel_arguments")
    top = record.data.get("layer")
    if not isinstance(top, str) or top not in layers:
        raise record.refuse(
            f"its layer {top!r} is not defined",
            _one_of(layers),
        )
    chain: list[Layer] = []
    while top is not None:
        chain.insert(0, layers[top])
        top = layers[top].parent
    writable = record.data.get("writable_mib", 1024)
    if isinstance(writable, bool) or not isinstance(writable, int) or writable < LEAST_WRITABLE_MIB:
        raise record.refuse(
            f"writable_mib {writable!r} is not a whole number of at least {LEAST_WRITABLE_MIB}",
            "give the MiB of memory that the writable layer may take",
        )
    arguments = (*(argument for layer in chain for argument in layer.kernel_arguments), *read_kernel_arguments(record))
    if not any(argument.startswith("panic=") for argument in arguments):
        arguments = (PANIC, *arguments)
    size_bytes = len(" ".join(arguments))
    if size_bytes > MOST_ARGUMENT_BYTES:
        raise record.refuse(
            f"its kernel arguments take {size_bytes} bytes", f"remove some, the maximum is {MOST_ARGUMENT_BYTES} bytes"
        )
    return Image(name, tuple(chain), arguments, writable)


def _one_of(layers: Mapping[str, Any]) -> str:
    return f"define it in node_image_layers{', or use one of ' if layers else ''}{', '.join(sorted(layers))}"


def _check_suites(record: Record, archives: tuple[Archive, ...], suite: str) -> None:
    """Raise ImageError for another release of the distribution itself: its packages would replace the layer's."""
    for archive in archives:
        for other in archive.suites if DISTRIBUTIONS_ARCHIVE.search(archive.url) else ():
            names = {re.split("[-/]", other)[0], re.split("[-/]", suite)[0]}
            if len(names) > 1 and not names & RELEASE_ALIASES:
                raise record.refuse(
                    f"archive {archive.url} has the suite {other}, but the layer is of {suite}",
                    "use one release for all archives of the distribution",
                )


def _layer(name: str, record: Record, parent: Layer | None) -> Layer:
    lowest = ("distribution", "suite", "architecture")
    parts = ("archives", "packages", "files", "users", "services", "roles", "kernel_arguments", "published_keys")
    record.only("parent", *lowest, *parts)
    if parent:
        for setting in lowest:
            if setting in record.data:
                raise record.refuse(
                    f"it sets {setting}, which a layer has from its parent {parent.name}", f"remove {setting}"
                )
        family = family_of(parent.distribution)
        base = parent
    else:
        for setting in (*lowest, "archives", "packages"):
            if not record.data.get(setting):
                raise record.refuse(f"it has no parent and no {setting}", f"give it a parent, or {setting}")
        distribution = record.text("distribution")
        if distribution not in DISTRIBUTIONS:
            raise record.refuse(
                f"distribution {distribution!r} is unknown", f"valid values: {', '.join(sorted(DISTRIBUTIONS))}"
            )
        family = family_of(distribution)
        architecture = record.text("architecture")
        if architecture not in family.ARCHITECTURES:
            raise record.refuse(
                f"architecture {architecture!r} is unknown to {distribution}",
                f"valid values: {', '.join(family.ARCHITECTURES)}",
            )
        suite = record.text("suite")
        if not RELEASE.fullmatch(suite):
            raise record.refuse(f"suite {suite!r} is not a valid name", 'give the release, such as bookworm or "9"')
        base = Layer(name, None, distribution, suite, architecture, ())
    archives = base.archives + tuple(family.read_archive(item) for item in record.records("archives"))
    _check_suites(record, archives[len(base.archives) :], base.suite)
    return replace(
        base,
        name=name,
        parent=parent.name if parent else None,
        archives=archives,
        packages=tuple(sorted(record.texts("packages", family.PACKAGE))),
        files=contents.read_files(record),
        users=contents.read_users(record),
        services=contents.read_services(record),
        roles=contents.read_roles(record),
        kernel_arguments=read_kernel_arguments(record),
        published_keys=tuple(sorted(record.texts("published_keys", contents.PATH))),
    )
