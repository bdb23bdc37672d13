"""The bridge as a function: a request goes in, an answer comes out, and no socket is open."""

from __future__ import annotations

import json

import pytest

from ptoa_bridge.events import EventLog
from ptoa_bridge.http import RequestError, parse_head
from ptoa_bridge.page import SECURITY_POLICY, Page
from ptoa_bridge.routes import Content, respond
from ptoa_core.encoded import encode_frame
from ptoa_core.history import FrameHistory

LAB = "https://lab.papertoanything.com"
HOST = "127.0.0.1:8000"
PAGES = {"/": Page("text/html; charset=utf-8", b"<p>page"), "/assets/a.js": Page("text/javascript", b"1")}
SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "connection": "close",
}


@pytest.fixture
def content():
    history = FrameHistory()
    return Content("t0ken", frozenset({LAB}), PAGES, EventLog(history), history, lambda: lambda: True)


def ask(content, target, method="GET", full=False, **headers):
    fields = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    answer = respond(
        parse_head("".join(f"{line}\r\n" for line in lines).encode("latin-1")), content, full=full
    )
    return answer, {name.lower(): value for name, value in answer.headers}


def body(answer):
    return b"".join(answer.body)


EVERY_KIND = {
    "page": ("/", "GET", {}, 200),
    "asset": ("/assets/a.js", "GET", {}, 200),
    "spec-before-there-is-one": ("/spec?token=t0ken", "GET", {}, 204),
    "trace-before-there-is-one": ("/trace?token=t0ken", "GET", {}, 204),
    "health": ("/health?token=t0ken", "GET", {}, 200),
    "health-nonsense": ("/health?token=t0ken&since=x", "GET", {}, 400),
    "events": ("/events?token=t0ken", "GET", {}, 200),
    "head": ("/health?token=t0ken", "HEAD", {}, 200),
    "preflight": ("/spec", "OPTIONS", {"origin": LAB, "access_control_request_method": "GET"}, 204),
    "no-token": ("/spec", "GET", {}, 401),
    "wrong-token": ("/spec?token=x", "GET", {}, 403),
    "unknown": ("/nothing", "GET", {}, 404),
    "method": ("/spec", "POST", {}, 405),
    "host": ("/spec", "GET", {"host": "evil.example:1"}, 421),
    "origin": ("/", "GET", {"origin": "null"}, 403),
    "fetch-site": ("/spec?token=t0ken", "GET", {"sec_fetch_site": "cross-site"}, 403),
}


@pytest.mark.parametrize(("target", "method", "headers", "status"), EVERY_KIND.values(), ids=EVERY_KIND)
def test_every_answer_has_its_status_and_the_safety_headers(content, target, method, headers, status):
    answer, found = ask(content, target, method, **headers)
    assert answer.status == status
    assert found.items() >= SAFE.items()
    assert "*" not in str(found.get("access-control-allow-origin"))
    assert not any(character.isdigit() for character in found["server"])


@pytest.mark.parametrize(("target", "method", "headers", "status"), EVERY_KIND.values(), ids=EVERY_KIND)
def test_no_answer_allows_a_foreign_page_to_read(content, target, method, headers, status):
    for origin in ("https://evil.example", "null", None):
        given = {**headers, **({"origin": origin} if origin else {})}
        if not origin:
            given.pop("origin", None)
        _, found = ask(content, target, method, **given)
        assert not [name for name in found if name.startswith("access-control-")]


@pytest.mark.parametrize(("target", "method", "headers", "status"), EVERY_KIND.values(), ids=EVERY_KIND)
def test_the_lab_may_read_every_answer_that_its_own_host_and_origin_gave(
    content, target, method, headers, status
):
    _, found = ask(content, target, method, **{**headers, "origin": LAB})
    allowed = found.get("access-control-allow-origin")
    assert allowed == (None if "host" in headers else LAB)
    assert found.get("vary") == (None if allowed is None else "Origin")
    assert "access-control-allow-credentials" not in found


def test_a_malformed_request_is_told_so_and_nothing_more(content):
    answer = respond(RequestError("The head is odd.", 431), content)
    assert (answer.status, body(answer)) == (431, b"The head is odd.\n")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 421])
def test_a_refusal_is_one_plain_sentence(content, status):
    for target, method, headers, wanted in EVERY_KIND.values():
        if wanted == status:
            answer, found = ask(content, target, method, **headers)
            text = body(answer).decode()
            assert found["content-type"].startswith("text/plain")
            assert found["content-length"] == str(len(text))
            assert text.endswith(".\n")
            assert text.count("\n") == 1


def test_a_method_that_is_not_allowed_is_told_which_are(content):
    assert ask(content, "/spec", "POST")[1]["allow"] == "GET, HEAD, OPTIONS"


class TestPreflight:
    def ask(self, content, **headers):
        return ask(content, "/events", "OPTIONS", access_control_request_method="GET", **headers)

    def test_the_lab_may_send_our_header_fields(self, content):
        answer, found = self.ask(content, origin=LAB)
        assert answer.status == 204
        assert found["access-control-allow-methods"] == "GET, HEAD"
        allowed = set(found["access-control-allow-headers"].split(", "))
        assert allowed == {"authorization", "x-pta-token", "last-event-id"}
        assert int(found["access-control-max-age"]) > 0

    def test_the_private_network_is_allowed_when_it_is_asked_for(self, content):
        name = "access-control-allow-private-network"
        assert self.ask(content, origin=LAB, access_control_request_private_network="true")[1][name] == "true"
        assert name not in self.ask(content, origin=LAB)[1]
        assert name not in self.ask(content, origin=LAB, access_control_request_private_network="1")[1]
        assert name not in self.ask(content, access_control_request_private_network="true")[1]

    def test_it_opens_no_tab_and_needs_no_place(self, content):
        assert self.ask(content, origin=LAB, full=True)[0].status == 204


SINCE = {
    "": [],
    "since=-1": [],
    "since=0": [0],
    "since=000": [0],
    "since=-0": [0],
    "since=10": [0, 10],
    "since=20": [0, 10, 20],
    "since=-99": [],
    "since=" + "9" * 5000: [0, 10, 20],
    "since=-" + "9" * 5000: [],
    "since=" + "0" * 5000 + "10": [0, 10],
}


@pytest.mark.parametrize(("query", "without"), SINCE.items(), ids=lambda value: str(value)[:12])
def test_health_gives_the_frames_after_a_step(content, query, without):
    for step in (0, 10, 20):
        content.history.append(encode_frame({"step": step, "t": 0.0, "loss": None, "blocks": []}))
    answer, found = ask(content, f"/health?token=t0ken&{query}")
    steps = [one["step"] for one in json.loads(body(answer))["frames"]]
    assert steps == [step for step in (0, 10, 20) if step not in without]
    assert found["content-type"] == "application/json"


@pytest.mark.parametrize(
    "query",
    [
        "since=",
        "since=1.5",
        "since=1e3",
        "since=NaN",
        "since=0x10",
        "since=%205",
        "since=5%20",
        "since=+5",
        "since=%2B5",
        "since=5_0",
        "since=%D9%A3",
        "since=%EF%BC%95",
        "since=%B2",
        "since=None",
        "since=[]",
        "since=--5",
        "since=-",
        "since=5;",
        "since=true",
        "since=5%00",
        "since=5%0A",
        "since=1&since=2",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_since_is_one_plain_integer(content, query, method):
    assert ask(content, f"/health?token=t0ken&{query}", method)[0].status == 400


def test_a_bad_since_is_looked_at_after_the_token(content):
    assert ask(content, "/health?since=x")[0].status == 401


def padded(step, size):
    return encode_frame({"step": step, "t": 0.0, "loss": None, "blocks": [], "x": "a" * size})


def test_health_is_pulled_in_pieces_of_many_small_frames(content):
    for step in range(2000):
        content.history.append(padded(step, 2000))
    pieces = list(ask(content, "/health?token=t0ken")[0].body)
    assert max(map(len, pieces)) <= 512 * 1024
    # Each piece waits for a thread that computes: 4 MB come in 8 texts, each with what leads it.
    assert len(pieces) <= 2 * 8 + 1
    assert [one["step"] for one in json.loads(b"".join(pieces))["frames"]] == list(range(2000))


def test_a_large_frame_of_health_is_a_piece_alone(content):
    for step in range(5):
        content.history.append(padded(step, 1_000_000 * (step % 2)))
    pieces = list(ask(content, "/health?token=t0ken")[0].body)
    assert [one["step"] for one in json.loads(b"".join(pieces))["frames"]] == list(range(5))
    assert max(map(len, pieces)) < 1_000_100


TOKEN_PLACES = {
    "query": ("/spec?token=t0ken", {}, 204),
    "query-escaped": ("/spec?token=t%30ken", {}, 204),
    "header": ("/spec", {"x_pta_token": "t0ken"}, 204),
    "bearer": ("/spec", {"authorization": "Bearer t0ken"}, 204),
    "bearer-case-and-spaces": ("/spec", {"authorization": "bEARER   t0ken"}, 204),
    "header-beside-basic": ("/spec", {"x_pta_token": "t0ken", "authorization": "Basic eDp5"}, 204),
    "path": ("/spec/t0ken", {}, 404),
    "cookie": ("/spec", {"cookie": "token=t0ken"}, 401),
    "basic": ("/spec", {"authorization": "Basic dDp0MGtlbg=="}, 401),
    "bare": ("/spec", {"authorization": "t0ken"}, 401),
    "other-name": ("/spec?auth=t0ken", {}, 401),
    "other-case": ("/spec?Token=t0ken", {}, 401),
    "semicolon": ("/spec?a;token=t0ken", {}, 401),
    "user": ("/spec", {"host": "t0ken@127.0.0.1:8000"}, 421),
    "bearer-twice": ("/spec", {"authorization": "Bearer Bearer t0ken"}, 403),
}


@pytest.mark.parametrize(("target", "headers", "status"), TOKEN_PLACES.values(), ids=TOKEN_PLACES)
def test_the_token_counts_in_three_places_and_no_other(content, target, headers, status):
    assert ask(content, target, **headers)[0].status == status


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../",
        "/%2e%2e/",
        "/assets",
        "/assets/",
        "/assets/../a",
        "/assets/%61.js",
        "/ASSETS/a.js",
        "//",
        "/spec/",
        "/Spec",
        "/spec%20",
        "/%73pec",
        "/index.html%00",
        "/static/a.js",
        "/assets/a.js/",
    ],
)
def test_a_path_is_compared_and_never_opened(content, path):
    assert ask(content, f"{path}?token=t0ken")[0].status == 404


def test_the_page_comes_with_a_strict_policy_and_no_token(content):
    answer, found = ask(content, "/", sec_fetch_site="cross-site")
    assert found["content-security-policy"] == SECURITY_POLICY
    assert found["content-type"] == "text/html; charset=utf-8"
    assert body(answer) == b"<p>page"


def test_hello_and_trace_are_served_as_they_were_given(content):
    content.log.add_spec((b"[", b'"m"', b"]"), b'"m"')
    content.log.add_trace((b'{"step":', b"1}"), 1)
    spec, found = ask(content, "/spec?token=t0ken")
    assert (body(spec), found["content-length"]) == (b'["m"]', "5")
    assert body(ask(content, "/trace?token=t0ken")[0]) == b'{"step":1}'


def test_a_head_request_gets_the_headers_alone(content):
    for target in ("/", "/health?token=t0ken", "/events?token=t0ken"):
        answer, found = ask(content, target, "HEAD")
        assert (answer.status, body(answer)) == (200, b"")
        assert found["content-type"] == ask(content, target)[1]["content-type"]


@pytest.mark.parametrize(
    ("target", "headers", "full", "status"),
    [
        ("/spec", {}, False, 401),
        ("/spec?token=x", {}, False, 403),
        ("/nope", {}, False, 404),
        ("/", {"host": "evil.example:8000"}, False, 421),
        ("/health?since=x&token=t0ken", {}, False, 400),
        ("/spec?token=t0ken", {}, True, 503),
    ],
)
def test_a_head_request_that_is_refused_gets_the_headers_alone(content, target, headers, full, status):
    answer, found = ask(content, target, "HEAD", full=full, **headers)
    assert (answer.status, body(answer)) == (status, b"")
    assert found["content-length"] == str(len(body(ask(content, target, full=full, **headers)[0])))


def test_when_all_places_are_taken_one_sentence_says_so(content):
    answer, found = ask(content, "/events?token=t0ken", full=True, origin=LAB)
    assert answer.status == 503
    assert body(answer).count(b"\n") == 1
    assert found["access-control-allow-origin"] == LAB
    assert ask(content, "/events?token=x", full=True)[0].status == 403


def test_health_waits_for_what_was_pushed_before_it(content):
    waiting = [False, True]
    asked = Content(**{**content.__dict__, "settled": lambda: lambda: waiting.pop(0)})
    answer, _ = ask(asked, "/health?token=t0ken")
    assert [answer.ready(), answer.ready()] == [False, True]
