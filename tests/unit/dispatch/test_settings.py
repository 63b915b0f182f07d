"""Flags over environment over file, and nothing misspelt goes unseen."""

from pathlib import Path

import pytest

from dispatch.settings import DispatchSettings
from hosting.settings import BadSettings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA", "STORE", "HOST", "PORT"):
        monkeypatch.delenv(f"DHSCHED_{name}", raising=False)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "dhsched.toml"
    path.write_text(text)
    return path


def test_flags_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, 'kafka = "file:1"\nport = 1\n[dispatch]\nhost = "file"\nport = 2\n')
    found = DispatchSettings.load({}, path)
    assert (found.kafka, found.host, found.port) == ("file:1", "file", 2)
    monkeypatch.setenv("DHSCHED_PORT", "3")
    monkeypatch.setenv("DHSCHED_HOST", "environment")
    found = DispatchSettings.load({"port": 4, "host": None}, path)
    assert (found.kafka, found.host, found.port) == ("file:1", "environment", 4)


def test_tables_of_other_commands_are_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, '[worker]\nnode = "x"\n[dispatch.limits]\nlease_ms = 9000\n')
    assert DispatchSettings.load({}, path).checked_limits().lease_ms == 9_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kafak = "x"\n', "did you mean kafka"),
        ("[dispatch]\nprot = 1\n", "did you mean port"),
        ("zzz = 1\n", "there are body_bytes_max"),
        ("dispatch = 5\n", "must be a table"),
        ("[dispatch]\nport = 70000\n", "port"),
        ("[dispatch.limits]\nlease = 1\n", "did you mean lease_ms"),
        ("[dispatch.limits]\nlease_ms = 1\n", "three times refresh_ms"),
        ("kafka = ", "not valid TOML"),
        ("log_format = 'xml'\n", "log_format"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        DispatchSettings.load({}, write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot read"):
        DispatchSettings.load({}, tmp_path / "none.toml")


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(BadSettings, match="prot"):
        DispatchSettings.load({"prot": 5})
