"""The OpenAPI document and the service agree: random requests get documented answers and no 5xx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from tests.effort import FACTOR
from tests.server.services import Running

pytestmark = pytest.mark.slow


def test_random_requests_get_documented_answers(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Names of files that are random are relative.
    with service.client("admin") as client:
        document = client.get("/v1/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        # A stream of events does not end, and revoking or load limits would end the test itself.
        every: list[Any] = list(schema.get_all_operations())
        operations = [found.ok() for found in every if "events" not in found.ok().path]
        assert len(operations) > 50
        seen: set[int] = set()

        @settings(
            max_examples=400 * max(1, FACTOR),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(some.data())
        def run(data: some.DataObject) -> None:
            operation = data.draw(some.sampled_from(operations))
            case = data.draw(operation.as_strategy())
            answer = case.call(base_url=service.url, headers=dict(client.headers), timeout=60)
            seen.add(answer.status_code)
            documented = document["paths"][operation.path][operation.method.lower()]["responses"]
            told = (operation.method, operation.path, case.body, case.query, answer.status_code, answer.text)
            assert answer.status_code < 500, told
            assert str(answer.status_code) in documented, told
            assert "Traceback" not in answer.text, told
            if answer.status_code >= 400:
                assert answer.json()["error"]["hint"], told
            elif answer.headers["content-type"] == "application/json":
                operation.validate_response(answer)

        run()
    assert {200, 400, 404} <= seen
