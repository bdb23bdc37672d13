"""The store of frames: bounded in frames and bytes, whatever readers do meanwhile."""

from __future__ import annotations

import base64
import itertools
import os
import random
import signal
import threading
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.encoded import encode_frame
from ptoa_core.errors import SettingError
from ptoa_core.frames import BlockHealth, HeadPattern, HealthFrame
from ptoa_core.history import FrameHistory
from ptoa_core.jsontext import loads

NOISE = random.Random(3)


def encoded(step, size=0, pattern=0):
    """A frame that compresses to about ``size`` bytes, and ``pattern`` more with its patterns."""
    block = BlockHealth("a0", extra={"x": base64.b64encode(NOISE.randbytes(size)).decode()})
    if pattern:
        block.headPattern = [HeadPattern(0, 1, base64.b64encode(NOISE.randbytes(pattern)).decode())]
    return encode_frame({"step": step, "t": 0.0, "loss": None, "blocks": [block.to_dict()]})


def steps(history):
    return [loads(text)["step"] for text in history.iter_since(-1)]


def test_frames_come_back_as_they_were_encoded_oldest_first():
    history = FrameHistory()
    frames = [encoded(step, pattern=10 * (step % 2)) for step in (0, 10, 20)]
    assert [history.append(frame) for frame in frames] == [0, 1, 2]
    assert list(history.iter_since(-1)) == [frame.text for frame in frames]
    assert [history.read(seq) for seq in range(3)] == [frame.text for frame in frames]
    assert [history.size_of(seq) for seq in range(3)] == [len(frame.text) for frame in frames]
    assert [history.step_of(seq) for seq in range(3)] == [0, 10, 20]
    assert (history.first_seq, history.next_seq, len(history)) == (0, 3, 3)


@pytest.mark.parametrize(
    ("since", "rest"), [(-1, [0, 10, 20]), (0, [10, 20]), (5, [10, 20]), (10, [20]), (20, []), (99, [])]
)
def test_since_leaves_out_what_the_reader_has(since, rest):
    history = FrameHistory()
    for step in (0, 10, 20):
        history.append(encoded(step))
    assert [loads(text)["step"] for text in history.iter_since(since)] == rest


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 900), st.integers(0, 900)), max_size=20),
    st.integers(-1, 5),
    st.integers(1, 4_000),
    st.integers(3_000, 30_000),
)
def test_texts_that_come_together_are_the_texts_with_commas_between(frames, since, size, max_bytes):
    history = FrameHistory(max_bytes=max_bytes)
    for frame in frames:
        history.append(encoded(*frame))
    texts = list(history.iter_since(since))
    together = list(history.joined_since(since, size))
    assert b",".join(together) == b",".join(texts)
    longest = max(map(len, texts), default=0)
    # The commas are beyond what was counted.
    assert all(len(piece) <= max(size + len(texts), longest) for piece in together)
    assert all(len(one) + len(other) > size for one, other in itertools.pairwise(together))


def test_a_hundred_small_texts_are_unpacked_in_one_call(monkeypatch):
    history = FrameHistory()
    for step in range(100):
        history.append(encoded(step))
    calls = []
    unpack = zlib.decompress
    monkeypatch.setattr(zlib, "decompress", lambda *given: calls.append(given) or unpack(*given))
    assert len(list(history.joined_since(-1, 100_000))) == len(calls) == 1


def test_oldest_frame_goes_when_there_are_too_many():
    history = FrameHistory(max_frames=3)
    for step in range(10):
        history.append(encoded(step))
    assert steps(history) == [7, 8, 9]
    assert (history.first_seq, history.next_seq) == (7, 10)
    assert history.read(6) is None
    assert history.size_of(6) == 0
    assert history.step_of(6) is None
    assert history.read(10) is None


def test_oldest_patterns_go_before_any_frame():
    history = FrameHistory(max_bytes=40_000)
    for step in range(10):
        history.append(encoded(step, size=500, pattern=5_000))
    assert steps(history) == list(range(10))
    kept = ["headPattern" in loads(text)["blocks"][0] for text in history.iter_since(-1)]
    assert kept == sorted(kept)
    assert kept[-1]
    assert not kept[0]
    assert history.nbytes <= 40_000
    assert [history.size_of(seq) for seq in range(10)] == [len(history.read(seq)) for seq in range(10)]


def test_then_the_oldest_frames_go():
    history = FrameHistory(max_bytes=20_000)
    for step in range(50):
        history.append(encoded(step, size=1_000, pattern=1_000))
    kept = steps(history)
    assert kept == list(range(kept[0], 50))
    assert 10 < len(kept) < 20
    assert history.nbytes <= 20_000


def test_newest_frame_stays_even_when_it_is_too_large():
    history = FrameHistory(max_bytes=1_000)
    history.append(encoded(0))
    history.append(encoded(1, size=50_000))
    assert steps(history) == [1]
    history.append(encoded(2))
    assert steps(history) == [2]


@given(
    st.integers(1, 6),
    st.integers(400, 6_000),
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 900), st.integers(0, 900), st.booleans()), max_size=30
    ),
)
def test_limits_hold_after_every_call(max_frames, max_bytes, calls):
    history = FrameHistory(max_frames, max_bytes)
    last = -1
    for step, size, pattern, clear in calls:
        if clear:
            history.clear()
            assert (len(history), history.nbytes, history.first_seq) == (0, 0, last + 1)
        last = history.append(encoded(step, size, pattern))
        assert len(history) <= max_frames
        assert history.nbytes <= max_bytes or len(history) == 1
        assert history.next_seq == last + 1
        assert history.first_seq == last + 1 - len(history)
        assert history.seq_of_step(step) == last
        assert history.nbytes == sum(entry.nbytes for entry in history._entries.values())
    kept = [history.step_of(seq) for seq in range(history.first_seq, history.next_seq)]
    for step in range(6):
        newest = max((seq for seq, of in enumerate(kept, history.first_seq) if of == step), default=None)
        assert history.seq_of_step(step) == newest


def test_numbers_go_on_after_clearing():
    history = FrameHistory()
    history.append(encoded(5))
    history.clear()
    assert steps(history) == []
    assert history.seq_of_step(5) is None
    assert history.append(encoded(0)) == 1
    assert (history.first_seq, history.next_seq) == (1, 2)


def test_reader_in_the_middle_skips_what_is_dropped_and_sees_what_comes():
    history = FrameHistory(max_frames=3)
    for step in range(3):
        history.append(encoded(step))
    reader = history.iter_since(-1)
    assert loads(next(reader))["step"] == 0
    together = history.joined_since(-1, 1)
    assert loads(next(together))["step"] == 0
    for step in range(3, 8):
        history.append(encoded(step))
    assert [loads(text)["step"] for text in reader] == [5, 6, 7]
    assert [loads(text)["step"] for text in together][-3:] == [5, 6, 7]


def test_view_is_live_and_decodes_on_demand():
    history = FrameHistory(max_frames=4)
    frames = history.frames()
    assert list(frames) == []
    for step in range(6):
        history.append(encode_frame(HealthFrame(step, 0.0, float(step))))
    assert len(frames) == 4
    assert [frame.step for frame in frames] == [2, 3, 4, 5]
    assert (frames[0].loss, frames[-1].loss) == (2.0, 5.0)
    assert [frame.step for frame in frames[1:3]] == [3, 4]
    assert [frame.step for frame in reversed(frames)] == [5, 4, 3, 2]
    for index in (4, -5):
        with pytest.raises(IndexError):
            frames[index]
    assert repr(frames) == "<4 frames>"


@pytest.mark.parametrize(("frames", "size"), [(0, 1), (1, 0), (-1, 5)])
def test_limits_below_one_are_refused(frames, size):
    with pytest.raises(SettingError, match="limits of at least 1"):
        FrameHistory(frames, size)


def test_memory_is_flat_over_many_frames():
    history = FrameHistory(max_frames=100)
    frame = encoded(0, size=200)
    tracemalloc.start()
    try:
        for step in range(5_000):
            history.append(frame._replace(step=step))
        before, _ = tracemalloc.get_traced_memory()
        for step in range(5_000, 15_000):
            history.append(frame._replace(step=step))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000
    assert len(history._steps) == 100


def test_appends_and_reads_from_several_threads():
    history = FrameHistory(max_frames=50)
    frame = encoded(0, size=50, pattern=50)
    failures = []
    done = threading.Event()

    def read():
        try:
            while not done.is_set():
                seen = [loads(text)["step"] for text in history.iter_since(-1)]
                assert all(step == 0 for step in seen)
        except Exception as error:
            failures.append(error)

    def write():
        for _ in range(300):
            history.append(frame)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write) for _ in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join(30)
    done.set()
    for thread in readers:
        thread.join(30)
    assert failures == []
    assert (history.next_seq, len(history)) == (900, 50)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_is_not_locked_by_the_parent():
    history = FrameHistory()
    history.append(encoded(0))
    with history._lock:
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(20)  # a child that waits for a lock of its parent must not wait for ever
            try:
                history.append(encoded(1))
                code = 0 if steps(history) == [0, 1] else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_full_store_packs_its_frames_tighter_before_it_drops_one():
    numbers = random.Random(0)
    texts = [
        encode_frame(
            HealthFrame(
                step,
                0.0,
                None,
                [BlockHealth(f"l{n}", weightNorm=round(numbers.random(), 7)) for n in range(300)],
            )
        )
        for step in range(40)
    ]
    roomy = FrameHistory()
    for frame in texts:
        roomy.append(frame)
    full = FrameHistory(max_bytes=roomy.nbytes * 19 // 20)
    for frame in texts:
        full.append(frame)
    assert len(full) == 40
    assert full.nbytes <= roomy.nbytes * 19 // 20
    assert [full.read(seq) for seq in range(40)] == [frame.text for frame in texts]
