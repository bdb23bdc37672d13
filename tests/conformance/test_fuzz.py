"""Whatever is written reads back equal, and whatever is damaged is refused with one of our own errors.

The round trips run with every test run, on a few hundred examples; `nox -s fuzz` makes 100,000 of each, and
damages a million bytes.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import string
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core import errors, files, frames, jsontext, link, runs, spec, tensors
from ptoa_core.validate import validate

VECTORS = Path(__file__).resolve().parents[2] / "vectors"

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
integers = st.integers(-(2**53) + 1, 2**53 - 1)
counts = st.integers(1, 2**31)
finite = st.floats(allow_nan=False, allow_infinity=False)
keys = text.filter(lambda key: key != "__proto__")
plain = st.recursive(
    st.none() | st.booleans() | integers | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
known = st.fixed_dictionaries(
    {},
    optional={
        "vocab": counts,
        "d": counts,
        "variant": st.sampled_from(["layernorm", "gelu", "learned"]),
        "maxLen": counts,
        "heads": counts,
        "causal": st.booleans(),
        "hidden": counts,
        "in": counts,
        "out": counts,
        "bias": st.booleans(),
    },
)
own = st.dictionaries(
    st.text(string.ascii_letters, min_size=1, max_size=8).map("x".__add__), plain, max_size=2
)


@st.composite
def specs(draw):
    """A spec whose blocks read blocks before them."""
    blocks = []
    for number in range(draw(st.integers(1, 6))):
        before = [block["id"] for block in blocks]
        inputs = draw(st.lists(st.sampled_from(before), max_size=3)) if before else []
        params = {**draw(known), **draw(own)}
        kind = draw(st.sampled_from(["linear", "norm", "attention", "mlp", "add", "softmax"]))
        block = {"id": f"b{number}", "kind": kind, "params": params, "inputs": inputs}
        blocks.append(block | draw(st.fixed_dictionaries({}, optional={"label": text})))
    return {
        "v": 1,
        "name": draw(text),
        "blocks": blocks,
        "output": blocks[-1]["id"],
        "origin": {"kind": "lab"},
    }


statistics = st.fixed_dictionaries(
    dict.fromkeys(("mean", "std", "absMax", "zeroFrac"), finite)
    | {key: st.integers(0, 2**40) for key in ("nanCount", "infCount")},
    optional={"hist": st.lists(st.integers(0, 2**40), min_size=32, max_size=32)},
)
health = st.fixed_dictionaries(
    {
        "step": st.integers(0, 2**40),
        "t": finite,
        "loss": st.none() | finite,
        "blocks": st.lists(
            st.fixed_dictionaries(
                {"id": text},
                optional={
                    "act": statistics,
                    "grad": statistics,
                    "updateRatio": finite,
                    "headEntropy": st.lists(finite),
                },
            ),
            max_size=3,
        ),
    },
    optional={"valLoss": finite, "lr": finite, "gradNorm": finite, "memory": st.integers(0, 2**40)},
)


@given(specs())
def test_every_spec_comes_back_from_a_link(content):
    model = spec.ModelSpec.from_dict(content)
    assert link.from_url(link.to_url(model)).to_dict() == content


@given(specs())
def test_every_spec_comes_back_from_a_file(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "round-trip.pta"
    model = spec.ModelSpec.from_dict(content)
    files.save(model, str(path))
    assert files.load(str(path))[0].to_dict() == content


@given(health)
def test_every_frame_comes_back_from_its_text(content):
    frame = frames.HealthFrame.from_dict(content)
    assert frames.HealthFrame.from_dict(jsontext.loads(jsontext.dumps(frame))).to_dict() == content


@given(plain)
def test_every_value_is_written_as_json_that_anyone_reads(value):
    assert json.loads(jsontext.dumps(value)) == value


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
def test_every_tensor_comes_back(values):
    tensor = tensors.encode_tensor("x0:out", values)
    assert frames.FrameTensor.from_dict(tensor.to_dict()).values() == values


@given(plain)
def test_validate_never_raises(value):
    assert validate(value)


@given(st.text() | st.text(string.ascii_letters + string.digits + "-_=&#", max_size=60))
def test_decoding_any_text_gives_a_spec_or_one_of_our_errors(content):
    with contextlib.suppress(errors.FormatError):
        link.from_url(content)


def damaged(rng, data):
    """A copy of some bytes with a few of them changed, cut out, doubled or put elsewhere, and how many."""
    out = bytearray(data)
    count = rng.randint(1, 8)
    for _ in range(count):
        at = rng.randrange(len(out) + 1)
        action = rng.randrange(4)
        if action == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif action == 1:
            del out[at : at + rng.randint(1, 4)]
        elif action == 2:
            out[at:at] = out[at : at + rng.randint(1, 32)]
        else:
            out[at:at] = rng.choice([b'"', b"{", b"[", b"]", b"}", b",", b"\\u", b"e9", b"\xff", b"0" * 20])
    return bytes(out), count


def read_link(data, path):
    link.from_url(data.decode("latin-1"))


def read_file(data, path):
    path.write_bytes(data)
    files.load(str(path))


def read_run(data, path):
    path.write_bytes(data)
    list(runs.RunFile.read(str(path))[1])


def read_frame(data, path):
    frames.HealthFrame.from_dict(jsontext.loads(data))


def read_trace(data, path):
    for tensor in frames.TraceFrame.from_dict(jsontext.loads(data)).tensors:
        tensor.values()


SOURCES = {
    "link": ("link/valid-*.json", read_link),
    "pta": ("pta/valid-*.json", read_file),
    "run": ("run/valid-*.json", read_run),
    "health": ("frame/valid-health-*.json", read_frame),
    "trace": ("frame/valid-trace-*.json", read_trace),
}


def valid_inputs(pattern):
    inputs = [json.loads(path.read_text(encoding="utf-8"))["input"] for path in sorted(VECTORS.glob(pattern))]
    return [given["text"].encode() for given in inputs if "text" in given]


@contextlib.contextmanager
def at_most(seconds):
    """Interrupt what takes longer, where the system can."""

    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_memory():
    """The most memory that this process has held, in MiB."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def damage(source, bytes_to_change, path):
    pattern, read = SOURCES[source]
    inputs = valid_inputs(pattern)
    rng = random.Random(source)
    before, changed = peak_memory(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.PtoaWarning)
        while changed < bytes_to_change:
            data, count = damaged(rng, rng.choice(inputs))
            changed += count
            with at_most(5), contextlib.suppress(errors.FormatError):
                read(data, path)
    assert peak_memory() - before < 200


@pytest.mark.parametrize("source", SOURCES)
def test_damage_gives_only_our_own_errors(source, tmp_path):
    damage(source, 2_000, tmp_path / "damaged.pta")


@pytest.mark.fuzz
@pytest.mark.parametrize("source", SOURCES)
def test_a_million_damaged_bytes_give_only_our_own_errors(source, tmp_path):
    damage(source, 1_000_000 // len(SOURCES), tmp_path / "damaged.pta")
