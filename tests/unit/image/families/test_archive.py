# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings that the archives of all families of distributions have in common."""

from __future__ import annotations

import pytest
from image_samples import refusal

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import archive


def layer(**data):
    return Settings(ImageError, "layer", data)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://a", "http://a"),
        ("https://a:8080/b//", "https://a:8080/b"),
        ("file:///srv/a/", "file:///srv/a"),
    ],
)
def test_the_url_of_an_archive_is_read_without_slashes_at_its_end(url, read):
    assert archive.read_url(layer(url=url)) == read


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a/?b", "http://a b", "file://a/b"])
def test_an_invalid_url_of_an_archive_is_refused(url):
    assert f"url: {url!r}" in refusal(archive.read_url, layer(url=url)).cause


@pytest.mark.parametrize("secret", ["a-token", "me:s3cret", "me:s3@cr:et"])
def test_a_password_in_a_url_is_refused_and_not_shown(secret):
    message = str(refusal(archive.read_url, layer(url=f"https://{secret}@a.example/debian")))
    assert "a.example/debian" in message
    assert not [word for word in secret.replace("@", ":").split(":") if f"{word}@" in message or f":{word}" in message]


def test_the_keyring_of_an_archive_is_an_absolute_path():
    assert archive.read_keyring(layer()) is None
    assert archive.read_keyring(layer(keyring="/a/b.gpg")) == "/a/b.gpg"
    for keyring in ("a", "/", "/a b", "/a[b", "/a]b", 7):
        assert f"keyring: {keyring!r}" in refusal(archive.read_keyring, layer(keyring=keyring)).cause


def test_pinned_digests_are_read_by_place():
    assert archive.read_pins(layer(), ["x"]) == {}
    pins = {"a": "0" * 64, "b": "f" * 64}
    assert archive.read_pins(layer(release_sha256=pins), ["b", "a", "c"]) == pins
    error = refusal(archive.read_pins, layer(release_sha256={"d": "0" * 64}), ["b", "a"])
    assert (error.subject, error.remedy) == ("layer.release_sha256", "valid settings: a, b")
    for pin in ("0" * 63, "F" * 64, 7):
        assert f"a: {pin!r}" in refusal(archive.read_pins, layer(release_sha256={"a": pin}), ["a"]).cause
