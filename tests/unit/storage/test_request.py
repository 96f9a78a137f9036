# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bad input is one error that names the setting, and shows no key."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request

LOCAL = {"name": "cache", "numa_node": 0, "count": 4}
NFS = {"source": "nas1:/home", "path": "/home"}
S3 = {"name": "data", "endpoint": "https://s3", "bucket": "data", "path": "/data", "cache": "cache", "size_gib": 100}


def test_labels_and_paths():
    stripe, single, one = read_request(
        {
            "local": [
                LOCAL,
                {"name": "tera", "numa_node": 1, "count": 2, "layout": "single", "path": "/mnt/tera"},
                {"name": "one", "drives": ["0000:5e:00.0"]},
            ]
        }
    ).local
    assert (stripe.labels, stripe.path, stripe.is_striped) == (("cache",), "/cache", True)
    assert [single.path_of(label) for label in single.labels] == ["/mnt/tera0", "/mnt/tera1"]
    assert (one.labels, one.is_striped, one.count) == (("one",), False, 1)


@pytest.mark.parametrize(
    ("data", "setting"),
    [
        ({"local": [{**LOCAL, "name": "Cache"}]}, "name"),
        ({"local": [{**LOCAL, "name": "cache1"}]}, "name"),
        ({"local": [{**LOCAL, "name": "toolongname"}]}, "name"),
        ({"local": [{"name": "cache"}]}, "drives"),
        ({"local": [{**LOCAL, "drives": ["0000:5e:00.0"]}]}, "drives"),
        ({"local": [{"name": "cache", "numa_node": 0}]}, "count"),
        ({"local": [{"name": "cache", "drives": ["0000:5e:00.0"], "count": 1}]}, "count"),
        ({"local": [{"name": "cache", "drives": ["5e:00.0"]}]}, "drives"),
        ({"local": [{"name": "cache", "drives": ["0000:5e:00.0", "0000:5e:00.0"]}]}, "drives"),
        ({"local": [{**LOCAL, "path": "/a b"}]}, "path"),
        ({"local": [{**LOCAL, "mode": "777"}]}, "mode"),
        ({"local": [{**LOCAL, "purpose": "backup"}]}, "purpose"),
        ({"local": [{**LOCAL, "purpose": "checkpoints", "keep": False}]}, "keep"),
        ({"local": [{**LOCAL, "layot": "single"}]}, "layout"),
        ({"local": [LOCAL, LOCAL]}, "cache"),
        ({"local": [LOCAL], "nfs": [{**NFS, "path": "/cache"}]}, "/cache"),
        ({"nfs": [{**NFS, "source": "/home"}]}, "source"),
        ({"nfs": [{**NFS, "cache": "cache"}]}, "cache"),
        ({"nfs": [{**NFS, "options": ["proto=rdma"]}]}, "rdma"),
        ({"nfs": [{**NFS, "options": ["a,b"]}]}, "options"),
        ({"s3": [S3]}, "cache"),
        ({"local": [LOCAL], "s3": [{**S3, "bucket": "a b"}]}, "bucket"),
        ({"local": [LOCAL], "s3": [{**S3, "size_gib": 0}]}, "size_gib"),
        ({"local": [{**LOCAL, "keep": False}], "s3": [S3]}, "read_only"),
        ({"s3_keys": {"data": {"access_key_id": "a", "secret_access_key": "b"}}}, "data"),
        ({"local": [LOCAL], "s3": [S3], "s3_keys": {"data": {"access_key_id": "a"}}}, "secret_access_key"),
    ],
)
def test_a_wrong_setting_is_named(data, setting):
    with raises(RequestError, setting):
        read_request(data)


def test_a_wrong_key_is_not_shown():
    keys = {"data": {"access_key_id": "AKIA1", "secret_access_key": "gehe im\n"}}
    with pytest.raises(RequestError) as refused:
        read_request({"local": [LOCAL], "s3": [S3], "s3_keys": keys})
    assert "gehe" not in str(refused.value)


def test_a_cache_that_is_not_kept_may_have_what_is_only_read():
    assert read_request({"local": [{**LOCAL, "keep": False}], "s3": [{**S3, "read_only": True}]}).s3
