"""Writes vectors/: one JSON file a case, from plain zlib, struct, base64 and json.

Run `python tests/conformance/make_vectors.py` after a change here. It imports none of the packages, so that
the files are a second opinion on what the formats say. A case is a row below: name, one reason to exist,
input, and what is expected.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2] / "vectors"
LAB = "https://lab.papertoanything.com/"

Case = tuple[str, str, str, dict[str, Any], str, "dict[str, Any] | None"]
"""Folder, name, reason, input, expected stage, result (only where the stage is `ok`)."""

TINY: dict[str, Any] = {
    "v": 1,
    "name": "Tiny",
    "blocks": [
        {"id": "i0", "kind": "input", "params": {"in": 4}, "inputs": []},
        {"id": "l0", "kind": "linear", "params": {"in": 4, "out": 2, "bias": True}, "inputs": ["i0"]},
    ],
    "output": "l0",
    "origin": {"kind": "torch", "source": "models:Tiny"},
}

EVERY_KIND: dict[str, Any] = {
    "v": 1,
    "name": "EveryKind",
    "blocks": [
        {"id": "g0", "kind": "group", "label": "layers.0 (Layer)", "params": {}, "inputs": []},
        {"id": "t0", "kind": "tokens", "params": {"vocab": 65}, "inputs": []},
        {"id": "e0", "kind": "embedding", "params": {"vocab": 65, "d": 32}, "inputs": ["t0"]},
        {"id": "p0", "kind": "posenc", "params": {"d": 32, "variant": "learned", "maxLen": 64},
         "inputs": ["e0"]},
        {"id": "n0", "kind": "norm", "params": {"d": 32, "variant": "layernorm", "bias": True},
         "inputs": ["p0"], "group": "g0"},
        {"id": "a0", "kind": "attention", "params": {"d": 32, "heads": 4, "causal": True, "bias": False},
         "inputs": ["n0"], "group": "g0"},
        {"id": "r0", "kind": "add", "params": {}, "inputs": ["p0", "a0"], "group": "g0"},
        {"id": "m0", "kind": "mlp", "params": {"d": 32, "variant": "gelu", "hidden": 128, "bias": True},
         "inputs": ["r0"], "group": "g0"},
        {"id": "f0", "kind": "activation", "params": {"variant": "silu"}, "inputs": ["m0"]},
        {"id": "l0", "kind": "linear", "params": {"in": 32, "out": 32, "bias": True}, "inputs": ["f0"]},
        {"id": "g1", "kind": "group", "label": "Conv1d", "params": {"type": "Conv1d"}, "inputs": ["l0"]},
        {"id": "u0", "kind": "unembed", "params": {"vocab": 65, "tiedTo": "e0"}, "inputs": ["g1"]},
        {"id": "s0", "kind": "softmax", "params": {}, "inputs": ["u0"]},
        {"id": "i0", "kind": "input", "params": {"in": 8}, "inputs": []},
        {"id": "x0", "kind": "loss", "params": {}, "inputs": ["s0", "i0"]},
    ],
    "output": "x0",
    "origin": {"kind": "lab"},
}


def compact(value: object) -> str:
    """JSON as the formats write it: no spaces, non-ASCII literal."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def changed(base: dict[str, Any], /, **top: Any) -> dict[str, Any]:
    """A copy of `base` with some of its own keys replaced; a value of `...` removes the key."""
    return {key: value for key, value in {**base, **top}.items() if value is not ...}


def tidy(spec: dict[str, Any]) -> dict[str, Any]:
    """A copy of `spec` with the keys of a spec and of a block in the order of the format."""

    def ordered(value: dict[str, Any], keys: str) -> dict[str, Any]:
        return {key: value[key] for key in keys.split() if key in value}

    copy = ordered(spec, "v name blocks output dataset train origin")
    copy["blocks"] = [ordered(block, "id kind label params inputs group at") for block in spec["blocks"]]
    return copy


def with_block(**fields: Any) -> dict[str, Any]:
    """TINY with keys of its linear block replaced or removed."""
    return changed(TINY, blocks=[TINY["blocks"][0], changed(TINY["blocks"][1], **fields)])


def f32(*values: float) -> str:
    """Standard base64 of little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def deflate(data: bytes, level: int = 6, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    """Raw DEFLATE, without a wrapper."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
    return packer.compress(data) + packer.flush()


def url64(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def payload(spec: object = TINY) -> str:
    """The payload of a link for `spec`."""
    return url64(deflate(compact(spec).encode()))


def spec_cases() -> Iterator[Case]:
    """Specs: what survives a round trip, and what is refused as JSON or as a spec."""

    def valid(name: str, reason: str, spec: object, text: str | None = None) -> Case:
        result = {"spec": spec, "canonical": compact(tidy(spec))}
        return "spec", name, reason, {"text": text or compact(spec)}, "ok", result

    def bad_json(name: str, reason: str, text: str | bytes) -> Case:
        given = {"text": text} if isinstance(text, str) else {"base64": base64.b64encode(text).decode()}
        return "spec", name, reason, given, "json", None

    def bad_spec(name: str, reason: str, spec: object) -> Case:
        return "spec", name, reason, {"text": compact(spec)}, "spec", None

    i0, l0 = TINY["blocks"]
    group = {"id": "g0", "kind": "group", "label": "body (Body)", "params": {}, "inputs": []}
    text = compact(TINY)

    yield valid("tiny", "The smallest useful spec: an input and a linear layer.", TINY)
    yield valid("every-kind", "Each of the fourteen kinds with the params it may have.", EVERY_KIND)
    yield valid("one-block", "A spec may be a single block that reads nothing.",
                {"v": 1, "name": "One", "blocks": [i0], "output": "i0", "origin": {"kind": "lab"}})
    yield valid("dataset-and-train", "dataset and train stand between output and origin.", changed(
        TINY, origin=..., dataset={"id": "shakespeare", "provenance": "real", "seed": 7,
                                   "options": {"split": "train", "lower": False}},
    ) | {"train": {"optimizer": "adamw", "lr": 0.125, "weightDecay": 0.5, "batch": 32, "steps": 200,
                   "seed": 1}, "origin": {"kind": "template"}})
    yield valid("whitespace", "Whitespace between tokens means nothing.", TINY, json.dumps(TINY, indent=3))
    yield valid("key-order", "Keys are written in the order of the format, whatever order they came in.", TINY,
                compact({key: TINY[key] for key in ("origin", "output", "blocks", "name", "v")}))
    yield valid("param-order", "Known params are written in the format's order.",
                with_block(params={"in": 4, "out": 2, "bias": False}),
                compact(with_block(params={"bias": False, "out": 2, "in": 4})))
    yield valid("unknown-params", "Params that a reader does not know survive, after the known, in their order.",
                with_block(params={"in": 4, "out": 2, "zeta": [1, {"deep": None}], "alpha": "x"}),
                compact(with_block(params={"zeta": [1, {"deep": None}], "out": 2, "alpha": "x", "in": 4})))
    yield valid("extension-params", "Extension params of version 1 readers' neighbours are kept as they are.",
                with_block(params={"in": 4, "out": 2, "shape": [8, 2], "dtype": "float32", "paramCount": 10,
                                   "flops": 128, "calls": 2, "known": "run"}))
    yield valid("unknown-kind", "An unknown kind is kept; `validate` reports it as a warning.",
                with_block(kind="mamba"))
    yield valid("label-group-at", "label, group and at, in that order around params and inputs.", changed(
        TINY, blocks=[group, i0, l0 | {"group": "g0", "at": {"x": 10.5, "y": -3.25}}]))
    yield valid("group-in-group", "A container may stand in a container.", changed(
        TINY, blocks=[group, group | {"id": "g1", "group": "g0"}, i0, l0 | {"group": "g1"}]))
    yield valid("leaf-group", "A group with inputs is a leaf outside the vocabulary.",
                with_block(id="g0", kind="group", label="Conv2d", params={"type": "Conv2d"}) | {"output": "g0"})
    yield valid("non-ascii", "Non-ASCII text is written literally.", changed(TINY, name="Modèle 模型 😀"))
    yield valid("escapes", "An escaped surrogate pair is one character, written literally.",
                changed(TINY, name="😀 é"), text.replace('"Tiny"', '"\\ud83d\\ude00 \\u00e9"'))
    yield valid("control-characters", "Control characters in a name stay escaped.",
                changed(TINY, name="a\nb\t\u0001"))
    yield valid("hostile-name", "A name is text: markup and terminal escapes in it are kept, not obeyed.",
                changed(TINY, name="<img src=x onerror=alert(1)>\u001b[31m\u202e"))
    yield valid("integral-float", "A float with an integral value equals the integer; compare values, not bytes.",
                changed(TINY, train={"optimizer": "sgd", "lr": 1.0, "batch": 1, "steps": 1, "seed": 0}))
    yield valid("largest-integer", "2**53 - 1 is the largest integer that every reader holds exactly.",
                changed(TINY, dataset={"id": "d", "provenance": "synthetic", "seed": 2**53 - 1}))
    yield valid("reader-before-input", "A block may stand before its input; `validate` warns.",
                changed(TINY, blocks=[l0, i0]))
    yield valid("shared-input", "Two blocks may read the same block.", changed(
        TINY, blocks=[i0, l0, l0 | {"id": "l1"}, {"id": "r0", "kind": "add", "params": {},
                                                  "inputs": ["l0", "l1"]}], output="r0"))

    yield bad_json("empty", "No text at all.", "")
    yield bad_json("not-json", "Text that is not JSON.", "model: Tiny")
    yield bad_json("cut-short", "JSON that ends in the middle.", text[:-20])
    yield bad_json("text-after-end", "A second value after the first.", text + "{}")
    yield bad_json("nan-token", "NaN is not JSON.", text.replace('"in":4', '"in":NaN'))
    yield bad_json("infinity-token", "-Infinity is not JSON.", text.replace('"in":4', '"in":-Infinity'))
    yield bad_json("float-overflow", "1e999 is a number that no reader can hold.",
                   text.replace('"in":4', '"in":1e999', 1))
    yield bad_json("integer-too-large", "2**53 is read differently by readers in other languages.",
                   text.replace('"in":4', '"in":9007199254740992', 1))
    yield bad_json("duplicate-key", "Readers disagree on which of two equal keys counts.",
                   text.replace('"v":1', '"v":1,"v":1'))
    yield bad_json("duplicate-key-escaped", "Two keys are equal after their escapes are read.",
                   text.replace('"v":1', '"v":1,"\\u0076":1'))
    yield bad_json("proto-key", "__proto__ changes an object's nature in JavaScript.",
                   text.replace('"bias":true', '"__proto__":{"x":1}'))
    yield bad_json("lone-surrogate", "Half a surrogate pair is no character.",
                   text.replace('"Tiny"', '"\\ud800"'))
    yield bad_json("raw-newline", "A raw control character inside a string.", text.replace("Tiny", "Ti\nny"))
    yield bad_json("byte-order-mark", "UTF-8 is written without a byte order mark.", b"\xef\xbb\xbf" + text.encode())
    yield bad_json("not-utf8", "A Latin-1 byte.", text.encode().replace(b"Tiny", b"T\xefny"))
    yield bad_json("overlong-utf8", "An overlong sequence is not UTF-8.", text.encode().replace(b"Tiny", b"T\xc0\xafny"))
    yield bad_json("surrogate-bytes", "A surrogate encoded as UTF-8 bytes.",
                   text.encode().replace(b"Tiny", b"T\xed\xa0\x80ny"))
    yield bad_json("too-deep", "Nesting of more than 64 levels.",
                   text.replace('"in":4', '"in":4,"deep":' + "[" * 70 + "]" * 70, 1))
    yield bad_json("single-quotes", "JSON strings take double quotes.", text.replace('"', "'"))
    yield bad_json("trailing-comma", "A comma before the closing bracket.", text.replace('"inputs":[]', '"inputs":[],'))
    yield bad_json("leading-zero", "A number does not begin with a zero.", text.replace('"in":4', '"in":04', 1))
    yield bad_json("comment", "JSON has no comments.", text.replace("{", "{/**/", 1))

    yield bad_spec("array", "A spec is an object.", [TINY])
    yield bad_spec("null", "A spec is an object, not null.", None)
    yield bad_spec("version-2", "Version 2 is not known.", changed(TINY, v=2))
    yield bad_spec("version-text", "v is a number.", changed(TINY, v="1"))
    yield bad_spec("version-true", "true is not the number 1.", changed(TINY, v=True))
    yield bad_spec("no-blocks", "blocks is required.", changed(TINY, blocks=...))
    yield bad_spec("blocks-object", "blocks is an array.", changed(TINY, blocks={"l0": l0}))
    yield bad_spec("no-output", "output is required.", changed(TINY, output=...))
    yield bad_spec("output-unknown", "output names a block of the spec.", changed(TINY, output="l9"))
    yield bad_spec("name-number", "name is text.", changed(TINY, name=7))
    yield bad_spec("block-text", "A block is an object.", changed(TINY, blocks=[i0, "l0"]))
    yield bad_spec("block-without-id", "A block has an id.", with_block(id=...))
    yield bad_spec("block-id-number", "An id is text.", with_block(id=0))
    yield bad_spec("block-without-kind", "A block has a kind.", with_block(kind=...))
    yield bad_spec("kind-number", "A kind is text.", with_block(kind=3))
    yield bad_spec("duplicate-id", "Two blocks with one id.", changed(TINY, blocks=[i0, l0, l0]))
    yield bad_spec("dangling-input", "An input names a block of the spec.", with_block(inputs=["i9"]))
    yield bad_spec("input-number", "inputs are ids.", with_block(inputs=[0]))
    yield bad_spec("inputs-text", "inputs is an array.", with_block(inputs="i0"))
    yield bad_spec("reads-itself", "A block that reads itself.", with_block(inputs=["l0"]))
    yield bad_spec("circle", "Two blocks that read each other.", changed(
        TINY, blocks=[l0 | {"inputs": ["l1"]}, l0 | {"id": "l1", "inputs": ["l0"]}]))
    yield bad_spec("group-unknown", "group names a block of the spec.", with_block(group="g9"))
    yield bad_spec("group-not-a-group", "group names a block of kind group.", with_block(group="i0"))
    yield bad_spec("group-circle", "A group inside itself.", changed(
        TINY, blocks=[group | {"group": "g1"}, group | {"id": "g1", "group": "g0"}, i0, l0]))
    yield bad_spec("params-array", "params is an object.", with_block(params=[]))
    yield bad_spec("heads-text", "heads is an integer.", with_block(kind="attention", params={"heads": "4"}))
    yield bad_spec("d-fraction", "d is an integer.", with_block(kind="norm", params={"d": 1.5}))
    yield bad_spec("vocab-true", "true is not an integer.", with_block(kind="embedding", params={"vocab": True}))
    yield bad_spec("bias-number", "bias is true or false.", with_block(params={"bias": 1}))
    yield bad_spec("at-without-y", "at has x and y.", with_block(at={"x": 1}))
    yield bad_spec("train-lr-text", "lr is a number.",
                   changed(TINY, train={"optimizer": "sgd", "lr": "0.1", "batch": 1, "steps": 1, "seed": 0}))


def link_cases() -> Iterator[Case]:
    """Links: forms that a decoder accepts, and the stage at which each bad one stops."""
    raw = compact(TINY).encode()
    good = payload()

    def valid(name: str, reason: str, text: str, spec: object = TINY) -> Case:
        return "link", name, reason, {"text": text}, "ok", {"spec": spec}

    def invalid(name: str, reason: str, stage: str, text: str) -> Case:
        return "link", name, reason, {"text": text}, stage, None

    def packed(name: str, reason: str, stage: str, data: bytes) -> Case:
        return invalid(name, reason, stage, f"{LAB}#s={url64(deflate(data))}")

    padded = next(text for text in map(payload, ({**TINY, "name": "Tiny" + "x" * n} for n in range(9)))
                  if len(text) % 4)
    yield valid("full-url", "The form that `to_url` makes.", f"{LAB}#s={good}")
    yield valid("fragment", "The fragment alone.", f"#s={good}")
    yield valid("pair", "The key and the payload, without #.", f"s={good}")
    yield valid("bare-payload", "The payload alone.", good)
    yield valid("padded", "Padding is allowed.", f"{LAB}#s={padded}{'=' * (-len(padded) % 4)}",
                json.loads(zlib.decompress(base64.urlsafe_b64decode(padded + "==="), -15)))
    yield valid("further-pairs", "Further pairs in the fragment are ignored.", f"{LAB}#s={good}&theme=dark&x=1")
    yield valid("other-lab", "The address before the fragment does not matter.", f"http://localhost:5180/#s={good}")
    yield valid("query-before-fragment", "A query before the fragment is not part of the payload.",
                f"{LAB}?utm=s=1#s={good}")
    yield valid("stored-blocks", "DEFLATE without compression decodes alike.", f"#s={url64(deflate(raw, level=0))}")
    yield valid("level-9", "Another level gives other bytes and the same spec.", f"#s={url64(deflate(raw, level=9))}")
    yield valid("fixed-huffman", "Fixed Huffman codes decode alike.",
                f"#s={url64(deflate(raw, strategy=zlib.Z_FIXED))}")
    yield valid("every-kind", "A spec with every kind.", f"{LAB}#s={payload(EVERY_KIND)}", EVERY_KIND)
    yield valid("non-ascii", "UTF-8 inside the stream.", f"{LAB}#s={payload(changed(TINY, name='模型 😀'))}",
                changed(TINY, name="模型 😀"))

    yield invalid("empty", "Nothing to decode.", "payload", "")
    yield invalid("no-fragment", "An address without a fragment.", "payload", LAB)
    yield invalid("empty-fragment", "An empty payload.", "payload", f"{LAB}#s=")
    yield invalid("other-key", "A fragment without s=.", "payload", f"{LAB}#t={good}")
    standard = base64.b64encode(b"\xfb\xef\xbe" + deflate(raw)).decode().rstrip("=")
    yield invalid("standard-alphabet-plus", "+ belongs to the other alphabet.", "base64", f"#s={standard}")
    yield invalid("standard-alphabet-slash", "/ belongs to the other alphabet.", "base64", f"#s=/{good[1:]}")
    yield invalid("foreign-character", "A character of no alphabet.", "base64", f"#s={good[:8]}!{good[9:]}")
    yield invalid("space-inside", "White space inside the payload.", "base64", f"#s={good[:8]} {good[8:]}")
    yield invalid("percent-escape", "A payload is never percent-encoded.", "base64", f"#s=%20{good[3:]}")
    yield invalid("padding-inside", "Padding anywhere but at the end.", "base64", f"#s={good[:8]}=={good[8:]}")
    yield invalid("impossible-length", "No bytes have a base64 length of 1 modulo 4.", "base64",
                  "#s=" + good[: len(good) // 4 * 4 - 3])
    yield invalid("non-ascii-letter", "A letter that merely looks like base64.", "base64", f"#s=Ａ{good[1:]}")
    yield invalid("truncated", "A stream that was cut.", "inflate", f"#s={url64(deflate(raw)[:-6])}")
    yield invalid("trailing-byte", "A byte after the stream's end.", "inflate", f"#s={url64(deflate(raw) + b'x')}")
    yield invalid("second-stream", "A second stream after the first.", "inflate", f"#s={url64(deflate(raw) * 2)}")
    yield invalid("zlib-wrapper", "zlib's header before the stream.", "inflate", f"#s={url64(zlib.compress(raw))}")
    yield invalid("gzip-wrapper", "gzip's header before the stream.", "inflate",
                  f"#s={url64(gzip.compress(raw, mtime=0))}")
    reserved = bytes([7]) + deflate(raw)[1:]
    yield invalid("reserved-block", "Block type 3 is reserved.", "inflate", f"#s={url64(reserved)}")
    yield invalid("not-compressed", "JSON that was never compressed.", "inflate", f"#s={url64(raw)}")
    yield packed("bomb", "4 MiB and one byte of JSON in 4 kB.", "size", raw + b" " * (4 * 2**20 + 1 - len(raw)))
    yield packed("inflated-not-utf8", "The inflated bytes are not UTF-8.", "json", raw.replace(b"Tiny", b"T\xefny"))
    yield packed("inflated-byte-order-mark", "A byte order mark.", "json", b"\xef\xbb\xbf" + raw)
    yield packed("inflated-not-json", "The inflated text is not JSON.", "json", b"hello")
    yield packed("inflated-empty", "An empty stream is no JSON.", "json", b"")
    yield packed("inflated-nan", "NaN is not JSON.", "json", raw.replace(b'"in":4', b'"in":NaN', 1))
    yield packed("inflated-duplicate-key", "Two equal keys.", "json", raw.replace(b'"v":1', b'"v":1,"v":2'))
    yield packed("inflated-array", "A link holds an object, not an array.", "object", compact([TINY]).encode())
    yield packed("inflated-dangling", "A spec with a dangling input.", "spec",
                 compact(with_block(inputs=["i9"])).encode())
    yield packed("inflated-version-2", "A spec of version 2.", "spec", compact(changed(TINY, v=2)).encode())


def tensor(key: str, shape: list[int], *values: float, **more: Any) -> dict[str, Any]:
    """A tensor on the wire."""
    return {"key": key, "shape": shape, "b64": f32(*values), "clipped": False, **more}


def tensor_cases() -> Iterator[Case]:
    """Tensors: decoding, encoding (base64 of float32 has one form), and how shapes are cut."""

    def decode(name: str, reason: str, wire: dict[str, Any], values: list[Any]) -> Case:
        return "tensor", f"decode-{name}", reason, {"op": "decode", "tensor": wire}, "ok", {"values": values}

    def encode(name: str, reason: str, values: Any, limit: int, wire: dict[str, Any]) -> Case:
        given = {"op": "encode", "key": wire["key"], "values": values, "maxElems": limit}
        return "tensor", f"encode-{name}", reason, given, "ok", {"tensor": wire}

    def clip(shape: list[int], limit: int, data_shape: list[int], reason: str) -> Case:
        name = "clip-" + ("x".join(map(str, shape)) or "scalar") + f"-in-{limit}"
        given = {"op": "clip", "shape": shape, "maxElems": limit}
        return "tensor", name, reason, given, "ok", {"dataShape": data_shape}

    def invalid(name: str, reason: str, wire: dict[str, Any]) -> Case:
        return "tensor", name, reason, {"op": "decode", "tensor": wire}, "tensor", None

    yield decode("vector", "Little-endian float32.", tensor("a0:out", [3], 1, -2.5, 0.1),
                 [1, -2.5, struct.unpack("<f", struct.pack("<f", 0.1))[0]])
    yield decode("matrix", "Row-major.", tensor("a0:out", [2, 2], 1, 2, 3, 4), [1, 2, 3, 4])
    yield decode("scalar", "An empty shape is one value.", tensor("x0:out", [], 7), [7])
    yield decode("empty", "A dimension of 0 is no value.", tensor("a0:out", [0, 3]), [])
    yield decode("negative-zero", "The sign of zero is kept.", tensor("a0:out", [1], -0.0), ["-0"])
    yield decode("non-finite", "Inside base64 every float32 may stand.",
                 tensor("a0:out", [3], float("nan"), float("inf"), float("-inf")), ["nan", "inf", "-inf"])
    yield decode("subnormal", "The smallest float32.", tensor("a0:out", [1], 2.0**-149), [2.0**-149])
    yield decode("clipped", "shape is the true shape, dataShape what was sent.",
                 tensor("a0:out", [4, 1000], 1, 2, clipped=True, dataShape=[1, 2]), [1, 2])
    yield decode("over-budget", "A tensor past a frame's budget carries its shape alone.",
                 {"key": "a0:out", "shape": [2, 3], "b64": "", "clipped": True, "dataShape": [0, 0]}, [])

    yield encode("vector", "A list of numbers.", [1, 2, 3], 65536, tensor("l0:out", [3], 1, 2, 3))
    yield encode("matrix", "A nested list.", [[1, 2], [3, 4]], 65536, tensor("l0:out", [2, 2], 1, 2, 3, 4))
    yield encode("scalar", "A number.", 5, 65536, tensor("l0:out", [], 5))
    yield encode("rounds-to-float32", "0.1 is rounded to the nearest float32.", [0.1], 65536,
                 tensor("l0:out", [1], 0.1))
    yield encode("exactly-full", "A tensor of exactly the limit is whole.", [1, 2, 3, 4], 4,
                 tensor("l0:out", [4], 1, 2, 3, 4))
    yield encode("cut-rows", "The leading axis is cut first.", [[1, 2], [3, 4], [5, 6]], 4,
                 tensor("l0:out", [3, 2], 1, 2, 3, 4, clipped=True, dataShape=[2, 2]))
    yield encode("cut-features", "Trailing axes are cut only when one row does not fit.", [[1, 2, 3], [4, 5, 6]], 2,
                 tensor("l0:out", [2, 3], 1, 2, clipped=True, dataShape=[1, 2]))

    yield clip([4, 8, 16], 64, [1, 4, 16], "The example of the formats document: features stay whole.")
    yield clip([4, 1000], 64, [1, 64], "The example of the formats document: one row that does not fit.")
    yield clip([], 64, [], "A scalar is never cut.")
    yield clip([10], 10, [10], "What fits is not cut.")
    yield clip([3, 0, 5], 4, [3, 0, 5], "A tensor without values fits anywhere.")
    yield clip([2, 3, 4, 5], 60, [1, 3, 4, 5], "Only the first axis is cut when the rest fits exactly.")

    yield invalid("too-few-bytes", "b64 holds fewer values than the shape says.", tensor("a0:out", [3], 1, 2))
    yield invalid("too-many-bytes", "b64 holds more values than the shape says.", tensor("a0:out", [1], 1, 2))
    yield invalid("half-a-value", "Bytes that are no multiple of four.",
                  {"key": "a0:out", "shape": [1], "b64": "AAAA", "clipped": False})
    yield invalid("url-alphabet", "- and _ belong to the other alphabet.",
                  {"key": "a0:out", "shape": [1], "b64": "-_-_-w==", "clipped": False})
    yield invalid("no-padding", "Padding is required.",
                  {"key": "a0:out", "shape": [1], "b64": "AAAAAA", "clipped": False})
    yield invalid("newline", "White space inside b64.",
                  {"key": "a0:out", "shape": [1], "b64": "AAAA\nAA==", "clipped": False})
    yield invalid("negative-dimension", "A dimension is not negative.", tensor("a0:out", [-1], 1))
    yield invalid("fractional-dimension", "A dimension is an integer.", tensor("a0:out", [1.5], 1))
    yield invalid("dimension-true", "true is not an integer.", tensor("a0:out", [True], 1))
    yield invalid("shape-number", "shape is an array.", tensor("a0:out", [1], 1) | {"shape": 1})
    yield invalid("no-key", "A tensor has a key.", {"shape": [1], "b64": f32(1), "clipped": False})
    yield invalid("key-number", "A key is text.", tensor("a0:out", [1], 1) | {"key": 5})
    yield invalid("b64-number", "b64 is text.", tensor("a0:out", [1], 1) | {"b64": 0})
    yield invalid("data-shape-too-large", "dataShape is a corner of shape.",
                  tensor("a0:out", [2], 1, 2, 3, clipped=True, dataShape=[3]))
    yield invalid("data-shape-rank", "dataShape has as many axes as shape.",
                  tensor("a0:out", [2, 2], 1, 2, clipped=True, dataShape=[2]))
    yield invalid("huge-shape", "A shape whose product no memory holds, with no bytes behind it.",
                  tensor("a0:out", [2**31, 2**31]))


STATS = {"mean": 0.5, "std": 0.25, "absMax": 2.5, "zeroFrac": 0.125, "nanCount": 0, "infCount": 0}
HEALTH: dict[str, Any] = {"step": 0, "t": 12.5, "loss": 4.25, "blocks": [{"id": "l0", "act": STATS}]}
TRACE: dict[str, Any] = {"step": 3, "loss": 0.5, "tensors": [tensor("l0:out", [1, 2], 1, 2)]}
FULL: dict[str, Any] = {
    "step": 20, "t": 1500.25, "loss": 1.5, "valLoss": 1.75, "lr": 0.0005, "gradNorm": 0.75,
    "timing": {"data": 1.5, "forward": 2.5, "backward": 4.5, "optim": 0.5}, "memory": 1048576,
    "blocks": [
        {"id": "a0", "act": {**STATS, "hist": [0] * 30 + [1, 2]}, "grad": STATS, "weightNorm": 5.5,
         "weightGradNorm": 0.5, "updateRatio": 0.001, "headEntropy": [0.5, 1.25],
         "headPattern": [{"head": 0, "size": 2, "b64": f32(1, 0, 0.5, 0.5)}]},
        {"id": "m0", "act": STATS, "hidden": {**STATS, "satFrac": 0.25}},
    ],
}


def frame_cases() -> Iterator[Case]:
    """Frames as they travel: health, trace and the bridge's hello."""

    def valid(kind: str, name: str, reason: str, frame: dict[str, Any]) -> Case:
        return "frame", f"{kind}-{name}", reason, {"kind": kind, "text": compact(frame)}, "ok", {"frame": frame}

    def invalid(kind: str, name: str, reason: str, frame: object, stage: str = "frame") -> Case:
        text = frame if isinstance(frame, str) else compact(frame)
        return "frame", f"{kind}-{name}", reason, {"kind": kind, "text": text}, stage, None

    block = HEALTH["blocks"][0]
    yield valid("health", "small", "The least that a frame holds, with one block.", HEALTH)
    yield valid("health", "full", "Every field of version 1.", FULL)
    yield valid("health", "no-blocks", "A frame may have no block.", changed(HEALTH, blocks=[]))
    yield valid("health", "loss-unknown", "A loss that is not known is null, never invented.",
                changed(HEALTH, loss=None))
    yield valid("health", "non-finite", "A number that is not finite is null and named.", changed(
        HEALTH, loss=None) | {"gradNorm": None, "nonFinite": {"loss": "nan", "gradNorm": "inf"}})
    yield valid("health", "attempt", "A frame of a later attempt says which.", HEALTH | {"attempt": 2})
    yield valid("health", "unknown-fields", "Fields that a reader does not know survive, in a frame and in a block.",
                changed(HEALTH, blocks=[block | {"deadFrac": 0.5, "notes": ["frozen"]}]) | {"cost": {"ms": 0.5}})
    yield valid("trace", "small", "One pass with one tensor.", TRACE)
    yield valid("trace", "no-loss", "The loss is optional.", changed(TRACE, loss=...))
    yield valid("trace", "uncaptured", "Blocks without a tensor are named.", TRACE | {"uncaptured": ["i0"]})
    yield valid("trace", "no-tensors", "A frame may have no tensor.", changed(TRACE, tensors=[]))
    yield valid("hello", "small", "What a bridge says first.",
                {"protocol": "pta-bridge", "v": 1, "producer": {"name": "vectors", "version": "1"}, "spec": TINY})

    yield invalid("health", "array", "A frame is an object.", [HEALTH])
    yield invalid("health", "no-step", "step is required.", changed(HEALTH, step=...))
    yield invalid("health", "step-text", "step is an integer.", changed(HEALTH, step="0"))
    yield invalid("health", "step-fraction", "step is an integer.", changed(HEALTH, step=0.5))
    yield invalid("health", "step-negative", "The first step is 0.", changed(HEALTH, step=-1))
    yield invalid("health", "step-true", "true is not an integer.", changed(HEALTH, step=True))
    yield invalid("health", "loss-text", "loss is a number or null.", changed(HEALTH, loss="nan"))
    yield invalid("health", "blocks-object", "blocks is an array.", changed(HEALTH, blocks={}))
    yield invalid("health", "block-without-id", "A block's health names the block.",
                  changed(HEALTH, blocks=[{"act": STATS}]))
    yield invalid("health", "stats-array", "Statistics are an object.", changed(HEALTH, blocks=[block | {"act": []}]))
    yield invalid("health", "stats-text", "A statistic is a number or null.",
                  changed(HEALTH, blocks=[block | {"act": STATS | {"mean": "0"}}]))
    yield invalid("health", "entropy-text", "Entropies are numbers.",
                  changed(HEALTH, blocks=[block | {"headEntropy": ["1"]}]))
    yield invalid("health", "pattern-length", "A pattern holds size times size values.", changed(
        HEALTH, blocks=[block | {"headPattern": [{"head": 0, "size": 2, "b64": f32(1, 2, 3)}]}]))
    yield invalid("health", "nan-token", "NaN is not JSON.", compact(HEALTH).replace("4.25", "NaN"), "json")
    yield invalid("trace", "tensors-object", "tensors is an array.", changed(TRACE, tensors={}))
    yield invalid("trace", "tensor-length", "A tensor holds as many values as its shape says.",
                  changed(TRACE, tensors=[tensor("l0:out", [5], 1)]))
    yield invalid("trace", "no-step", "step is required.", changed(TRACE, step=...))
    yield invalid("hello", "other-protocol", "A hello names its protocol.",
                  {"protocol": "pta-file", "v": 1, "producer": {"name": "x", "version": "1"}, "spec": TINY})
    yield invalid("hello", "version-2", "Version 2 is not known.",
                  {"protocol": "pta-bridge", "v": 2, "producer": {"name": "x", "version": "1"}, "spec": TINY})


PRODUCER = {"name": "vectors", "version": "1"}
PTA = {"protocol": "pta-file", "v": 1, "producer": PRODUCER, "spec": TINY}
RUN = {"protocol": "pta-run", "v": 1, "producer": PRODUCER, "spec": TINY}


def pta_cases() -> Iterator[Case]:
    """.pta files: one object."""

    def valid(name: str, reason: str, content: object, trace: object = None) -> Case:
        return "pta", name, reason, {"text": compact(content)}, "ok", {"spec": TINY, "trace": trace}

    def invalid(name: str, reason: str, stage: str, content: object) -> Case:
        text = content if isinstance(content, str) else compact(content)
        return "pta", name, reason, {"text": text}, stage, None

    yield valid("spec-only", "A file without a trace.", PTA)
    yield valid("with-trace", "A file with a forward pass.", PTA | {"trace": TRACE}, TRACE)
    yield valid("bare-spec", "A bare spec is taken by its content.", TINY)
    yield valid("no-producer", "The producer only informs.", changed(PTA, producer=...))
    yield valid("unknown-key", "A key that the reader does not know does no harm.", PTA | {"later": {"x": 1}})

    yield invalid("empty", "An empty file.", "json", "")
    yield invalid("cut-short", "A file cut in the middle.", "json", compact(PTA)[:-9])
    yield invalid("two-values", "Two objects in one file, the first a whole .pta.", "json", compact(PTA) * 2)
    yield invalid("array", "A file holds an object.", "file", [PTA])
    yield invalid("other-protocol", "A protocol that is not ours.", "file", PTA | {"protocol": "pta-zip"})
    yield invalid("version-2", "Version 2 is not known.", "file", PTA | {"v": 2})
    yield invalid("no-spec", "A file without a spec.", "file", changed(PTA, spec=...))
    yield invalid("bad-spec", "The spec inside is bad.", "spec", PTA | {"spec": with_block(inputs=["i9"])})
    yield invalid("bad-trace", "The trace inside is bad.", "frame",
                  PTA | {"trace": changed(TRACE, tensors=[tensor("l0:out", [5], 1)])})
    yield invalid("trace-array", "A trace is an object.", "frame", PTA | {"trace": []})


def run_cases() -> Iterator[Case]:
    """Run files: a header line, then one line an event."""

    def event(step: int, loss: float, **more: Any) -> str:
        return compact({"event": "health", "data": HEALTH | {"step": step, "loss": loss} | more}) + "\n"

    def valid(name: str, reason: str, text: str | bytes, *frames: tuple[int, float], warns: bool = False) -> Case:
        given = {"text": text} if isinstance(text, str) else {"base64": base64.b64encode(text).decode()}
        result = {"spec": TINY, "steps": [f[0] for f in frames], "losses": [f[1] for f in frames], "warns": warns}
        return "run", name, reason, given, "ok", result

    def invalid(name: str, reason: str, stage: str, text: str) -> Case:
        return "run", name, reason, {"text": text}, stage, None

    head = compact(RUN) + "\n"
    two = head + event(0, 4.0) + event(10, 3.5)
    yield valid("two-frames", "A header and two frames.", two, (0, 4.0), (10, 3.5))
    yield valid("header-only", "A run that ended before its first frame.", head)
    yield valid("no-last-newline", "A whole last line without its newline counts.", two[:-1], (0, 4.0), (10, 3.5))
    yield valid("torn-last-line", "A last line that a crash cut short is dropped with a warning.", two[:-25], (0, 4.0),
                warns=True)
    torn = (head + event(0, 4.0)).encode() + compact({"event": "note", "data": "é"}).encode()[:-3]
    yield valid("torn-in-a-character", "A cut inside a character is a torn line, not bad UTF-8.", torn, (0, 4.0),
                warns=True)
    yield valid("unknown-event", "Events that a reader does not know are skipped.",
                head + event(0, 4.0) + compact({"event": "later", "data": [1]}) + "\n" + event(10, 3.5),
                (0, 4.0), (10, 3.5))
    yield valid("later-attempt", "Frames of a later attempt supersede those of its steps and after.",
                two + event(10, 3.25, attempt=2) + event(20, 3.0, attempt=2), (0, 4.0), (10, 3.25), (20, 3.0))

    yield invalid("header-torn", "Nothing but half a header.", "file", head[:40])
    yield invalid("header-version-2", "Version 2 is not known.", "file",
                  compact(RUN | {"v": 2}) + "\n" + event(0, 4.0))
    yield invalid("no-header", "A file that begins with a frame.", "file", event(0, 4.0) + event(10, 3.5))
    yield invalid("header-without-spec", "A header without a spec.", "file",
                  compact(changed(RUN, spec=...)) + "\n" + event(0, 4.0))
    yield invalid("header-bad-spec", "A header whose spec is bad.", "spec",
                  compact(RUN | {"spec": with_block(inputs=["i9"])}) + "\n" + event(0, 4.0))
    kept = event(0, 4.0), event(10, 3.5)
    for name, reason, line in (
        ("damaged-line", "A damaged line between good ones is left out with a warning.", event(5, 1.0)[:-20] + "\n"),
        ("nan-line", "A line with NaN is left out with a warning.", event(5, 1.0).replace("1.0", "NaN")),
        ("bad-frame-line", "A frame without a step is left out with a warning.",
         compact({"event": "health", "data": changed(HEALTH, step=...)}) + "\n"),
    ):
        yield valid(name, reason, head + line.join(kept), (0, 4.0), (10, 3.5), warns=True)


HOST = ("Host", "127.0.0.1:{port}")
HOSTED = "https://lab.papertoanything.com"


def guard_cases() -> Iterator[Case]:
    """Requests to a bridge: {port} and {token} stand for its own; the stage is the refusal that comes first."""

    def case(name: str, reason: str, stage: str, status: int, path: str = "/spec?token={token}",
             headers: tuple[tuple[str, str], ...] = (HOST,), method: str = "GET", **more: Any) -> Case:
        given = {"method": method, "path": path, "headers": [list(h) for h in headers]}
        if lab := more.pop("lab", None):
            given["lab"] = lab
        return "guard", name, reason, given, stage, {"status": status, "cors": more.get("cors")}

    def with_origin(origin: str, *others: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        return (HOST, ("Origin", origin), *others)

    yield case("query-token", "The token in the query.", "ok", 200)
    yield case("header-token", "The token in its own header.", "ok", 200, "/spec",
               (HOST, ("X-PTA-Token", "{token}")))
    yield case("bearer-token", "The token as a bearer.", "ok", 200, "/spec",
               (HOST, ("Authorization", "Bearer {token}")))
    yield case("host-localhost", "localhost is a loopback name.", "ok", 200, headers=(("Host", "localhost:{port}"),))
    yield case("host-ipv6", "[::1] is a loopback address.", "ok", 200, headers=(("Host", "[::1]:{port}"),))
    yield case("host-tunnel", "Behind an SSH tunnel the port differs.", "ok", 200, headers=(("Host", "localhost:9999"),))
    yield case("own-origin", "The local page's own origin; no CORS header.", "ok", 200,
               headers=with_origin("http://127.0.0.1:{port}"))
    yield case("own-origin-tunnel", "The local page behind a tunnel: origin and Host agree.", "ok", 200,
               headers=(("Host", "localhost:9999"), ("Origin", "http://localhost:9999")))
    yield case("hosted-lab", "The hosted Lab reads, and is answered with its exact origin.", "ok", 200,
               headers=with_origin(HOSTED), cors=HOSTED)
    yield case("dev-server", "The Lab's dev server reads.", "ok", 200, headers=with_origin("http://localhost:5180"),
               cors="http://localhost:5180")
    yield case("chosen-lab", "The origin of a Lab that the user set reads.", "ok", 200,
               headers=with_origin("https://lab.example.org"), lab="https://lab.example.org/lab/",
               cors="https://lab.example.org")
    yield case("hosted-lab-cross-site", "With an allowed origin, Sec-Fetch-Site does not matter.", "ok", 200,
               headers=with_origin(HOSTED, ("Sec-Fetch-Site", "cross-site")), cors=HOSTED)
    yield case("same-origin-fetch", "A fetch of the page itself sends no Origin.", "ok", 200,
               headers=(HOST, ("Sec-Fetch-Site", "same-origin")))
    yield case("typed-address", "An address typed by the user.", "ok", 200, headers=(HOST, ("Sec-Fetch-Site", "none")))
    yield case("page", "The page needs no token.", "ok", 200, "/")
    yield case("page-from-a-link", "A link in a notebook is a cross-site navigation and must open.", "ok", 200, "/",
               (HOST, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")))
    yield case("preflight", "A preflight of the hosted Lab.", "ok", 204, "/spec", (
        HOST, ("Origin", HOSTED), ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "x-pta-token")), "OPTIONS", cors=HOSTED)
    yield case("health", "History with a start.", "ok", 200, "/health?since=-1&token={token}")

    hosts = {
        "other-name": "evil.example:{port}", "suffix": "127.0.0.1.evil.example:{port}",
        "prefix": "evil127.0.0.1:{port}", "no-port": "127.0.0.1", "name-no-port": "localhost",
        "other-address": "127.0.0.2:{port}", "any-address": "0.0.0.0:{port}", "integer-address": "2130706433:{port}",
        "trailing-dot": "localhost.:{port}", "user": "127.0.0.1@evil.example:{port}",
        "ipv6-mapped": "[::ffff:127.0.0.1]:{port}", "ipv6-bare": "::1:{port}", "port-suffix": "127.0.0.1:{port}.evil",
        "port-not-a-number": "127.0.0.1:http", "port-empty": "127.0.0.1:",
    }
    for name, host in hosts.items():
        yield case(f"host-{name}", "A Host that is no loopback name with a port.", "host", 421,
                   headers=(("Host", host),))

    origins = {
        "foreign": "https://evil.example", "null": "null", "suffix": f"{HOSTED}.evil.example",
        "prefix": "https://evil-lab.papertoanything.com", "scheme": "http://lab.papertoanything.com",
        "port": f"{HOSTED}:8443", "user": "https://lab.papertoanything.com@evil.example",
        "upper-case": "https://LAB.papertoanything.com", "trailing-slash": f"{HOSTED}/",
        "dev-other-port": "http://localhost:5181", "dev-address": "http://127.0.0.1:5180",
        "own-https": "https://127.0.0.1:{port}", "own-other-port": "http://127.0.0.1:1",
        "own-other-name": "http://localhost:{port}", "two": f"{HOSTED} https://evil.example", "empty": "",
    }
    for name, origin in origins.items():
        yield case(f"origin-{name}", "An Origin that is not exactly an allowed one.", "origin", 403,
                   headers=with_origin(origin))
    yield case("origin-lab-not-chosen", "A Lab that the user did not choose.", "origin", 403,
               headers=with_origin("https://lab.example.net"), lab="https://lab.example.org/")
    yield case("origin-preflight", "A preflight of a foreign origin.", "origin", 403, "/spec",
               (HOST, ("Origin", "https://evil.example"), ("Access-Control-Request-Method", "GET")), "OPTIONS")
    yield case("origin-of-page", "A foreign page may not read ours either.", "origin", 403, "/",
               with_origin("https://evil.example"))

    for site in ("cross-site", "same-site"):
        yield case(f"fetch-{site}", "A request for data without an Origin, sent by another site.", "fetch-site", 403,
                   headers=(HOST, ("Sec-Fetch-Site", site)))

    for method in ("POST", "PUT", "DELETE", "PATCH"):
        yield case(f"method-{method.lower()}", "The bridge only answers.", "method", 405, method=method)
    yield case("route-unknown", "A path that the bridge does not have.", "route", 404, "/nothing?token={token}")
    yield case("route-parent", "A path that climbs out of the page's folder.", "route", 404, "/../../etc/passwd")
    yield case("route-parent-escaped", "The same, percent-encoded.", "route", 404, "/%2e%2e/%2e%2e/etc/passwd")
    for path in ("/spec", "/trace", "/health", "/events"):
        yield case(f"token-missing{path.replace('/', '-')}", "Data needs the token.", "token", 401, path)
    yield case("token-wrong", "A wrong token.", "token", 403, "/spec?token=wrong")
    yield case("token-empty", "An empty token is a missing one.", "token", 401, "/spec?token=")
    yield case("token-prefix", "The token with something after it.", "token", 403, "/spec?token={token}x")
    yield case("token-other-scheme", "Authorization of another scheme is no token.", "token", 401, "/spec",
               (HOST, ("Authorization", "Basic {token}")))
    yield case("since-text", "since is an integer.", "query", 400, "/health?since=abc&token={token}")

    yield case("order-host-before-origin", "Host is looked at before Origin.", "host", 421,
               headers=(("Host", "evil.example:{port}"), ("Origin", "https://evil.example")))
    yield case("order-origin-before-method", "Origin is looked at before the method.", "origin", 403,
               headers=with_origin("https://evil.example"), method="POST")
    yield case("order-fetch-site-before-method", "Sec-Fetch-Site is looked at before the method.", "fetch-site", 403,
               headers=(HOST, ("Sec-Fetch-Site", "cross-site")), method="POST")
    yield case("order-method-before-route", "The method is looked at before the route.", "method", 405, "/nothing",
               method="POST")
    yield case("order-route-before-token", "The route is looked at before the token.", "route", 404, "/nothing")


FOLDERS = (spec_cases, link_cases, tensor_cases, frame_cases, pta_cases, run_cases, guard_cases)


def all_cases() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Path below vectors/ and content of every file."""
    for cases in FOLDERS:
        for folder, name, reason, given, expect, result in cases():
            content = {"reason": reason, "input": given, "expect": expect}
            if result is not None:
                content["result"] = result
            yield Path(folder, f"{'valid' if expect == 'ok' else 'invalid'}-{name}.json"), content


def main() -> None:
    """Replace the folders of vectors/ by freshly made ones."""
    for cases in FOLDERS:
        shutil.rmtree(ROOT / next(cases())[0], ignore_errors=True)
    for path, content in all_cases():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise SystemExit(f"two vectors named {path}")
        target.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
