"""The pump: pushes return at once, sinks get every frame in order, failures end only themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from ptoa_core.encoded import EncodedFrame, encode_frame
from ptoa_core.errors import PtoaWarning
from ptoa_core.frames import BlockHealth, HealthFrame
from ptoa_core.pump import FramePump
from ptoa_core.sinks import CallableSink


class Kept:
    """A sink that keeps what it is given, and can be held back."""

    def __init__(self):
        self.frames = []
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()
        self.closed = 0

    def push_health(self, frame):
        self.entered.set()
        assert self.free.wait(30)
        self.frames.append(frame)

    def close(self):
        self.closed += 1


def frame(step, blocks=0):
    return HealthFrame(step, 0.0, None, [BlockHealth(f"b{i}") for i in range(blocks)])


@pytest.fixture
def pump_of():
    pumps = []

    def make(*sinks, **options):
        pumps.append(FramePump(sinks, **options))
        return pumps[-1]

    yield make
    for pump in pumps:
        for sink in pump._sinks:
            getattr(sink, "free", threading.Event()).set()
        pump.close(30)


def test_every_sink_gets_the_same_encoded_frames_in_order(pump_of):
    first, second = Kept(), Kept()
    pump = pump_of(first, second)
    for step in range(50):
        pump.push_health(frame(step))
    assert pump.flush(30)
    assert [kept.step for kept in first.frames] == list(range(50))
    assert all(isinstance(kept, EncodedFrame) for kept in first.frames)
    assert all(a is b for a, b in zip(first.frames, second.frames, strict=True))


def test_frames_objects_and_encoded_frames_are_taken(pump_of):
    sink = Kept()
    pump = pump_of(sink)
    pump.push_health(frame(0))
    pump.push_health(frame(1).to_dict())
    pump.push_health(encode_frame(frame(2)))
    assert pump.close(30)
    assert [kept.step for kept in sink.frames] == [0, 1, 2]


@pytest.mark.parametrize("form", [lambda f: f, HealthFrame.to_dict], ids=["frame", "object"])
def test_caller_may_use_its_frame_again(pump_of, form):
    sink = Kept()
    sink.free.clear()
    pump = pump_of(sink)
    mine = form(frame(0, blocks=2))
    for step in range(5):
        if isinstance(mine, dict):
            mine["step"] = step
        else:
            mine.step = step
        pump.push_health(mine)
        (mine["blocks"] if isinstance(mine, dict) else mine.blocks).append(BlockHealth("late").to_dict())
    sink.free.set()
    assert pump.flush(30)
    assert [kept.step for kept in sink.frames] == list(range(5))
    assert [len(kept.decode().blocks) for kept in sink.frames] == [2, 3, 4, 5, 6]


def test_full_queue_drops_and_counts(pump_of):
    sink = Kept()
    sink.free.clear()
    pump = pump_of(sink, max_frames=3)
    pump.push_health(frame(0))
    assert sink.entered.wait(30)
    for step in range(1, 10):
        pump.push_health(frame(step))
    assert pump.dropped == 7
    sink.free.set()
    assert pump.flush(30)
    assert [kept.step for kept in sink.frames] == [0, 1, 2]
    pump.push_health(frame(10))
    assert pump.flush(30)
    assert sink.frames[-1].step == 10


def test_rows_of_blocks_are_bounded_but_one_frame_always_fits(pump_of):
    sink = Kept()
    sink.free.clear()
    pump = pump_of(sink, max_blocks=100)
    pump.push_health(frame(0, blocks=500))
    assert sink.entered.wait(30)
    pump.push_health(frame(1, blocks=1))
    assert pump.dropped == 1
    sink.free.set()
    assert pump.flush(30)
    for step in range(2, 5):
        pump.push_health(frame(step, blocks=10))
        assert pump.flush(30)
    assert [kept.step for kept in sink.frames] == [0, 2, 3, 4]


def broken(error):
    def fail(frame):
        raise error

    return CallableSink(fail)


@pytest.mark.parametrize(
    "error", [OSError("disk full"), SystemExit(3), KeyboardInterrupt()], ids=lambda e: type(e).__name__
)
def test_sink_that_raises_is_reported_once_and_stands_aside(pump_of, error):
    reports = []
    sink, bad = Kept(), broken(error)
    pump = pump_of(bad, sink, on_error=lambda *report: reports.append(report))
    for step in range(5):
        pump.push_health(frame(step))
    assert pump.flush(30)
    assert reports == [(bad, error)]
    assert [kept.step for kept in sink.frames] == list(range(5))


def test_frame_that_cannot_be_encoded_is_left_out_and_reported_once(pump_of):
    reports = []
    sink = Kept()
    pump = pump_of(sink, on_error=lambda *report: reports.append(report))
    for bad in ({"step": "x"}, 5, HealthFrame("x", 0.0, None)):
        pump.push_health(bad)
    pump.push_health(frame(1))
    assert pump.flush(30)
    assert [where for where, _ in reports] == [None]
    assert "frame.step" in str(reports[0][1])
    assert [kept.step for kept in sink.frames] == [1]


def test_report_that_raises_ends_nothing(pump_of):
    def fail(sink, error):
        raise error

    sink = Kept()
    pump = pump_of(broken(ValueError("x")), sink, on_error=fail)
    pump.push_health(frame(0))
    pump.push_health(frame(1))
    assert pump.flush(30)
    assert len(sink.frames) == 2


def test_without_a_report_the_failure_is_a_warning(pump_of, monkeypatch):
    said = []
    monkeypatch.setattr("warnings.warn", lambda *args, **keys: said.append(args))
    pump = pump_of(broken(ValueError("odd")))
    pump.push_health(frame(0))
    assert pump.flush(30)
    assert said == [("CallableSink('fail') gets no more frames: ValueError: odd", PtoaWarning)]


def test_close_delivers_what_waits_and_can_be_called_twice(pump_of):
    sink = Kept()
    pump = pump_of(sink)
    for step in range(100):
        pump.push_health(frame(step))
    assert pump.close(30)
    assert pump.close(30)
    assert len(sink.frames) == 100
    pump.push_health(frame(100))
    assert pump.flush(1)
    assert len(sink.frames) == 100
    assert sink.closed == 0


def test_close_gives_up_after_its_time_and_says_so(pump_of):
    sink = Kept()
    sink.free.clear()
    pump = pump_of(sink)
    pump.push_health(frame(0))
    assert not pump.flush(0.01)
    assert not pump.close(0.01)
    sink.free.set()
    assert pump.close(30)
    assert len(sink.frames) == 1


def test_sink_may_close_or_flush_the_pump(pump_of):
    results = []

    def end(frame):
        results.append((pump.flush(1), pump.close(1)))

    pump = pump_of(CallableSink(end))
    pump.push_health(frame(0))
    assert pump.close(30)
    assert results == [(False, False)]


def test_callable_sink_gets_health_frames(pump_of):
    seen = []
    pump = pump_of(CallableSink(seen.append))
    mine = HealthFrame(3, 1.0, 0.5, [BlockHealth("a", weightNorm=2.0)])
    pump.push_health(mine)
    assert pump.close(30)
    assert seen == [mine]


def test_thread_is_a_daemon_with_a_name(pump_of):
    pump = pump_of(name="ptoa-test")
    assert pump._thread.daemon
    assert pump._thread.name == "ptoa-test"


def test_pump_keeps_no_frame_alive_while_it_waits(pump_of):
    import gc
    import weakref

    class Sized(dict):
        pass

    pump = pump_of()
    mine = encode_frame(frame(0))
    block = BlockHealth("b")
    pump.push_health(HealthFrame(0, 0.0, None, [block]))
    assert pump.flush(30)
    gone = weakref.ref(block)
    del block, mine
    deadline = time.monotonic() + 30
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )


def test_what_waits_is_delivered_at_the_end_of_the_interpreter():
    done = run(
        """
        import time
        from ptoa_core.frames import HealthFrame
        from ptoa_core.pump import FramePump
        from ptoa_core.sinks import CallableSink
        pump = FramePump([CallableSink(lambda frame: (time.sleep(0.01), print(frame.step, flush=True)))])
        for step in range(10):
            pump.push_health(HealthFrame(step, 0.0, None))
        """
    )
    assert done.stdout.split() == [str(step) for step in range(10)], done.stderr
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_pump_of_a_forked_child_does_nothing(pump_of):
    sink = Kept()
    sink.free.clear()
    pump = pump_of(sink)
    pump.push_health(frame(0))
    assert sink.entered.wait(30)
    with pump._pushing:
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(20)  # a child that waits for a lock of its parent must not wait for ever
            try:
                pump.push_health(frame(1))
                code = 0 if pump.flush(5) and pump.close(5) else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sink.free.set()
    assert pump.close(30)
    assert [kept.step for kept in sink.frames] == [0]


def test_a_signal_handler_may_close_in_the_middle_of_a_push(monkeypatch):
    pump = FramePump([])
    closed = []
    # As the handler would, on the thread that it has interrupted.
    monkeypatch.setattr(pump, "_fits", lambda _weight: closed.append(pump.close(1)) or True)
    thread = threading.Thread(target=pump.push_health, args=({"step": 0, "blocks": []},), daemon=True)
    thread.start()
    thread.join(5)
    assert closed == [True]
    assert not thread.is_alive()
