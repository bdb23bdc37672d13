"""What belongs to the whole process is as before when the last of several overlapping passes has ended."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest
import torch
from torch import nn

from ptoa_torch import from_module
from ptoa_torch.process_wide import ProcessWide, deeper_calls


class Held(nn.Module):
    """Two passes of it that overlap: the one that began first ends first."""

    def __init__(self, inside, leave):
        super().__init__()
        self.layer, self.inside, self.leave = nn.Linear(2, 2), inside, leave

    def forward(self, x):
        self.inside.set()
        assert self.leave.wait(60)
        return self.layer(x)


def overlapping(work):
    """Run it twice so that the second begins inside the first and ends after it."""
    inside, leave = ([threading.Event() for _ in range(2)] for _ in range(2))
    threads = [threading.Thread(target=work, args=pair) for pair in zip(inside, leave, strict=True)]
    for thread, begun in zip(threads, inside, strict=True):
        thread.start()
        assert begun.wait(60)
    for thread, end in zip(threads, leave, strict=True):
        end.set()
        thread.join(60)
        assert not thread.is_alive()


def read(inside, leave):
    from_module(Held(inside, leave), torch.ones(1, 2), strategy="hooks")


def test_two_readings_that_overlap_leave_warnings_and_the_stack_as_they_were():
    before, limit = list(warnings.filters), sys.getrecursionlimit()
    overlapping(read)
    assert warnings.filters == before
    assert sys.getrecursionlimit() == limit


def test_two_readings_that_overlap_leave_the_compiler_on():
    dynamo = pytest.importorskip("torch._dynamo")
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    try:
        function = torch.compile(lambda x: x + 1, backend=backend)
    except (AttributeError, RuntimeError):
        pytest.skip("this torch compiles nothing on this Python")
    dynamo.reset()
    overlapping(read)
    function(torch.ones(2))
    assert len(compiled) == 1
    dynamo.reset()


def test_a_change_is_made_once_and_undone_by_the_last():
    told = []

    class Change:
        def __enter__(self):
            told.append("on")

        def __exit__(self, *_):
            told.append("off")

    change = ProcessWide(Change)

    def inside(begun, leave):
        with change():
            told.append("in")
            begun.set()
            assert leave.wait(60)
            told.append("out")

    overlapping(inside)
    assert told == ["on", "in", "in", "out", "out", "off"]
    with pytest.raises(KeyboardInterrupt), change():
        raise KeyboardInterrupt
    assert told[6:] == ["on", "off"]


def test_a_change_that_fails_is_tried_again_by_the_next():
    tries = []

    class Change:
        def __enter__(self):
            tries.append(self)
            if len(tries) == 1:
                raise OSError("not now")

        def __exit__(self, *_):
            tries.append("off")

    change = ProcessWide(Change)
    with pytest.raises(OSError, match="not now"), change():
        pass
    with change():
        assert len(tries) == 2
    assert tries[2:] == ["off"]


def test_room_on_the_stack_is_given_back_when_the_work_fails():
    limit, seen = sys.getrecursionlimit(), []

    def work():
        with deeper_calls(50), deeper_calls(7):
            seen.append(sys.getrecursionlimit() - limit)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        work()
    assert seen == [57]
    assert sys.getrecursionlimit() == limit
