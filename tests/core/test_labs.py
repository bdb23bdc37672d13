"""Which address is a Lab, and what its origin is."""

from __future__ import annotations

import pytest

from ptoa_core.errors import SettingError
from ptoa_core.labs import Lab, resolve_lab
from ptoa_core.link import lab_url, to_url
from ptoa_core.spec import Block, ModelSpec

HOSTED = Lab("https://lab.papertoanything.com/", "https://lab.papertoanything.com", False)

TAKEN = {
    "hosted": ("https://lab.papertoanything.com", HOSTED),
    "hosted-slash": ("https://lab.papertoanything.com/", HOSTED),
    "default-port": ("https://lab.papertoanything.com:443/", HOSTED),
    "upper-case": ("HTTPS://Lab.PaperToAnything.com/", HOSTED),
    "path": ("https://a.example/lab/x", Lab("https://a.example/lab/x", "https://a.example", False)),
    "port": ("https://a.example:8443", Lab("https://a.example:8443/", "https://a.example:8443", False)),
    "dev": ("http://localhost:5180", Lab("http://localhost:5180/", "http://localhost:5180", False)),
    "loopback": ("http://127.0.0.1:80/", Lab("http://127.0.0.1/", "http://127.0.0.1", False)),
    "loopback-v6": ("http://[::1]:9", Lab("http://[::1]:9/", "http://[::1]:9", False)),
    "local": ("local", Lab("", "", True)),
}


@pytest.mark.parametrize(("address", "lab"), TAKEN.values(), ids=TAKEN)
def test_address_is_taken(address, lab, monkeypatch):
    monkeypatch.delenv("PTA_LAB_URL", raising=False)
    assert resolve_lab(address) == lab
    monkeypatch.setenv("PTA_LAB_URL", address)
    assert resolve_lab() == lab


REFUSED = [
    "",
    " ",
    "lab.example.org",
    "http://lab.example.org",
    "http://localhost.evil.org",
    "http://127.0.0.1.evil.org",
    "http://0.0.0.0",
    "http://192.168.0.1",
    "ftp://localhost",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://",
    "https:///x",
    "https://user@lab.example.org",
    "https://lab.example.org@evil.org",
    "https://lab.example.org/?a=1",
    "https://lab.example.org/#x",
    "https://lab.example.org:0",
    "https://lab.example.org:70000",
    "https://lab.example.org:port",
    "https://lab.example.org\n",
    " https://lab.example.org",
    "https://lab.example.org\\evil",
    "https://lab.example.org/\x1b",
    "https://läb.example.org",
    "https://-lab.example.org",
    "https://lab.example.org.",
    "LOCAL",
    None.__class__,
    5,
]


@pytest.mark.parametrize("address", REFUSED)
def test_address_is_refused_with_what_was_wanted(address):
    with pytest.raises(SettingError, match="lab_url is"):
        resolve_lab(address)


def test_environment_that_is_no_address_is_named(monkeypatch):
    monkeypatch.setenv("PTA_LAB_URL", "http://evil.org")
    with pytest.raises(
        SettingError, match=r"PTA_LAB_URL is 'http://evil\.org': http is only for a loopback name"
    ):
        resolve_lab()


def test_argument_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("PTA_LAB_URL", "https://a.example")
    assert resolve_lab("https://b.example").origin == "https://b.example"
    assert resolve_lab().origin == "https://a.example"
    monkeypatch.setenv("PTA_LAB_URL", "")
    assert resolve_lab() == HOSTED


def test_links_begin_with_the_chosen_lab(monkeypatch):
    spec = ModelSpec("x", [Block("t0", "tokens")], "t0")
    monkeypatch.setenv("PTA_LAB_URL", "https://a.example/lab")
    assert lab_url() == "https://a.example/lab"
    assert to_url(spec).startswith("https://a.example/lab#s=")
    monkeypatch.setenv("PTA_LAB_URL", "local")
    assert lab_url() == "https://lab.papertoanything.com/"
    assert to_url(spec, base="http://127.0.0.1:1/#old").startswith("http://127.0.0.1:1/#s=")
