"""Values of the package's own classes come back from what older versions wrote, and keep their key groups."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import DATA
from saved_values import FORMS, KEYS, VALUES

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.stable_hash import stable_hash

KEPT: dict[str, Any] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(DATA.glob("*/values.json"))
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("version", KEPT)
def test_a_value_is_read_that_an_older_version_wrote(version: str, name: str, form: str) -> None:
    data = bytes.fromhex(KEPT[version]["values"][name][form])
    codec = ValueCodec(allow_pickle=form == "pickled")
    expected = FORMS[form](VALUES[name]())
    read = codec.loads(data)
    assert read == expected
    assert type(read) is type(expected)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("version", KEPT)
def test_a_key_keeps_the_hash_that_its_state_was_dealt_out_by(version: str, name: str) -> None:
    assert stable_hash(VALUES[name]()) == KEPT[version]["hashes"][name]
