# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the user's settings of images and layers. They are only checked here; later code relies on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Image, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_name
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import DISTRIBUTIONS, family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import contents
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.kernel_arguments import (
    MOST_ARGUMENT_BYTES,
    read_kernel_arguments,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.oci import read_oci

# A release, such as bookworm or 9: it becomes part of a URL.
RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
# The name of a kernel module, as modinfo(8) shows it.
DRIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
# At most 64 TiB, what Linux addresses with four levels of page tables (Documentation/arch/x86/x86_64/5level-paging).
WRITABLE_MIB = (16, 1 << 26)
# Directories of every system: their keys are not all public, and more may come with each package.
SHARED_FOLDERS = re.compile(r"/[a-z]+[0-9]*|/usr/[a-z0-9]+|/var/[a-z]+|/etc/(ssl|ssl/private|ssl/certs|ssh|pki)")
# Linux' own default is 0: a node that panics halts. In 30 s, its console shows the cause. A node's
# own argument comes later and has precedence.
PANIC = "panic=30"


def read_images(images: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Image]:
    """Return all images by name, from the variables ``node_image_images`` and ``node_image_layers``, in their order.

    None stands for "not given", as Ansible passes it. Every layer is checked, used or not. Raises ImageError for the
    first problem.
    """
    if not isinstance(layers, Mapping) or not isinstance(images, Mapping):
        variable = "node_image_layers" if not isinstance(layers, Mapping) else "node_image_images"
        raise ImageError("not a dictionary", "write each by its name: base: {...}", subject=variable)
    settings_by_layer = {
        checked_name(name, "layer"): Settings(ImageError, f"node_image_layers.{name}", data)
        for name, data in layers.items()
    }
    read: dict[str, Layer] = {}
    for name in settings_by_layer:
        for ancestor in reversed(_ancestry(name, settings_by_layer)):
            if ancestor not in read:
                parent = settings_by_layer[ancestor].data.get("parent")
                read[ancestor] = _layer(ancestor, settings_by_layer[ancestor], read.get(parent) if parent else None)
    return {name: _image(name, data, read) for name, data in images.items()}


def _ancestry(name: str, settings_by_layer: Mapping[str, Settings]) -> list[str]:
    """Return the layer and those below it, the lowest last."""
    chain = [name]
    while True:
        parent = settings_by_layer[chain[-1]].data.get("parent")
        if parent is None:
            return chain
        if not isinstance(parent, str) or parent not in settings_by_layer:
            raise settings_by_layer[chain[-1]].refuse_setting(
                "parent", f"{parent!r} is not defined", _one_of(settings_by_layer)
            )
        if parent in chain:
            circle = " -> ".join([*chain[chain.index(parent) :], parent])
            raise settings_by_layer[chain[-1]].refuse_setting(
                "parent", f"the layer is on top of itself: {circle}", "remove the parent from the lowest of them"
            )
        chain.append(parent)


def _image(name: Any, data: Any, layers: Mapping[str, Layer]) -> Image:
    checked_name(name, "image")
    settings = Settings(ImageError, f"node_image_images.{name}", data)
    settings.only("layer", "writable_mib", "kernel_arguments")
    top = settings.data.get("layer")
    if not isinstance(top, str) or top not in layers:
        raise settings.refuse_setting("layer", f"{top!r} is not defined", _one_of(layers))
    chain: list[Layer] = []
    while top is not None:
        chain.insert(0, layers[top])
        top = layers[top].parent
    writable = settings.value("writable_mib", values.within(*WRITABLE_MIB, "MiB"), 1024)
    arguments = (
        *(argument for layer in chain for argument in layer.kernel_arguments),
        *read_kernel_arguments(settings),
    )
    if not any(argument.startswith("panic=") for argument in arguments):
        arguments = (PANIC, *arguments)
    size_bytes = len(" ".join(arguments))
    if size_bytes > MOST_ARGUMENT_BYTES:
        raise settings.refuse(
            f"its kernel arguments take {size_bytes} bytes", f"remove some, the maximum is {MOST_ARGUMENT_BYTES} bytes"
        )
    return Image(name, tuple(chain), arguments, writable)


def _one_of(layers: Mapping[str, Any]) -> str:
    return f"define it in node_image_layers{', or use one of ' if layers else ''}{', '.join(sorted(layers))}"


def _layer(name: str, settings: Settings, parent: Layer | None) -> Layer:
    lowest = ("distribution", "suite", "architecture")
    oci = read_oci(settings)
    parts = (
        "archives",
        "packages",
        "files",
        "users",
        "services",
        "roles",
        "kernel_arguments",
        "drivers",
        "published_keys",
        "network",
    )
    settings.only("parent", *lowest, "oci", *parts)
    if parent:
        for setting in (*lowest, "oci"):
            if setting in settings.data:
                raise settings.refuse(
                    f"it sets {setting}, which a layer has from its parent {parent.name}", f"remove {setting}"
                )
        family = family_of(parent.distribution)
        base = parent
    else:
        for setting in (*lowest, *(() if oci else ("archives", "packages"))):
            if not settings.data.get(setting):
                raise settings.refuse(f"it has no parent and no {setting}", f"give it a parent, or {setting}")
        distribution = settings.value("distribution", values.among(*sorted(DISTRIBUTIONS)))
        family = family_of(distribution)
        architecture = settings.value("architecture", values.among(*family.ARCHITECTURES))
        suite = settings.value("suite", values.matching(RELEASE, 'give the release, such as bookworm or "9"'))
        base = Layer(name, None, distribution, suite, architecture, ())
    archives = base.archives + tuple(family.read_archive(item) for item in settings.parts("archives"))
    published = settings.value("published_keys", values.distinct(values.matching(contents.PATH)), [])
    for path in published:
        if SHARED_FOLDERS.fullmatch(path):
            raise settings.refuse_setting(
                "published_keys", f"{path} also has the keys of others", "list the files, or a directory of their own"
            )
    return replace(
        base,
        name=name,
        parent=parent.name if parent else None,
        archives=archives,
        packages=tuple(sorted(settings.value("packages", values.distinct(values.matching(family.PACKAGE)), []))),
        files=contents.read_files(settings),
        users=contents.read_users(settings),
        services=contents.read_services(settings),
        roles=contents.read_roles(settings),
        kernel_arguments=read_kernel_arguments(settings),
        drivers=tuple(sorted(settings.value("drivers", values.distinct(values.matching(DRIVER)), []))),
        published_keys=tuple(sorted(published)),
        network=settings.value("network", values.flag, False),
        oci=oci,
    )
