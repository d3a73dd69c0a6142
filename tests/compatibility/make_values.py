"""Makes the encoded values of a version, beside its snapshots; see `make_fixtures.py`."""

from __future__ import annotations

import json
import sys

from driving import DATA
from saved_values import FORMS, KEYS, VALUES

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.stable_hash import stable_hash


def main(version: str) -> None:
    codec = ValueCodec()
    encoded = {
        name: {form: codec.dumps(wrap(make())).hex() for form, wrap in FORMS.items()}
        for name, make in VALUES.items()
    }
    hashes = {name: stable_hash(VALUES[name]()) for name in KEYS}
    with (DATA / version / "values.json").open("x") as file:
        json.dump({"values": encoded, "hashes": hashes}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
