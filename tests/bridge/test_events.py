"""The log of events and its cursors, compared with a plain list of everything that was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_bridge.events import KEEP_ALIVE, RECENT_BYTES, RETRY, EventLog, event_pieces, last_event_id
from ptoa_core.encoded import encode_frame
from ptoa_core.history import FrameHistory


class Sent:
    """A log with its history, and every event as it would stand on the wire."""

    def __init__(self, **limits):
        self.history = FrameHistory(**limits)
        self.log = EventLog(self.history)
        self.wire = []

    def health(self, step, pad=0):
        text = encode_frame({"step": step, "t": 0.0, "loss": None, "blocks": [], "pad": "x" * pad})
        self.log.add_health(self.history.append(text), step, text.text)
        self.wire.append(b"event: health\nid: %d\ndata: %s\n\n" % (step, text.text))

    def trace(self, step, pad=0):
        self.log.add_trace((b"{", b'"trace":1' + b" " * pad, b"}"), step)
        self.wire.append(b'event: frame\nid: %d\ndata: {"trace":1%s}\n\n' % (step, b" " * pad))

    def spec(self, name):
        text = b'"%s"' % name.encode()
        self.log.add_spec((b"<", text, b">"), text)
        self.wire.append(b"event: spec\ndata: %s\n\n" % text)

    def bye(self):
        self.log.add_bye()
        self.wire.append(b"event: bye\ndata: {}\n\n")


def taken(tab):
    """All that a tab has to read now, and whether its stream has ended."""
    parts = []
    for part in tab:
        if not part:
            return b"".join(parts), False
        parts.append(part)
    return b"".join(parts), True


def read(tab):
    return taken(tab)[0]


HELLO = b'event: hello\ndata: <"m">\n\n'


def test_a_new_client_gets_hello_and_the_latest_trace_at_once():
    sent = Sent()
    sent.spec("m")
    sent.trace(5)
    sent.trace(6)
    sent.health(7)
    assert read(sent.log.new_tab(None)) == RETRY + HELLO + sent.wire[2]


def test_a_client_before_the_spec_gets_hello_when_the_spec_comes():
    sent = Sent()
    tab = sent.log.new_tab(None)
    assert read(tab) == RETRY
    sent.spec("m")
    sent.spec("n")
    assert read(tab) == HELLO + sent.wire[1]


def test_a_tab_gets_everything_in_the_order_of_sending():
    sent = Sent()
    tab = sent.log.new_tab(None)
    sent.spec("m")
    for step in (3, 3, 1, 2):
        sent.health(step)
        sent.trace(step)
    sent.spec("n")
    sent.health(0)
    assert read(tab) == RETRY + HELLO + b"".join(sent.wire[1:])


def test_bye_ends_the_stream():
    sent = Sent()
    tab = sent.log.new_tab(None)
    sent.health(1)
    sent.bye()
    assert taken(tab) == (RETRY + b"".join(sent.wire), True)


def test_two_tabs_do_not_disturb_each_other():
    sent = Sent()
    one, two = sent.log.new_tab(None), sent.log.new_tab(None)
    sent.health(1)
    assert read(one) == RETRY + sent.wire[0]
    sent.health(2)
    assert read(two) == RETRY + b"".join(sent.wire)
    assert read(one) == sent.wire[1]


@pytest.mark.parametrize("seen", range(9))
def test_a_resumed_tab_goes_on_after_its_last_event(seen):
    sent = Sent()
    for step in range(0, 90, 10):
        sent.health(step)
    assert read(sent.log.new_tab(seen * 10)) == RETRY + b"".join(sent.wire[seen + 1 :])


def test_order_of_sending_counts_and_not_the_step():
    sent = Sent()
    for step in (0, 10, 20, 5, 6):
        sent.health(step)
    assert read(sent.log.new_tab(20)) == RETRY + b"".join(sent.wire[3:])


def test_a_step_that_was_sent_twice_means_the_later_one():
    sent = Sent()
    for step in (0, 1, 2, 0, 1, 2):
        sent.health(step)
    assert read(sent.log.new_tab(1)) == RETRY + sent.wire[5]


def test_a_resumed_tab_gets_the_trace_in_its_place():
    sent = Sent()
    sent.health(0)
    sent.health(1)
    sent.trace(100)
    sent.health(2)
    assert read(sent.log.new_tab(0)) == RETRY + b"".join(sent.wire[1:])
    assert read(sent.log.new_tab(100)) == RETRY + sent.wire[3]
    assert read(sent.log.new_tab(1)) == RETRY + b"".join(sent.wire[2:])
    assert read(sent.log.new_tab(2)) == RETRY


def test_a_trace_and_a_frame_of_one_step_leave_no_hole():
    """Whichever of the two the tab saw last, it gets the other."""
    sent = Sent()
    sent.health(4)
    sent.trace(5)
    sent.health(5)
    sent.health(6)
    assert read(sent.log.new_tab(5)) == RETRY + b"".join(sent.wire[2:])
    other = Sent()
    other.health(5)
    other.trace(5)
    assert read(other.log.new_tab(5)) == RETRY + other.wire[1]


@pytest.mark.parametrize("step", [7, 15, 1000])
def test_an_id_that_is_kept_no_longer_means_that_all_was_missed(step):
    sent = Sent(max_frames=3)
    for kept in (10, 20, 30, 40, 50):
        sent.health(kept)
    sent.trace(60)
    assert read(sent.log.new_tab(step)) == RETRY + b"".join(sent.wire[2:])


def test_a_resumed_tab_that_is_overtaken_by_eviction_ends_without_a_hole():
    sent = Sent(max_frames=3)
    for step in range(3):
        sent.health(step)
    tab = sent.log.new_tab(0)
    assert [next(tab), next(tab) + next(tab) + next(tab)] == [RETRY, sent.wire[1]]
    for step in range(3, 9):
        sent.health(step, pad=RECENT_BYTES // 2)
    assert taken(tab) == (b"", True)


def test_a_live_tab_outlives_eviction_while_the_newest_texts_are_held():
    sent = Sent(max_frames=2)
    tab = sent.log.new_tab(None)
    for step in range(50):
        sent.health(step)
    assert read(tab) == RETRY + b"".join(sent.wire)


def test_the_newest_texts_take_a_few_megabytes_and_the_rest_comes_from_the_history():
    sent = Sent()
    tab = sent.log.new_tab(None)
    for step in range(20):
        sent.health(step, pad=RECENT_BYTES // 8)
    assert read(tab) == RETRY + b"".join(sent.wire)


def test_a_restart_forgets_frames_and_trace_but_no_spec():
    sent = Sent()
    sent.spec("m")
    tab = sent.log.new_tab(None)
    read(tab)
    sent.health(1)
    sent.trace(1)
    assert read(tab) == b"".join(sent.wire[1:])
    sent.health(2)
    sent.history.clear()
    sent.log.restart([tab])
    sent.spec("n")
    sent.health(0)
    assert read(tab) == b"".join(sent.wire[4:])
    assert read(sent.log.new_tab(None)) == RETRY + b'event: hello\ndata: <"n">\n\n'
    assert read(sent.log.new_tab(1)) == RETRY + b'event: hello\ndata: <"n">\n\n' + sent.wire[5]


def test_a_restart_forgets_the_trace_that_a_resumed_tab_had_still_to_get():
    sent = Sent()
    for step in range(3):
        sent.health(step)
    sent.trace(3)
    tab = sent.log.new_tab(0)
    assert next(tab) == RETRY
    sent.history.clear()
    sent.log.restart([tab])
    sent.health(0)
    assert read(tab) == sent.wire[-1]


def test_what_was_sent_whole_waits_no_longer():
    sent = Sent()
    tab = sent.log.new_tab(None)
    for step in range(3):
        sent.health(step, pad=10_000)
    assert 20_000 < sent.log.behind(tab) < 20_200
    for _ in range(5):  # retry, one event of three pieces, the first piece of the next
        next(tab)
    assert 10_000 < sent.log.behind(tab) < 10_100


def test_what_waits_is_counted_beyond_the_newest_event():
    sent = Sent()
    sent.health(0, pad=5000)
    tab = sent.log.new_tab(None)
    read(tab)
    assert sent.log.behind(tab) == 0
    sent.health(1, pad=90_000)
    assert sent.log.behind(tab) == 0
    sent.health(2, pad=100)
    assert 90_000 < sent.log.behind(tab) < 90_100
    next(tab)
    assert 90_000 < sent.log.behind(tab) < 90_100  # begun is not done
    read(tab)
    assert sent.log.behind(tab) == 0


def test_what_was_missed_before_the_tab_came_is_not_counted():
    sent = Sent()
    for step in range(5):
        sent.health(step, pad=10_000)
    tab = sent.log.new_tab(0)
    assert sent.log.behind(tab) == 0
    sent.health(5, pad=10_000)
    sent.health(6, pad=10_000)
    assert 10_000 < sent.log.behind(tab) < 10_100
    read(tab)
    assert sent.log.behind(tab) == 0


def test_events_outside_the_history_are_forgotten_once_every_tab_has_them():
    sent = Sent()
    tabs = [sent.log.new_tab(None), sent.log.new_tab(None)]
    for step in range(5):
        sent.trace(step)
    read(tabs[0])
    sent.log.prune(tabs)
    assert read(tabs[1]) == RETRY + b"".join(sent.wire)
    sent.log.prune(tabs)
    sent.trace(9)
    assert [read(tab) for tab in tabs] == [sent.wire[5]] * 2


def test_a_tab_for_which_too_many_traces_wait_is_given_up():
    sent = Sent()
    slow, good = sent.log.new_tab(None), sent.log.new_tab(None)
    for step in range(5):
        sent.trace(step, pad=20_000_000)
        read(good)
        sent.log.prune([slow, good])
    assert slow.dropped
    assert not good.dropped
    assert taken(slow) == (RETRY, True)


def test_a_spec_waits_for_a_slow_tab():
    sent = Sent()
    tab = sent.log.new_tab(None)
    for step in range(100):
        sent.health(step, pad=50_000)
        sent.log.prune([tab])
        if step == 50:
            sent.spec("m")
    assert HELLO in read(tab)


IDS = {
    None: None,
    "": None,
    "abc": None,
    "-5": None,
    "+5": None,
    "1.5": None,
    "5 ": None,
    "1_0": None,
    "٣": None,
    "\xff": None,
    "0x10": None,
    "5, 6": None,
    "9" * 400: None,
    str(2**53): None,
    str(2**53 - 1): 2**53 - 1,
    "0": 0,
    "007": 7,
    "40": 40,
}


@pytest.mark.parametrize(("text", "step"), IDS.items(), ids=lambda value: ascii(value)[:20])
def test_an_id_is_a_plain_number_or_a_new_client(text, step):
    assert last_event_id(text) == step


def test_an_event_without_an_id_has_no_id_line():
    assert b"".join(event_pieces("bye", [b"{", b"}"])) == b"event: bye\ndata: {}\n\n"


def test_a_comment_is_one_block_of_its_own():
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("health"), st.integers(0, 6)),
        st.tuples(st.just("trace"), st.integers(0, 6)),
        st.tuples(st.just("spec"), st.sampled_from("mn")),
        st.tuples(st.just("read"), st.integers(0, 2)),
        st.tuples(st.just("prune"), st.none()),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_whenever_tabs_read_each_has_read_what_was_sent(operations):
    """Against the plain list of sent events, the first spec told as a hello."""
    sent = Sent()
    tabs = [sent.log.new_tab(None) for _ in range(3)]
    got = [b"", b"", b""]
    for name, value in operations:
        if name == "read":
            got[value] += read(tabs[value])
        elif name == "prune":
            sent.log.prune(tabs)
        else:
            getattr(sent, name)(value)
    got = [have + read(tab) for have, tab in zip(got, tabs, strict=True)]
    specs = [at for at, event in enumerate(sent.wire) if event.startswith(b"event: spec")]
    if specs:
        first = sent.wire[specs[0]]
        sent.wire[specs[0]] = (
            first.replace(b"spec", b"hello").replace(b'"m"', b'<"m">').replace(b'"n"', b'<"n">')
        )
    assert got == [RETRY + b"".join(sent.wire)] * 3


@given(OPERATIONS, st.integers(0, 6))
def test_a_resumed_tab_misses_no_frame_that_was_sent_after_its_last(operations, step):
    """Every health event after the last one with the id comes, in order; maybe one more before."""
    sent = Sent()
    for name, value in operations:
        if name in ("health", "trace", "spec"):
            getattr(sent, name)(value)
    ids = [
        event.split(b"\n")[1] if event.startswith((b"event: health", b"event: frame")) else b""
        for event in sent.wire
    ]
    after = max((at for at, one in enumerate(ids) if one == b"id: %d" % step), default=-1) + 1
    wanted = [event for event in sent.wire[after:] if event.startswith(b"event: health")]
    blocks = [block + b"\n\n" for block in read(sent.log.new_tab(step)).split(b"\n\n")]
    found = [block for block in blocks if block.startswith(b"event: health")]
    assert found[len(found) - len(wanted) :] == wanted
