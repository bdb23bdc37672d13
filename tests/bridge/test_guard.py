"""The guard as a table: what a request says, and what it is told."""

from __future__ import annotations

import pytest

from ptoa_bridge.guard import Facts, Refusal, is_loopback_host, may_read, refuse

TOKEN = "right-token"
LAB = "https://lab.papertoanything.com"
DEV = "http://localhost:5180"
FOREIGN = frozenset({LAB, DEV})
HOST = "127.0.0.1:8000"

GOOD_HOSTS = [
    "127.0.0.1:8000",
    "localhost:1",
    "LOCALHOST:8000",
    "LocalHost:65535",
    "[::1]:8000",
    "127.0.0.1:9",
]

HOSTILE_HOSTS = [
    "",
    ":",
    ":8000",
    "127.0.0.1",
    "localhost",
    "[::1]",
    "127.0.0.1:",
    "127.0.0.1:0",
    "127.0.0.1:00080",
    "127.0.0.1:65536",
    "127.0.0.1:99999999999999999999",
    "127.0.0.1:-1",
    "127.0.0.1:+80",
    "127.0.0.1:8e3",
    "127.0.0.1:0x50",
    "127.0.0.1:http",
    "127.0.0.1:8000.evil",
    "127.0.0.1:8000:8000",
    "127.0.0.1:８０００",
    "127.0.0.1:٣",
    "127.0.0.1:8000\n",
    "127.0.0.1:8000 ",
    " 127.0.0.1:8000",
    "127.0.0.1:8000,evil.example:8000",
    "127.0.0.1:8000/",
    "127.0.0.1:8000#",
    "127.0.0.1:8000?",
    "127.0.0.1:8000@evil.example",
    "evil.example@127.0.0.1:8000",
    "user:pass@localhost:8000",
    "evil.example:8000",
    "evil127.0.0.1:8000",
    "127.0.0.1.evil.example:8000",
    "127.0.0.1.nip.io:8000",
    "localhost.evil.example:8000",
    "evil-localhost:8000",
    "localhost.:8000",
    "127.0.0.1.:8000",
    "127.1:8000",
    "127.0.1:8000",
    "127.0.0.2:8000",
    "127.000.000.001:8000",
    "0177.0.0.1:8000",
    "0x7f.0.0.1:8000",
    "2130706433:8000",
    "0.0.0.0:8000",
    "0:8000",
    "::1:8000",
    "[::]:8000",
    "[::1%lo]:8000",
    "[::1%25eth0]:8000",
    "[0:0:0:0:0:0:0:1]:8000",
    "[::ffff:127.0.0.1]:8000",
    "[fe80::1]:8000",
    "[127.0.0.1]:8000",
    "ⓛocalhost:8000",
    "loсalhost:8000",
    "ｌocalhost:8000",
    "localhoſt:8000",
    "http://127.0.0.1:8000",
    "//127.0.0.1:8000",
]

HOSTILE_ORIGINS = [
    "",
    "null",
    "NULL",
    "*",
    "https://evil.example",
    "http://evil.example:8000",
    "https://lab.papertoanything.com/",
    "https://lab.papertoanything.com ",
    " https://lab.papertoanything.com",
    "https://lab.papertoanything.com.",
    "https://lab.papertoanything.com:443",
    "https://lab.papertoanything.com:8443",
    "https://lab.papertoanything.com.evil.example",
    "https://lab.papertoanything.com@evil.example",
    "https://evil.example@lab.papertoanything.com",
    "https://lab.papertoanything.com\\.evil.example",
    "https://lab.papertoanything.com%00.evil.example",
    "https://lab.papertoanything.com\x00",
    "https://lab.papertoanything.com\t",
    "https://lab.papertoanything.com https://evil.example",
    "https://evil.example https://lab.papertoanything.com",
    "https://lab.papertoanything.com,https://evil.example",
    "https://LAB.papertoanything.com",
    "HTTPS://LAB.PAPERTOANYTHING.COM",
    "https://evil-lab.papertoanything.com",
    "https://evil.lab.papertoanything.com",
    "https://labXpapertoanything.com",
    "https://papertoanything.com",
    "http://lab.papertoanything.com",
    "ftp://lab.papertoanything.com",
    "lab.papertoanything.com",
    "//lab.papertoanything.com",
    "http://localhost:5181",
    "http://localhost:51800",
    "http://localhost",
    "https://localhost:5180",
    "http://127.0.0.1:5180",
    "http://127.0.0.1",
    "http://127.0.0.1:8001",
    "http://127.0.0.1:80000",
    "https://127.0.0.1:8000",
    "http://localhost:8000",
    "http://[::1]:8000",
    "http://127.0.0.1:8000/",
    "http://127.0.0.1:8000.evil.example",
    "http://127.0.0.1:8000@evil.example",
    "HTTP://127.0.0.1:8000",
    "file://",
    "data:",
    "about:blank",
    "chrome-extension://abc",
]


def told(**facts):
    """Status of the refusal, 200 for none."""
    refusal = refuse(Facts(**{"host": HOST, "tokens": (TOKEN,), **facts}), token=TOKEN, foreign=FOREIGN)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_a_loopback_name_with_any_port_is_a_host_of_ours(host):
    assert is_loopback_host(host)
    assert told(host=host) == 200


@pytest.mark.parametrize("host", HOSTILE_HOSTS, ids=ascii)
def test_any_other_host_is_misdirected(host):
    assert not is_loopback_host(host)
    assert told(host=host) == 421
    assert told(host=HOST, authority=host) == 421
    assert told(host=host, authority=HOST) == 421


@pytest.mark.parametrize("host", HOSTILE_HOSTS, ids=ascii)
def test_no_hostile_host_makes_an_origin_that_is_answered(host):
    assert told(host=host, origin=f"http://{host}", place="page") == 421


def test_a_request_without_a_host_is_misdirected():
    assert told(host=None) == 421


def test_two_loopback_names_in_one_request_are_refused():
    assert told(authority="localhost:8000") == 421
    assert told(authority="127.0.0.1:8001") == 421
    assert told(authority=HOST) == 200


@pytest.mark.parametrize("origin", HOSTILE_ORIGINS, ids=ascii)
@pytest.mark.parametrize("place", ["data", "page", "unknown"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_a_hostile_origin_is_refused_everywhere(origin, place, method):
    assert not may_read(origin, HOST, FOREIGN)
    assert told(origin=origin, place=place, method=method, fetch_site="same-origin") == 403


@pytest.mark.parametrize("origin", [LAB, DEV, f"http://{HOST}", None], ids=str)
def test_the_lab_the_dev_server_and_our_own_page_are_answered(origin):
    assert told(origin=origin) == 200


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_our_own_origin_is_made_of_the_host_that_was_asked(host):
    assert told(host=host, origin=f"http://{host.lower()}") == 200


def test_without_foreign_origins_the_lab_is_refused():
    refusal = refuse(Facts(host=HOST, origin=LAB, tokens=(TOKEN,)), token=TOKEN, foreign=())
    assert refusal is not None
    assert refusal.status == 403


FETCH_SITES = {None: 200, "same-origin": 200, "none": 200}
BAD_FETCH_SITES = ["cross-site", "same-site", "", "SAME-ORIGIN", "none, none", "same-origin, cross-site", "x"]


@pytest.mark.parametrize(("site", "status"), FETCH_SITES.items(), ids=str)
def test_data_for_no_other_site_is_answered(site, status):
    assert told(fetch_site=site) == status


@pytest.mark.parametrize("site", BAD_FETCH_SITES)
def test_data_without_an_origin_is_refused_to_another_site(site):
    assert told(fetch_site=site) == 403
    assert told(fetch_site=site, place="unknown") == 403


@pytest.mark.parametrize("site", BAD_FETCH_SITES)
def test_the_page_opens_from_another_sites_link(site):
    assert told(fetch_site=site, place="page", tokens=()) == 200


@pytest.mark.parametrize("site", BAD_FETCH_SITES)
def test_a_request_with_an_allowed_origin_may_cross_sites(site):
    assert told(fetch_site=site, origin=LAB) == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_methods_are_answered(method):
    assert told(method=method) == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PRI", "get", "Get", "GETS"]
)
def test_other_methods_are_not_allowed(method):
    assert told(method=method) == 405


TOKENS = {
    "none": ((), 401),
    "empty": (("",), 401),
    "empty-everywhere": (("", "", ""), 401),
    "wrong": (("wrong",), 403),
    "prefix": ((TOKEN[:-1],), 403),
    "suffix": ((TOKEN + "x",), 403),
    "upper-case": ((TOKEN.upper(),), 403),
    "padded": ((f" {TOKEN}",), 403),
    "not-ascii": (("tökén",), 403),
    "surrogate": (("\udcff",), 403),
    "nul": ((TOKEN + "\0",), 403),
    "long": (("a" * 30_000,), 403),
    "right": ((TOKEN,), 200),
    "right-beside-wrong": (("wrong", TOKEN), 200),
    "right-beside-empty": (("", TOKEN), 200),
}


@pytest.mark.parametrize(("tokens", "status"), TOKENS.values(), ids=TOKENS)
def test_data_needs_the_token(tokens, status):
    assert told(tokens=tokens) == status


@pytest.mark.parametrize(("tokens", "_status"), TOKENS.values(), ids=TOKENS)
def test_the_page_and_a_preflight_need_none(tokens, _status):
    assert told(tokens=tokens, place="page") == 200
    assert told(tokens=tokens, method="OPTIONS") == 200


# Each row breaks one rule more than the row above it, and is refused for the rule it breaks first.
ORDER = [
    ({"tokens": ("wrong",)}, 403),
    ({"tokens": ()}, 401),
    ({"place": "unknown"}, 404),
    ({"method": "POST"}, 405),
    ({"fetch_site": "cross-site"}, 403),
    ({"host": "evil.example:8000"}, 421),
    ({"fault": Refusal(400, "malformed")}, 400),
]


@pytest.mark.parametrize("broken", range(1, len(ORDER) + 1))
def test_the_first_broken_rule_in_order_is_the_one_that_is_told(broken):
    facts = {}
    for change, _ in ORDER[:broken]:
        facts.update(change)
    assert told(**facts) == ORDER[broken - 1][1]


def test_the_origin_is_looked_at_before_the_method_and_after_the_host():
    assert told(origin="null", method="POST", place="unknown", tokens=()) == 403
    assert told(origin="null", host="evil.example:1") == 421


def test_a_reason_repeats_nothing_that_was_sent():
    sent = Facts("<b>", "<i>:1", None, "<u>", "<s>", "unknown", ("<q>",))
    reasons = [
        refuse(Facts(**{**sent.__dict__, **good}), token=TOKEN, foreign=FOREIGN).reason
        for good in (
            {},
            {"host": HOST},
            {"host": HOST, "origin": None},
            {"host": HOST, "origin": None, "fetch_site": None},
            {"host": HOST, "origin": None, "fetch_site": None, "method": "GET"},
            {"host": HOST, "origin": None, "fetch_site": None, "method": "GET", "place": "data"},
        )
    ]
    assert len(set(reasons)) == 6
    assert not any("<" in reason for reason in reasons)
