# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes that the module node_identity takes, from the variables of the inventory."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.action.node_identity import secrets_rows


def of(*names, **variables):
    return secrets_rows(
        names, {"bm01": {"node_identity_ek": "AAAA", **variables}, "bm02": {"node_identity_ek": "BBBB"}}
    )


def test_nodes_have_their_key_and_the_files_of_their_secrets():
    secrets = {"/etc/a": {"content": "x", "mode": "0640", "owner": "a", "group": "b"}, "/etc/b": {"content": ""}}
    assert of("bm02", "bm01", node_identity_secrets=secrets) == [
        {"name": "bm02", "ek": "BBBB", "secrets": [], "measured": False, "proven": True},
        {
            "name": "bm01",
            "ek": "AAAA",
            "secrets": [
                {"path": "/etc/a", "content": "x", "mode": "0640", "owner": "a", "group": "b"},
                {"path": "/etc/b", "content": ""},
            ],
            "measured": False,
            "proven": True,
        },
    ]


@pytest.mark.parametrize(
    ("variables", "measured", "proven"),
    [
        ({"node_boot_secure_boot": True}, True, False),
        ({"node_boot_secure_boot": True, "node_identity_quoted": {"verified": True}}, True, True),
        ({"node_boot_secure_boot": True, "node_identity_quoted": {"failed": True, "msg": "PCR 4"}}, True, False),
        ({"node_boot_secure_boot": True, "node_identity_quoted": {"skipped": True}}, True, False),
        ({"node_boot_secure_boot": True, "node_identity_measured": False}, False, True),
        ({"node_identity_measured": "yes"}, True, False),
    ],
)
def test_a_measured_node_is_proven_by_a_verified_quote_only(variables, measured, proven):
    [row] = of("bm01", **variables)
    assert (row["measured"], row["proven"]) == (measured, proven)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {
                "node_identity_secrets": {"/etc/a": {"content": "s3cret"}},
                "node_boot_files": {"/etc/a": {"content": "b"}},
            },
            Mentions("/etc/a", "node_identity_secrets", "node_boot_files"),
        ),
        ({"node_identity_ek": ""}, Mentions("node_identity_ek", "node_identity", "tasks_from")),
        (
            {"node_identity_secrets": ["s3cret"]},
            Mentions("node_identity_secrets"),
        ),
        ({"node_identity_secrets": {"/a": "s3cret"}}, Mentions("node_identity_secrets", "/a", "content")),
        ({"node_identity_secrets": {"/a": {"mode": "0600"}}}, Mentions("node_identity_secrets", "/a", "content")),
        (
            {"node_identity_secrets": {"/a": {"content": "s3cret", "x": 1}}},
            Mentions("node_identity_secrets", "/a", "content"),
        ),
        (
            {"node_identity_secrets": {"/a": {"content": {"s3cret": 1}}}},
            Mentions("node_identity_secrets", "/a"),
        ),
        (
            {"node_identity_secrets": {"/a": {"content": ["s3cret"]}}},
            Mentions("node_identity_secrets", "/a"),
        ),
    ],
)
def test_wrong_variables_are_refused_without_the_content_of_a_secret(variables, message):
    with pytest.raises(AnsibleActionFail, match="bm01") as error:
        of("bm01", **variables)
    assert str(error.value) == Mentions("bm01", message)
    assert "s3cret" not in str(error.value)


def test_a_node_that_is_not_in_the_inventory_is_refused():
    with raises(AnsibleActionFail, "bm03", "nodes"):
        of("bm03")
