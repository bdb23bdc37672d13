"""Links: any DEFLATE reads, what two decoders could read differently is refused."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import FormatError, JsonError, LinkError, SpecError
from ptoa_core.link import (
    decode,
    encode,
    extract_payload,
    from_url,
    payload_to_dict,
    payload_to_spec,
    spec_to_payload,
    to_url,
)
from ptoa_core.protocol import MAX_INFLATED_BYTES, MAX_LINK_CHARS
from ptoa_core.spec import Block, BlockParams, ModelSpec

SPEC = {
    "v": 1,
    "name": "tiny µ ü 模型",
    "blocks": [
        {"id": "t0", "kind": "tokens", "params": {"vocab": 4}, "inputs": []},
        {"id": "l0", "kind": "linear", "label": "fc", "params": {"in": 4, "out": 4}, "inputs": ["t0"]},
    ],
    "output": "l0",
    "origin": {"kind": "lab"},
}


def packed(raw, level=9, wbits=-15, strategy=zlib.Z_DEFAULT_STRATEGY):
    packer = zlib.compressobj(level, zlib.DEFLATED, wbits, 8, strategy)
    return packer.compress(raw) + packer.flush()


def payload(raw, **how):
    return base64.urlsafe_b64encode(packed(raw, **how)).decode().rstrip("=")


TEXT = json.dumps(SPEC).encode()


def test_own_links_read_back():
    assert from_url(to_url(SPEC)).to_dict() == SPEC
    assert to_url(ModelSpec.from_dict(SPEC)) == to_url(SPEC)
    assert encode(SPEC) == spec_to_payload(SPEC) == to_url(SPEC).partition("#s=")[2]
    assert decode(encode(SPEC)) == payload_to_spec(encode(SPEC)) == ModelSpec.from_dict(SPEC)


def test_payload_is_base64url_of_raw_deflate_of_canonical_json():
    raw = zlib.decompress(base64.urlsafe_b64decode(encode(SPEC) + "=="), -15)
    assert raw.decode() == json.dumps(SPEC, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED])
def test_any_deflate_reads(level, strategy):
    assert payload_to_dict(payload(TEXT, level=level, strategy=strategy)) == SPEC


P = payload(TEXT)
FORMS = {
    "address": f"https://lab.papertoanything.com/#s={P}",
    "another-lab": f"http://localhost:5180/x?y=1#s={P}",
    "fragment": f"#s={P}",
    "pair": f"s={P}",
    "bare": P,
    "padding": P + "=" * (-len(P) % 4),
    "more-pairs": f"#s={P}&view=side&x",
    "later-pair": f"#view=side&s={P}",
    "white-space-around": f"  #s={P}\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_of_a_link_reads(text):
    assert from_url(text).to_dict() == SPEC


NO_PAYLOAD = [
    "",
    "#",
    "#s=",
    "s=",
    "=",
    "====",
    "&",
    "#a=1&b=2",
    "https://lab.papertoanything.com/",
    "https://x/#",
    "https://x/#t=1",
    "https://x/?s=abc",
    "a b",
    "s",
    None,
    5,
    b"#s=abc",
    "#" * 1000,
]


@pytest.mark.parametrize("text", NO_PAYLOAD, ids=repr)
def test_text_without_a_payload_is_refused(text):
    with pytest.raises(FormatError):
        from_url(text)


DAMAGED = {
    "foreign": P[:20] + "!" + P[20:],
    "star": P[:20] + "****" + P[20:],
    "zero-width": P[:20] + "\u200b" + P[20:],
    "nul": P[:20] + "\0\0\0\0" + P[20:],
    "dot": P[:20] + "." + P[20:],
    "full-width": P[:20] + "\uff21" + P[20:],
    "inner-padding": P[:20] + "==" + P[20:],
    "inner-space": P[:20] + " " + P[20:],
    "inner-newline": P[:20] + "\n" + P[20:],
    "plus": "+" + P[1:],
    "slash": "/" + P[1:],
    "percent": "%" + P[1:],
    "too-much-padding": P + "=" * 9,
    "one-character": "A",
    "one-over": P + "A" * (1 + (-len(P) % 4)),
    "cut": P[: len(P) // 2],
    "half": P[: len(P) // 2 // 4 * 4],
    "empty-deflate": "AA",
    "zlib-wrapper": payload(TEXT, wbits=15),
    "gzip-wrapper": payload(TEXT, wbits=31),
    "trailing": base64.urlsafe_b64encode(packed(TEXT) + b"HIDDEN").decode().rstrip("="),
    "two-streams": base64.urlsafe_b64encode(packed(TEXT) * 2).decode().rstrip("="),
    "no-end": base64.urlsafe_b64encode(packed(TEXT)[:-1]).decode().rstrip("="),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_payload_is_refused(text):
    with pytest.raises(LinkError):
        from_url("#s=" + text)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"hello", JsonError),
        (b"", JsonError),
        (b'{"v":1,"name":"\xff"}', JsonError),
        (TEXT.replace(b"4", b"NaN"), JsonError),
        (b"\xef\xbb\xbf" + TEXT, JsonError),
        (json.dumps(SPEC).encode("utf-16"), JsonError),
        (TEXT + b"x", JsonError),
        (b"[" * 100_000, JsonError),
        (b"[]", LinkError),
        (b"5", LinkError),
        (b"null", LinkError),
        (b'"x"', LinkError),
        (b"{}", SpecError),
        (b'{"v":2,"name":"x","blocks":[],"output":"x"}', SpecError),
        (json.dumps({**SPEC, "output": "ghost"}).encode(), SpecError),
    ],
    ids=range(15),
)
def test_payload_that_holds_no_spec_is_refused(raw, error):
    with pytest.raises(error):
        from_url(payload(raw))


def test_dangling_id_is_named():
    spec = json.loads(TEXT)
    spec["blocks"][1]["inputs"] = ["ghost"]
    with pytest.raises(SpecError, match="'ghost'"):
        from_url(payload(json.dumps(spec).encode()))


def test_inflating_stops_at_4_mib():
    over = payload(b'"' + b"x" * (MAX_INFLATED_BYTES - 1) + b'"')
    with pytest.raises(LinkError, match="over 4194304 bytes once inflated"):
        payload_to_dict(over)
    with pytest.raises(LinkError, match="holds 'xxx"):
        payload_to_dict(payload(b'"' + b"x" * (MAX_INFLATED_BYTES - 2) + b'"'))


def test_bomb_is_never_inflated():
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    text = base64.urlsafe_b64encode(bomb).decode()
    tracemalloc.start()
    try:
        with pytest.raises(LinkError, match="once inflated"):
            from_url(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_INFLATED_BYTES


def test_payload_of_endless_empty_blocks_is_refused_by_its_length():
    with pytest.raises(LinkError, match="characters, over"):
        from_url("#s=" + "AAAA" * 2_000_000)


def test_small_payload_of_many_values_is_refused_before_parsing():
    raw = b'{"blocks":[' + b"[]," * 1_200_000 + b"[]]}"
    text = payload(raw)
    assert len(text) < 10_000
    with pytest.raises(JsonError, match="more values than the 1000000"):
        payload_to_dict(text)


def test_bit_flips_give_our_errors_or_a_spec():
    flips = random.Random(11)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    outcomes = set()
    for _ in range(2_000):
        chars = list(P)
        for _ in range(flips.choice((1, 1, 2, 5))):
            chars[flips.randrange(len(chars))] = flips.choice(alphabet)
        try:
            from_url("#s=" + "".join(chars))
            outcomes.add("spec")
        except FormatError:
            outcomes.add("refused")
    assert outcomes == {"spec", "refused"}


@given(st.binary(max_size=200))
def test_any_bytes_as_a_stream_give_our_errors(raw):
    with pytest.raises(FormatError):
        from_url("#s=" + base64.urlsafe_b64encode(raw).decode())


@given(st.text(max_size=40))
def test_any_text_gives_our_errors(text):
    with pytest.raises(FormatError):
        from_url(text)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(NAMES, st.lists(st.tuples(NAMES, st.integers(0, 2**53 - 1), st.booleans()), max_size=6))
def test_any_spec_survives_link_and_back(name, rows):
    blocks = [Block("t0", "tokens")]
    for number, (label, size, causal) in enumerate(rows):
        params = BlockParams(d=size, causal=causal, extra={"type": label})
        blocks.append(Block(f"a{number}", "attention", params, [blocks[-1].id], label))
    spec = ModelSpec(name, blocks, blocks[-1].id)
    assert from_url(to_url(spec)) == spec
    assert from_url(spec_to_payload(spec)) == spec


def wide(count, **extra):
    """A chain whose params do not compress."""
    noise = random.Random(5)
    blocks = [
        Block(
            f"r{i}",
            "add",
            BlockParams(
                extra={
                    "type": f"{noise.getrandbits(60):x}",
                    **{k: noise.getrandbits(v) for k, v in extra.items()},
                }
            ),
            [f"r{i - 1}"] if i else [],
        )
        for i in range(count)
    ]
    return ModelSpec("wide", blocks, blocks[-1].id)


def test_informing_params_go_into_a_link_while_it_stays_short():
    short = wide(10, flops=50, paramCount=50)
    assert from_url(to_url(short)) == short
    long = wide(1_200, flops=50, paramCount=50)
    url = to_url(long)
    assert len(url) <= MAX_LINK_CHARS
    back = from_url(url)
    assert {key for block in back.blocks for key in block.params.extra} == {"type"}
    assert [block.params.extra["type"] for block in back.blocks] == [
        block.params.extra["type"] for block in long.blocks
    ]
    assert long.blocks[0].params.extra.keys() == {"type", "flops", "paramCount"}


def test_longer_base_leaves_less_room():
    base = "https://a.example/" + "x" * 31_900
    spec = wide(10, flops=50)
    assert {key for block in from_url(to_url(spec, base)).blocks for key in block.params.extra} == {"type"}


def test_spec_too_large_for_a_link_names_the_file():
    spec = wide(2, flops=10)
    spec.name = "x" * (MAX_INFLATED_BYTES + 1)
    with pytest.raises(LinkError, match=r"save it to a \.pta file instead"):
        to_url(spec)


def test_encoder_refuses_what_a_decoder_refuses():
    with pytest.raises(SpecError, match="ghost"):
        to_url({**SPEC, "output": "ghost"})
    with pytest.raises(FormatError):
        to_url({**SPEC, "name": "\ud800"})
    with pytest.raises(FormatError):
        to_url({**SPEC, "x": float("nan")})
    with pytest.raises(LinkError, match=r"more values .* save it to a \.pta file instead"):
        to_url({**SPEC, "x": [0] * 1_000_001})
    with pytest.raises(FormatError):
        to_url(None)


def test_extract_takes_the_first_payload():
    assert extract_payload("#s=abc&s=def") == "abc"
