"""The strict reader of request heads: a table of tricks, each refused for one reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_bridge.http import MAX_HEAD_BYTES, HeadReader, Request, RequestError, answer_head, parse_head

GOOD = b"GET /spec?token=a HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"


def read(data, size=None):
    """The request in `data`, which comes in packets of `size` bytes."""
    reader = HeadReader()
    size = size or len(data)
    for at in range(0, len(data), size):
        head = reader.feed(data[at : at + size])
        if head is not None:
            return parse_head(head)
    return None


ONE_HOST = b"Host: 127.0.0.1:1\r\n"
TRICKS = {
    "two-hosts": b"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1:1\r\n\r\n",
    "two-hosts-other-case": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nhOST: evil.example\r\n\r\n",
    "no-host": b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
    "two-origins": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Origin: null\r\nOrigin: http://127.0.0.1:1\r\n\r\n",
    "two-authorizations": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two-lengths": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "two-fetch-sites": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n\r\n",
    "folded-line": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: a\r\n b\r\n\r\n",
    "folded-first-line": b"GET / HTTP/1.1\r\n Host: 127.0.0.1:1\r\n\r\n",
    "folded-with-tab": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: a\r\n\tb\r\n\r\n",
    "space-before-colon": b"GET / HTTP/1.1\r\nHost : 127.0.0.1:1\r\n\r\n",
    "tab-before-colon": b"GET / HTTP/1.1\r\nHost\t: 127.0.0.1:1\r\n\r\n",
    "no-colon": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"nonsense\r\n\r\n",
    "empty-name": b"GET / HTTP/1.1\r\n" + ONE_HOST + b": a\r\n\r\n",
    "name-not-a-token": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X(a): b\r\n\r\n",
    "name-not-ascii": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X\xc3\xa9: b\r\n\r\n",
    "bare-lf": b"GET / HTTP/1.1\nHost: 127.0.0.1:1\n\n",
    "bare-lf-in-fields": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\nX: a\r\n\r\n",
    "bare-cr": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\rX: a\r\n\r\n",
    "cr-cr-lf": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\r\n\r\n",
    "nul-in-value": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\0\r\n\r\n",
    "nul-in-target": b"GET /\0 HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "escape-in-value": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: \x1b[2J\r\n\r\n",
    "delete-in-value": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: \x7f\r\n\r\n",
    "vertical-tab": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X:\x0ba\r\n\r\n",
    "empty-line-first": b"\r\nGET / HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version-9.9": b"GET / HTTP/9.9\r\n" + ONE_HOST + b"\r\n",
    "version-1": b"GET / HTTP/1\r\n" + ONE_HOST + b"\r\n",
    "version-1.1.1": b"GET / HTTP/1.1.1\r\n" + ONE_HOST + b"\r\n",
    "version-negative": b"GET / HTTP/-1.0\r\n" + ONE_HOST + b"\r\n",
    "version-1.2": b"GET / HTTP/1.2\r\n" + ONE_HOST + b"\r\n",
    "version-1.01": b"GET / HTTP/1.01\r\n" + ONE_HOST + b"\r\n",
    "version-lower-case": b"GET / http/1.1\r\n" + ONE_HOST + b"\r\n",
    "version-missing": b"GET /\r\n" + ONE_HOST + b"\r\n",
    "version-long": b"GET / HTTP/1." + b"9" * 5000 + b"\r\n\r\n",
    "two-spaces": b"GET  / HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "space-at-end": b"GET / HTTP/1.1 \r\n" + ONE_HOST + b"\r\n",
    "space-in-target": b"GET /a b HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "tab-for-space": b"GET\t/\tHTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "method-not-a-token": b"<b>X / HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "method-missing": b" / HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-not-ascii": b"GET /\xc3\xa9 HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-fragment": b"GET /spec#token=a HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-https": b"GET https://127.0.0.1:1/ HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-file": b"GET file:///etc/passwd HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-authority": b"CONNECT evil.example:443 HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-asterisk": b"OPTIONS * HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "target-relative": b"GET spec HTTP/1.1\r\n" + ONE_HOST + b"\r\n",
    "length-and-chunked": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunked-and-length": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "chunked-in-1.0": b"GET / HTTP/1.0\r\n" + ONE_HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    "coding-unknown": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Transfer-Encoding: xchunked\r\n\r\n",
    "coding-twice": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "coding-two-fields": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
    "coding-quoted": b"GET / HTTP/1.1\r\n" + ONE_HOST + b'Transfer-Encoding: "chunked"\r\n\r\n',
    "coding-empty": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Transfer-Encoding:\r\n\r\n",
    "length-signed": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length: +3\r\n\r\n",
    "length-negative": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length: -3\r\n\r\n",
    "length-hex": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length: 0x3\r\n\r\n",
    "length-list": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length: 3, 3\r\n\r\n",
    "length-empty": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"Content-Length:\r\n\r\n",
    "length-arabic": b"GET / HTTP/1.1\r\n" + ONE_HOST + "Content-Length: ٣".encode() + b"\r\n\r\n",
    "length-of-5000-digits": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"Content-Length: "
    + b"9" * 5000
    + b"\r\n\r\n",
}


@pytest.mark.parametrize("data", TRICKS.values(), ids=TRICKS)
@pytest.mark.parametrize("size", [None, 1, 7])
def test_a_trick_is_malformed_however_it_is_cut_into_packets(data, size):
    with pytest.raises(RequestError) as caught:
        read(data, size)
    assert caught.value.status == 400


LARGE = {
    "target-of-70-kb": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "value-of-40-kb": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: " + b"a" * 40_000 + b"\r\n\r\n",
    "no-line-end-at-all": b"a" * (MAX_HEAD_BYTES + 1),
    "101-lines": b"GET / HTTP/1.1\r\n" + ONE_HOST + b"".join(b"X-%d: a\r\n" % n for n in range(99)) + b"\r\n",
    "10,000-lines": b"GET / HTTP/1.1\r\n"
    + ONE_HOST
    + b"".join(b"X-%d: a\r\n" % n for n in range(10_000))
    + b"\r\n",
}


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("size", [None, 1000])
def test_a_head_over_its_limits_is_too_large(data, size):
    with pytest.raises(RequestError) as caught:
        read(data, size)
    assert caught.value.status == 431


def test_a_head_of_exactly_100_lines_is_read():
    fields = b"".join(b"X-%d: a\r\n" % n for n in range(98))
    assert read(b"GET / HTTP/1.1\r\n" + ONE_HOST + fields + b"\r\n") is not None


def test_a_head_of_exactly_32_kib_is_read():
    start = b"GET / HTTP/1.1\r\n" + ONE_HOST + b"X: "
    data = start + b"a" * (MAX_HEAD_BYTES - len(start) - 4) + b"\r\n\r\n"
    assert len(data) == MAX_HEAD_BYTES
    assert read(data) is not None
    with pytest.raises(RequestError):
        read(data.replace(b"X: ", b"X: a"))


PLAIN = {
    "plain": (GOOD, Request("GET", "/spec", (("token", "a"),), {"host": "127.0.0.1:1"})),
    "1.0-without-host": (b"GET / HTTP/1.0\r\n", Request("GET", "/", (), {})),
    "values-are-stripped": (
        b"GET / HTTP/1.1\r\nHost:\t 127.0.0.1:1 \t\r\nX:\r\n",
        Request("GET", "/", (), {"host": "127.0.0.1:1", "x": ""}),
    ),
    "other-fields-are-joined": (
        b"GET / HTTP/1.1\r\nHost: a:1\r\nAccept: x\r\nACCEPT: y\r\n",
        Request("GET", "/", (), {"host": "a:1", "accept": "x, y"}),
    ),
    "value-beyond-ascii": (
        b"GET / HTTP/1.1\r\nHost: a:1\r\nLast-Event-ID: \xff\r\n",
        Request("GET", "/", (), {"host": "a:1", "last-event-id": "\xff"}),
    ),
    "absolute": (
        b"GET http://127.0.0.1:1/spec?a=b HTTP/1.1\r\nHost: a:1\r\n",
        Request("GET", "/spec", (("a", "b"),), {"host": "a:1"}, "127.0.0.1:1"),
    ),
    "absolute-without-path": (
        b"GET HTTP://evil.example?a=b HTTP/1.1\r\nHost: a:1\r\n",
        Request("GET", "/", (("a", "b"),), {"host": "a:1"}, "evil.example"),
    ),
    "path-stays-as-it-is": (
        b"GET //a/%2e%2e/..;/%00 HTTP/1.1\r\nHost: a:1\r\n",
        Request("GET", "//a/%2e%2e/..;/%00", (), {"host": "a:1"}),
    ),
    "query-is-decoded": (
        b"GET /?a=%41+b&&=&c&d=%zz&e=%ff&a=2 HTTP/1.1\r\nHost: a:1\r\n",
        Request(
            "GET",
            "/",
            (("a", "A b"), ("", ""), ("c", ""), ("d", "%zz"), ("e", "\ufffd"), ("a", "2")),
            {"host": "a:1"},
        ),
    ),
    "lower-case-method": (b"get / HTTP/1.1\r\nHost: a:1\r\n", Request("get", "/", (), {"host": "a:1"})),
    "chunked-alone": (
        b"POST / HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: Chunked\r\n",
        Request("POST", "/", (), {"host": "a:1", "transfer-encoding": "Chunked"}),
    ),
}


@pytest.mark.parametrize(("head", "request_"), PLAIN.values(), ids=PLAIN)
def test_a_plain_head_is_taken_apart(head, request_):
    assert read(head + b"\r\n") == request_
    assert read(head + b"\r\n", 1) == request_


def test_what_follows_a_head_is_never_part_of_it():
    assert read(GOOD + b"\r\nGET /second HTTP/1.1\r\nHost: evil\n\0").path == "/spec"


def test_the_values_of_a_parameter_keep_their_order():
    request = parse_head(b"GET /?a=1&b=2&a=3 HTTP/1.1\r\nHost: a:1\r\n")
    assert request.values("a") == ["1", "3"]
    assert request.values("c") == []


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_are_a_request_a_refusal_or_unfinished(data, size):
    """Nothing but a RequestError comes out of the reader, and packets do not matter."""
    outcomes = []
    for step in (len(data) or 1, size):
        try:
            outcomes.append(read(data, step) if data else None)
        except RequestError as error:
            outcomes.append(error.status)
    assert outcomes[0] == outcomes[1]


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b":", b" ", b"\t", b"Host", b"a:1", b"GET / HTTP/1.1"]))
)
def test_a_head_that_is_accepted_has_exactly_the_fields_that_a_plain_split_finds(parts):
    """An independent reading, with str.split, of whatever the strict one lets pass."""
    data = b"".join(parts) + b"\r\n\r\n"
    try:
        request = read(data)
    except RequestError:
        return
    lines = data.split(b"\r\n\r\n")[0].decode().split("\r\n")
    assert lines[0] == "GET / HTTP/1.1"
    names = [line.split(":", 1)[0].lower() for line in lines[1:]]
    assert list(request.headers) == list(dict.fromkeys(names))


def test_an_answers_head_ends_with_one_empty_line():
    head = answer_head(421, [("A", "b"), ("C", "d")])
    assert head == b"HTTP/1.1 421 Misdirected Request\r\nA: b\r\nC: d\r\n\r\n"
