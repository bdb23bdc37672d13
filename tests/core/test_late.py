"""Frames whose rows are made when they are asked for: the same text, the same frame."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.encoded import encode_frame
from ptoa_core.frames import BlockHealth, HeadPattern, HealthFrame, TensorStats
from ptoa_core.late import LateFrame, PlainRow, PlainStats
from ptoa_core.pump import FramePump

PATTERN = HeadPattern(0, 1, "AACAPw==")


class Rows:
    """Rows from plain ones; None stands for a row that is not plain."""

    def __init__(self, *rows):
        self.rows = rows
        self.made = 0

    def __len__(self):
        return len(self.rows)

    def plain(self, index):
        return self.rows[index]

    def block(self, index):
        self.made += 1
        row = self.rows[index]
        return BlockHealth("odd", weightNorm=float("nan")) if row is None else block_of(row)


def block_of(row):
    parts = {stats.part: stats_of(stats) for stats in row.stats}
    entropy = None if row.entropy is None else list(row.entropy)
    extra = dict(row.extra or {})
    return BlockHealth(
        row.id, **parts, **row.numbers, headEntropy=entropy, headPattern=row.patterns, extra=extra
    )


def stats_of(stats):
    _, mean, std, largest, zeros, saturated, nan, infinite, hist, sample, dead = stats
    extra = ({"histSample": sample} if sample else {}) | ({} if dead is None else {"deadFrac": dead})
    return TensorStats(mean, std, largest, zeros, nan, infinite, saturated, hist, extra)


FULL = PlainStats("act", 0.1, 1 / 3, 2.0, 0.0, 0.25, 1, 2, [0, 7, 123456], 99, 0.5)
CASES = {
    "none": [],
    "bare": [PlainRow("l0", [], {})],
    "full": [PlainRow("a0", [FULL, FULL._replace(part="grad")], {"weightNorm": 2.5}, [0.5, 1.5], [PATTERN])],
    "extra": [PlainRow("l0", [FULL], {}, extra={"calls": 2, "missing": {"grad": "frozen"}})],
    "letters": [PlainRow("µ", [FULL], {}), PlainRow("l0", [FULL], {})],
    "unknown-extra": [PlainRow("l0", [FULL], {}, extra={"x": [1]}), PlainRow("l1", [FULL], {})],
    "negative-count": [PlainRow("l0", [FULL._replace(hist=[-1])], {}), PlainRow("l1", [FULL], {})],
    "one-is-odd": [PlainRow("l0", [FULL], {}), None, PlainRow("l1", [FULL], {"updateRatio": 1e-3})],
    "many": [PlainRow(f"l{n}", [FULL._replace(mean=n / 7)], {"weightNorm": n / 3}) for n in range(200)],
}


def late(rows, **head):
    return LateFrame(Rows(*rows), **{"step": 3, "t": 1.0, "loss": 0.5, **head})


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("rows", CASES.values(), ids=CASES.keys())
def test_a_late_frame_is_written_as_its_rows_are(rows, single):
    frame = late(rows, lr=0.1, extra={"forwards": 2})
    written = encode_frame(frame, single=single)
    assert written == encode_frame(frame.plain(), single=single)


def test_plain_rows_are_written_without_being_made():
    frame = late(CASES["many"])
    encode_frame(frame)
    assert frame.rows.made == 0


def test_what_was_changed_after_it_was_asked_for_is_what_is_written():
    frame = late(CASES["bare"])
    frame.blocks[0].weightNorm = 7.0
    assert b'"weightNorm":7.0' in encode_frame(frame).text


def test_a_late_frame_is_its_plain_one():
    frame = late(CASES["full"])
    plain = HealthFrame(3, 1.0, 0.5, [block_of(CASES["full"][0])])
    assert frame == plain
    assert plain == frame
    assert frame == late(CASES["full"])
    assert frame != late(CASES["bare"])
    assert repr(frame) == repr(plain)
    assert frame.to_dict() == plain.to_dict()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_copy_is_a_plain_frame(copied):
    made = copied(late(CASES["extra"]))
    assert type(made) is HealthFrame
    assert made == late(CASES["extra"])


def test_a_pump_makes_no_rows():
    seen = []
    frame = late(CASES["full"])
    pump = FramePump([type("Sink", (), {"push_health": lambda _, item: seen.append(item.decode())})()])
    pump.push_health(frame)
    assert pump.close()
    assert frame.rows.made == 0
    assert seen == [frame.plain()]


def test_a_frame_has_no_other_attribute():
    with pytest.raises(AttributeError, match="colour"):
        late([]).colour  # noqa: B018


@given(st.lists(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4), max_size=70))
def test_numbers_stay_with_their_rows(numbers):
    rows = [PlainRow(f"l{n}", [PlainStats("act", *four)], {}) for n, four in enumerate(numbers)]
    frame = late(rows)
    assert encode_frame(frame, single=True) == encode_frame(frame.plain(), single=True)
