"""Tensors on the wire, against values computed with ``struct`` and by counting."""

from __future__ import annotations

import array
import base64
import itertools
import math
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import SettingError, TensorError
from ptoa_core.tensors import clip_shape, decode_f32, encode_f32, encode_tensor, frame_tensor_from_values


def b64_of(values):
    """The text, by another road: struct, and base64's own module."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


FLOATS = st.floats(width=32)


@given(st.lists(FLOATS, max_size=40))
def test_text_is_base64_of_little_endian_float32(values):
    text = encode_f32(values)
    assert text == b64_of(values)
    assert struct.pack(f"<{len(values)}f", *decode_f32(text)) == struct.pack(f"<{len(values)}f", *values)


@pytest.mark.parametrize(
    "text",
    [
        "AACAPw",
        "AACAPw=",
        "AACAPw===",
        "AACAPw====",
        "AACA\nPw==",
        "AACAPw==\n",
        " AACAPw==",
        "AACA-w==",
        "AACA_w==",
        "AACA!Pw==",
        "AACA\0Pw==",
        "AACAPw==AACAPw==",
        "A",
        "A===",
        "====",
        "AAA=",
        "AAAAAAA=",
        "AACAP\uff37==",
        b"AACAPw==",
        None,
        5,
    ],
    ids=repr,
)
def test_text_that_is_not_strict_base64_of_float32_is_refused(text):
    with pytest.raises(TensorError):
        decode_f32(text)


@pytest.mark.parametrize("values", [["x"], [None], [[1]], "ab", b"abcd", bytearray(4), 5, [1j]], ids=repr)
def test_what_is_no_number_is_refused(values):
    with pytest.raises(TensorError, match="numbers are wanted"):
        encode_f32(values)


SHAPES = st.lists(st.integers(0, 9), max_size=4)


@pytest.mark.parametrize(
    ("shape", "room", "kept"),
    [
        ([4, 8, 16], 64, [1, 4, 16]),
        ([4, 1000], 64, [1, 64]),
        ([4, 8, 16], 512, [4, 8, 16]),
        ([4, 8, 16], 511, [3, 8, 16]),
        ([], 1, []),
        ([], 0, []),
        ([0], 5, [0]),
        ([5, 0, 7], 3, [5, 0, 7]),
        ([3], 0, [0]),
        ([3, 4], 0, [0, 0]),
        ([1, 1, 1], 1, [1, 1, 1]),
        ([2, 2], 1, [1, 1]),
        ([10**12, 10**12], 65536, [1, 65536]),
    ],
)
def test_leading_axes_are_cut_first(shape, room, kept):
    assert clip_shape(shape, room) == kept


@given(SHAPES, st.integers(0, 300))
def test_corner_is_the_largest_with_whole_trailing_axes(shape, room):
    kept = clip_shape(shape, room)
    assert len(kept) == len(shape)
    assert all(small <= large for small, large in zip(kept, shape, strict=True))
    if 0 in shape or not shape:
        assert kept == shape
        return
    assert math.prod(kept) <= room
    # Where an axis is cut, every axis before it has shrunk to one and nothing more would fit.
    cut = [axis for axis, (small, large) in enumerate(zip(kept, shape, strict=True)) if small < large]
    if cut and room:
        last = max(cut)
        assert kept[last + 1 :] == shape[last + 1 :]
        assert math.prod(kept[last + 1 :]) * (kept[last] + 1) > room


@pytest.mark.parametrize(("shape", "room"), [([2, -1], 4), ([2], -1)])
def test_negative_sizes_are_refused(shape, room):
    with pytest.raises(SettingError, match="at least 0"):
        clip_shape(shape, room)


def nested(shape, flat):
    """Nested lists of a shape."""
    if not shape:
        return next(flat)
    return [nested(shape[1:], flat) for _ in range(shape[0])]


def corner_by_counting(shape, kept):
    """Row-major values 0, 1, 2, ... of which only the corner is kept."""
    positions = itertools.product(*(range(size) for size in shape))
    return [float(i) for i, at in enumerate(positions) if all(a < k for a, k in zip(at, kept, strict=True))]


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 130))
def test_corner_holds_the_values_that_stand_there(shape, room):
    flat = [float(i) for i in range(math.prod(shape))]
    tensor = encode_tensor("k", nested(shape, iter(flat)), room)
    kept = clip_shape(shape, room)
    assert tensor.shape == shape
    assert tensor.values() == corner_by_counting(shape, kept)
    assert tensor.clipped == (kept != shape)
    assert tensor.dataShape == (kept if tensor.clipped else None)
    assert tensor == frame_tensor_from_values("k", shape, flat, room)


@pytest.mark.parametrize(
    ("value", "shape", "values"),
    [
        (3, [], [3.0]),
        (True, [], [1.0]),
        (2.5, [], [2.5]),
        ([], [0], []),
        ([[], []], [2, 0], []),
        ((1, (2))[0:1], [1], [1.0]),
        ([True, False], [2], [1.0, 0.0]),
        (range(3), [3], [0.0, 1.0, 2.0]),
        (array.array("d", [1.5]), [1], [1.5]),
        ([float("inf"), 1e300], [2], [math.inf, math.inf]),
        ([[1, 2], (3, 4)], [2, 2], [1.0, 2.0, 3.0, 4.0]),
    ],
    ids=range(11),
)
def test_plain_numbers_and_sequences_are_taken(value, shape, values):
    tensor = encode_tensor("k", value)
    assert (tensor.shape, tensor.values(), tensor.clipped) == (shape, values, False)


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([[1], [2, 3]], "rows differ in length or depth at axis 1"),
        ([[1], 2], "axis 1"),
        ([1, [2]], "k: numbers are wanted"),
        ([["a"]], "k: "),
        (["ab"], "k: "),
        ("text", "k: a tensor, an array"),
        (None, "found None"),
        ({}, "found an object"),
        (b"x", "k: a tensor"),
        (object(), "found a object"),
        (1j, "found a complex"),
        (LOOP, "holds itself"),
        ([[[]], [[1]]], "axis 2"),
        ([[], [1]], "axis 1"),
    ],
    ids=range(14),
)
def test_what_is_no_tensor_is_refused(value, says):
    with pytest.raises(TensorError, match=says):
        encode_tensor("k", value)


def test_number_of_values_must_be_that_of_the_shape():
    with pytest.raises(TensorError, match=r"k: 3 values for shape \[2, 2\]"):
        frame_tensor_from_values("k", [2, 2], [1, 2, 3])


def test_no_room_keeps_the_shape_and_sends_nothing():
    tensor = encode_tensor("k", [[1, 2], [3, 4]], 0)
    assert (tensor.shape, tensor.b64, tensor.clipped, tensor.dataShape) == ([2, 2], "", True, [0, 0])


def test_neither_torch_nor_numpy_is_imported():
    code = "import sys; from ptoa_core.tensors import encode_tensor as encode; encode('k', [[1.0]]); "
    code += "print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class Array:
    """What offers ``__array__`` and nothing else."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "<i2", ">i2", "<i8", ">u4", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "f16"]
)
def test_numpy_array_of_any_number_type(np, dtype):
    values = np.array([[0, 1, 2], [3, 4, 100]]).astype(dtype)
    tensor = encode_tensor("k", values)
    assert tensor.b64 == b64_of([float(x) for x in values.ravel()])
    assert tensor.shape == [2, 3]


@pytest.mark.parametrize("view", ["transposed", "strided", "reversed", "fortran", "broadcast", "read-only"])
def test_numpy_view_is_read_row_major_and_left_alone(np, view):
    base = np.arange(24, dtype="f4").reshape(4, 6)
    made = {
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "reversed": base[::-1],
        "fortran": np.asfortranarray(base),
        "broadcast": np.broadcast_to(base[:1], (3, 6)),
        "read-only": base.copy(),
    }[view]
    if view == "read-only":
        made.flags.writeable = False
    before = made.copy()
    assert encode_tensor("k", made).values() == [float(x) for x in made.ravel()]
    tensor = encode_tensor("k", made, 3)
    assert tensor.values() == made[tuple(slice(0, n) for n in tensor.dataShape)].ravel().tolist()
    assert (made == before).all()


def test_numpy_scalars_and_array_likes(np):
    assert encode_tensor("k", np.float32(1.5)).shape == []
    assert encode_tensor("k", np.array(2)).values() == [2.0]
    assert encode_tensor("k", Array(np.ones((2, 2)))).values() == [1.0] * 4
    assert encode_tensor("k", np.ones((0, 3))).b64 == ""


@pytest.mark.parametrize("dtype", ["c8", "O", "U3", "S3", "M8[s]", [("a", "f4")]], ids=str)
def test_numpy_array_of_no_numbers_is_refused(np, dtype):
    with pytest.raises(TensorError, match="k: an array of numbers is wanted, found dtype"):
        encode_tensor("k", np.zeros(2, dtype=dtype))


def test_numpy_corner_is_cut_before_it_is_copied(np):
    huge = np.broadcast_to(np.float64(1.0), (10**6, 10**6))
    assert encode_tensor("k", huge, 10).dataShape == [1, 10]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float8_e4m3fn",
    ],
)
def test_torch_tensor_of_any_number_type(torch, dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 96.0]]).to(getattr(torch, dtype))
    tensor = encode_tensor("k", values)
    assert tensor.b64 == b64_of(values.to(torch.float64).flatten().tolist())
    assert tensor.shape == [2, 3]


@pytest.mark.parametrize(
    "view",
    ["transposed", "strided", "expanded", "conjugate-imaginary", "leaf", "scalar", "empty", "parameter"],
)
def test_torch_view_is_read_row_major_and_left_alone(torch, view):
    base = torch.arange(24.0).reshape(4, 6)
    made = {
        "transposed": lambda: base.T,
        "strided": lambda: base[::2, 1::3],
        "expanded": lambda: base[:1].expand(3, 6),
        "conjugate-imaginary": lambda: torch.complex(base, base).conj().imag,
        "leaf": lambda: base.clone().requires_grad_() * 2,
        "scalar": lambda: torch.tensor(2.5),
        "empty": lambda: torch.ones(0, 3),
        "parameter": lambda: torch.nn.Parameter(base),
    }[view]()
    tensor = encode_tensor("k", made)
    assert tensor.values() == made.detach().flatten().tolist()
    assert tensor.shape == list(made.shape)
    cut = encode_tensor("k", made, 5)
    if cut.clipped:
        corner = made.detach()[tuple(slice(0, n) for n in cut.dataShape)]
        assert cut.values() == corner.flatten().tolist()
    assert made.requires_grad == (view in {"leaf", "parameter"})


def test_torch_single_value_with_a_pending_sign_is_read_with_it(torch):
    one = torch.complex(torch.ones(1), torch.ones(1)).conj().imag
    assert one.is_neg()
    assert encode_tensor("k", one).values() == [-1.0]


def test_torch_not_a_number_keeps_its_bits(torch):
    values = encode_tensor("k", torch.tensor([math.nan, math.inf, -math.inf, -0.0])).values()
    assert math.isnan(values[0])
    assert values[1:3] == [math.inf, -math.inf]
    assert math.copysign(1, values[3]) == -1


def test_torch_corner_is_cut_before_it_is_copied(torch):
    huge = torch.ones(1, 1, dtype=torch.float64).expand(10**6, 10**6)
    assert encode_tensor("k", huge, 10).dataShape == [1, 10]


@pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated).*:UserWarning")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda t: t.ones(2, dtype=t.complex64), r"send its \.real"),
        (lambda t: t.eye(2).to_sparse(), "to_dense"),
        (lambda t: t.ones(2, device="meta"), "meta"),
        (lambda t: t.nested.nested_tensor([t.ones(1), t.ones(2)]), "nested"),
        (lambda t: t.quantize_per_tensor(t.ones(2), 1.0, 0, t.qint8), "quantized"),
    ],
    ids=["complex", "sparse", "meta", "nested", "quantized"],
)
def test_torch_tensor_without_plain_values_is_refused(torch, make, says):
    with pytest.raises(TensorError, match=says):
        encode_tensor("k", make(torch))


def test_torch_subclass_is_read_by_what_it_says(torch):
    class Doubled(torch.Tensor):
        def tolist(self):
            return [2 * value for value in self.as_subclass(torch.Tensor).tolist()]

    assert encode_tensor("k", torch.ones(3).as_subclass(Doubled)).values() == [2.0, 2.0, 2.0]


def test_torch_tensor_without_memory_is_refused(torch):
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        made = torch.ones(3)
    with pytest.raises(TensorError, match="cannot be read"):
        encode_tensor("k", made)
