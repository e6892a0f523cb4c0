"""Secrets in URLs are in no error, whoever makes it."""

from __future__ import annotations

import pytest

from strandline.errors import InvalidArgument, mask_urls
from strandline.settings import Settings
from strandline.storage.external.locations import place_of

SECRET = "s3cr3t"
SIGNED = f"https://bucket.s3.amazonaws.com/folder/rows.csv?X-Amz-Signature={SECRET}&partNumber=1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SIGNED, "https://bucket.s3.amazonaws.com/folder/rows.csv?***"),
        (f"no answer from {SIGNED}, for 3 s", "no answer from https://bucket.s3.amazonaws.com/folder/rows.csv?***, for 3 s"),
        (f"'https://host/a?{SECRET}'", "'https://host/a?***'"),
        (f"(https://{SECRET}@host/a)", "(https://***@host/a)"),
        (f"https://ada:{SECRET}@host/a", "https://***@host/a"),
        (f"s3://bucket/a.csv?X-Amz-Signature={SECRET}.", "s3://bucket/a.csv?***."),
        (f"az://c/a#sig={SECRET}", "az://c/a?***"),
        (f"postgresql://ada:{SECRET}@host/db", "postgresql://ada:***@host/db"),
        (f"GET /b?X-Goog-Signature={SECRET}", "GET /b?X-Goog-Signature=***"),
    ],
)  # fmt: skip
def test_what_is_secret_in_a_url_is_not_shown(text: str, shown: str) -> None:
    assert mask_urls(text) == shown
    error = InvalidArgument(text, text)
    assert (error.message, error.hint) == (shown, shown)
    assert SECRET not in str(error) + repr(error)
    assert mask_urls(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/folder: 12:30 a@b",
        "Name another place, such as postgresql+psycopg://user@host/database.",
        "no file matches s3://bucket/part-?.csv",
        "the object /r/objects/ab/ab12.parquet#17.0 = that",
        "abfss://container@account.dfs.core.windows.net/a",
    ],
)
def test_all_else_is(text: str) -> None:
    assert mask_urls(text) == text


@pytest.mark.parametrize("more", ["?X-Amz-Signature=", "?any=", "#sig="])
@pytest.mark.parametrize("scheme", ["s3", "https"])
def test_a_presigned_address_is_no_place_for_an_export(scheme: str, more: str) -> None:
    """Nor for anything else: a client would take it for a name, and messages repeat names."""
    for place in (f"{scheme}://bucket/rows.csv{more}{SECRET}", f"{scheme}://ada:{SECRET}@bucket/rows.csv"):
        with pytest.raises(InvalidArgument) as caught:
            place_of(place, Settings())
        assert SECRET not in str(caught.value)
