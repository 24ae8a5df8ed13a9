"""Certificates that are made once."""

from __future__ import annotations

import pytest

from harness.wire.tls import Tls, new_tls


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return new_tls(tmp_path_factory.mktemp("tls"))
