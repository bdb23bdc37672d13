"""The public class: settings, addresses, what is pushed and what is kept."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import sys
import threading
import time

import pytest

import ptoa_bridge
from ptoa_bridge import Bridge
from ptoa_core import ModelSpec
from ptoa_core.encoded import encode_frame
from ptoa_core.errors import FormatError, FrameError, SettingError
from ptoa_core.frames import HealthFrame, TraceFrame

HOSTS = [
    "",
    "0.0.0.0",
    "::",
    "[::]",
    "192.168.0.1",
    "example.com",
    "127.0.0.2",
    "127.1",
    "localhost.",
    " 127.0.0.1",
    None,
    5,
]
PORTS = [-1, 65536, 10**30, True, "80", 80.0, None]
TOKENS = ["", " ", "a b", "a&b", "a#b", "a/b", "é", "a\n", "a%41", 5, b"abc"]
LABS = [
    "http://evil.example",
    "ftp://lab.example",
    "lab.example",
    "https://",
    "https://a@b/",
    "LOCAL",
    "",
    "javascript:1",
]


@pytest.mark.parametrize("host", HOSTS, ids=repr)
def test_a_host_that_is_not_loopback_is_refused(host):
    with pytest.raises(SettingError, match="loopback"):
        Bridge(host=host)


@pytest.mark.parametrize("port", PORTS, ids=repr)
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(SettingError, match="65535"):
        Bridge(port=port)


@pytest.mark.parametrize("token", TOKENS, ids=repr)
def test_a_token_that_cannot_stand_in_an_address_is_refused_and_not_repeated(token):
    with pytest.raises(SettingError) as caught:
        Bridge(token=token)
    assert repr(token) not in str(caught.value)


@pytest.mark.parametrize("lab", LABS)
def test_a_lab_that_an_attacker_could_forge_is_refused(lab):
    with pytest.raises(SettingError):
        Bridge(lab_url=lab)


def test_a_lab_from_the_environment_is_refused_in_the_same_way(monkeypatch):
    monkeypatch.setenv("PTA_LAB_URL", "http://evil.example")
    with pytest.raises(SettingError, match="PTA_LAB_URL"):
        Bridge()


def test_a_setting_error_is_a_value_error():
    assert issubclass(SettingError, ValueError)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_a_loopback_name_is_written_as_an_address(host):
    with Bridge(host=host) as bridge:
        assert bridge.origin == f"http://127.0.0.1:{bridge.port}"


def test_addresses_carry_port_and_token():
    with Bridge(token="t") as bridge:
        assert bridge.url == f"https://lab.papertoanything.com/?bridge=http://127.0.0.1:{bridge.port}&token=t"
        assert bridge.local_url == f"http://127.0.0.1:{bridge.port}/#token=t"


def test_the_chosen_lab_is_opened():
    with Bridge(lab_url="https://lab.example.org/x/", token="t") as bridge:
        assert bridge.url == f"https://lab.example.org/x/?bridge=http://127.0.0.1:{bridge.port}&token=t"
    with Bridge(lab_url="local") as bridge:
        assert bridge.url == bridge.local_url


def test_tokens_differ_and_have_128_bits_or_more():
    tokens = {Bridge().token for _ in range(20)}
    assert len(tokens) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22,}", token) for token in tokens)


def test_the_token_is_in_no_repr(spec):
    bridge = Bridge(spec, token="s3cret-token")
    seen = [repr(bridge)]
    with bridge:
        seen.append(repr(bridge))
    seen.append(repr(bridge))
    assert len(set(seen)) == 3
    assert "s3cret" not in "".join(seen)


def test_a_port_in_use_is_an_error_that_names_it(bridge):
    with pytest.raises(OSError, match=str(bridge.port)):
        Bridge(port=bridge.port).start()


def test_a_port_that_another_program_listens_on_is_not_shared():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} on 127.0.0.1 is in use"):
            Bridge(port=port).start()


def test_a_fixed_port_can_be_taken_again_at_once(make_client):
    with Bridge() as bridge:
        port = bridge.port
        make_client(bridge).get("/")
    with Bridge(port=port) as bridge:
        assert bridge.port == port


@pytest.mark.parametrize("spec", [{}, {"v": 1}, {"v": 2, "name": "x"}, {"name": 5}, 5, "text", []], ids=repr)
def test_what_is_no_spec_is_the_callers_error(spec):
    with pytest.raises((FormatError, TypeError)):
        Bridge(spec)


def test_a_name_that_utf8_cannot_say_is_the_callers_error(spec, bridge):
    spec["name"] = "bad\ud800name"
    with pytest.raises(ValueError, match="surrogate"):
        Bridge(spec)
    with pytest.raises(ValueError, match="surrogate"):
        bridge.set_spec(spec)
    assert bridge.spec.name == "s"


def test_hello_holds_the_spec(bridge, client, spec):
    assert Bridge().hello() is None
    assert bridge.hello().spec == ModelSpec.from_dict(spec)
    assert client.get("/spec").json() == bridge.hello().to_dict()


def test_a_spec_that_comes_later_is_served(make_client, spec):
    with Bridge() as bridge:
        assert make_client(bridge).get("/spec").status == 204
        bridge.set_spec(spec)
        assert make_client(bridge).get("/spec").json()["spec"] == spec
        assert bridge.spec.to_dict() == spec


@pytest.mark.parametrize("kind", ["dict", "object", "encoded"])
def test_a_frame_is_taken_in_every_form(bridge, client, tools, kind):
    frame = tools.frame(3)
    if kind == "object":
        frame = HealthFrame.from_dict(frame)
    elif kind == "encoded":
        frame = encode_frame(frame)
    bridge.push_health(frame)
    assert client.get("/health").json() == {"frames": [tools.frame(3)]}


@pytest.mark.parametrize("kind", ["dict", "object"])
def test_a_trace_is_taken_in_every_form(bridge, client, kind):
    trace = {"step": 2, "tensors": [{"key": "l0:out", "shape": [1], "b64": "AACAPw==", "clipped": False}]}
    bridge.push(trace if kind == "dict" else TraceFrame.from_dict(trace))
    assert client.get("/trace").json() == trace


@pytest.mark.parametrize(
    "trace",
    [
        *({}, {"step": -1}, {"step": "1"}, {"step": True}, {"step": 1.0}, {"step": 2**53}, 5, "x", None),
        *({"step": 1, "tensors": tensors} for tensors in (None, 5, "abc", {})),
    ],
    ids=repr,
)
def test_what_is_no_trace_is_the_callers_error(bridge, trace):
    with pytest.raises(FrameError):
        bridge.push(trace)


def test_a_trace_that_cannot_be_encoded_is_told_and_the_bridge_goes_on(bridge, client, capfd, tools):
    bridge.push({"step": 1, "tensors": [{"key": "\ud800"}]})
    assert client.get("/trace").status == 204
    assert tools.wait_until(lambda: "surrogate" in capfd.readouterr().err)
    bridge.push({"step": 2, "tensors": []})
    assert client.get("/trace").json()["step"] == 2


@pytest.mark.parametrize(
    "frame", [{}, {"step": -1, "blocks": []}, {"step": 0, "blocks": 5}, {"step": 0, "x": object()}], ids=str
)
def test_a_frame_that_cannot_be_encoded_is_left_out_and_the_bridge_goes_on(
    bridge, client, tools, frame, capfd
):
    bridge.push_health(frame)
    bridge.push_health(tools.frame(1))
    assert [one["step"] for one in client.get("/health").json()["frames"]] == [1]
    assert "left out" in capfd.readouterr().err


def test_what_the_caller_changes_afterwards_is_not_sent(bridge, client, tools):
    frame, trace = tools.frame(1, blocks=[{"id": "a"}]), {"step": 1, "tensors": []}
    bridge.push_health(frame)
    bridge.push(trace)
    frame["step"], trace["step"] = 9, 9
    frame["blocks"].append({"id": "b"})
    trace["tensors"].append({"key": "x"})
    assert client.get("/health").json()["frames"] == [tools.frame(1, blocks=[{"id": "a"}])]
    assert client.get("/trace").json() == {"step": 1, "tensors": []}


def test_frames_of_before_the_start_are_kept(spec, tools, make_client):
    bridge = Bridge(spec)
    bridge.push_health(tools.frame(1))
    bridge.push({"step": 4, "tensors": []})
    bridge.history.append(encode_frame(tools.frame(2)))
    with bridge:
        client = make_client(bridge)
        assert sorted(one["step"] for one in client.get("/health").json()["frames"]) == [1, 2]
        assert client.get("/trace").json()["step"] == 4
        tab = client.tab()
        assert [tab.next()[:2], tab.next()[:2]] == [("hello", None), ("frame", 4)]
        tab.close()


def test_health_since_gives_texts_of_what_was_just_pushed(bridge, tools):
    for step in range(50):
        bridge.push_health(tools.frame(step))
    assert [re.match(r'\{"step":(\d+)', text)[1] for text in bridge.health_since(46)] == ["47", "48", "49"]
    assert len(bridge.history) == 50


def test_a_request_finds_every_frame_that_was_pushed_before_it(bridge, client, tools):
    for step in range(3000):
        bridge.push_health(tools.frame(step))
    assert len(client.get("/health").json()["frames"]) == 3000


def test_a_new_watch_begins_without_the_frames_of_the_one_before(bridge, client, spec, tools):
    tab = client.tab()
    bridge.push_health(tools.frame(7))
    bridge.push({"step": 7, "tensors": []})
    assert sorted(tab.next()[0] for _ in range(3)) == ["frame", "health", "hello"]
    spec["name"] = "second"
    bridge.begin(spec)
    bridge.push_health(tools.frame(0))
    assert client.get("/health").json()["frames"] == [tools.frame(0)]
    assert client.get("/trace").status == 204
    assert client.get("/spec").json()["spec"]["name"] == "second"
    assert [tab.next()[:2], tab.next()[:2]] == [("spec", None), ("health", 0)]
    tab.close()


def test_frames_that_were_still_queued_belong_to_the_watch_before(bridge, client, spec, tools):
    for step in range(300):
        bridge.push_health(tools.padded(step, 20_000))
    bridge.begin(spec)
    assert client.get("/health").json() == {"frames": []}


def test_the_chosen_lab_may_read_and_another_may_not(spec, make_client):
    with Bridge(spec, lab_url="https://lab.example.org:443/x/") as bridge:
        client = make_client(bridge)
        answer = client.get("/spec", {"Origin": "https://lab.example.org"})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (
            200,
            "https://lab.example.org",
        )
        assert client.get("/spec", {"Origin": "https://lab.papertoanything.com"}).status == 200
        assert client.get("/spec", {"Origin": "http://localhost:5180"}).status == 200
        for other in ("https://lab.example.org:443", "http://lab.example.org", "https://example.org"):
            assert client.get("/spec", {"Origin": other}).status == 403


def test_a_bridge_with_its_own_page_trusts_no_empty_origin(make_client, spec):
    with Bridge(spec, lab_url="local") as bridge:
        assert make_client(bridge).get("/spec", {"Origin": ""}).status == 403


@pytest.fixture
def hurried():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def all_at_once(count, work):
    """Run `work(0)`, `work(1)`, ... on threads that begin together."""
    begin = threading.Barrier(count)

    def run(number):
        begin.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("hurried")
def test_threads_that_push_the_first_frames_at_once_lose_none_and_share_one_pump(spec, tools):
    before = threading.active_count()
    for _ in range(30):
        with Bridge(spec) as bridge:
            all_at_once(6, lambda step, bridge=bridge: bridge.push_health(tools.frame(step)))
            assert len(bridge.health_since(-1)) == 6
    assert tools.wait_until(lambda: threading.active_count() == before)


@pytest.mark.usefixtures("hurried")
def test_threads_that_start_a_bridge_at_once_start_it_once(spec, make_client):
    for _ in range(10):
        started = []
        bridge = Bridge(spec)
        all_at_once(4, lambda _, bridge=bridge, started=started: started.append(bridge.start().port))
        assert started == [bridge.port] * 4
        assert make_client(bridge).get("/spec").status == 200
        bridge.close()
        with pytest.raises(ConnectionRefusedError):
            make_client(bridge).connect(timeout=1)


def test_pushing_does_not_wait_for_tabs_or_encoding(bridge, client, tools):
    """The time of a push on the caller's thread does not grow with the frame: it is encoded elsewhere."""
    names = []
    frame = HealthFrame(1, 0.0, None)
    frame.extra = {"x": Spy(names)}
    bridge.push_health(frame)
    bridge.history  # noqa: B018  # nothing on this thread looks into the frame
    assert tools.wait_until(lambda: len(bridge.health_since(-1)) + len(names))
    assert threading.current_thread().name not in names


class Spy(dict):
    """Notes which thread reads it."""

    def __init__(self, names):
        super().__init__(a=1)
        self.names = names

    def items(self):
        self.names.append(threading.current_thread().name)
        return super().items()


class TestClosing:
    def test_close_may_be_called_again_and_before_the_start(self):
        bridge = Bridge()
        bridge.close()
        bridge.close()
        with pytest.raises(SettingError, match="closed"):
            bridge.start()

    def test_what_is_pushed_after_the_end_is_dropped(self, spec, tools):
        with Bridge(spec) as bridge:
            pass
        bridge.push_health(tools.frame(1))
        bridge.push({"step": 1, "tensors": []})
        bridge.set_spec(spec)
        bridge.begin(spec)
        assert bridge.health_since(-1) == []

    def test_what_was_pushed_before_the_end_is_still_sent(self, bridge, client, tools):
        tab = client.tab()
        for step in range(200):
            bridge.push_health(tools.frame(step))
        bridge.close()
        assert tab.steps(200) == list(range(200))
        assert tab.next()[0] == "bye"
        assert tab.next() is None
        assert tab.ended
        tab.close()

    def test_many_threads_may_close_at_once(self, bridge, client):
        tab = client.tab()
        threads = [threading.Thread(target=bridge.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert not any(thread.is_alive() for thread in threads)
        assert tab.names(until="bye")[-1] == "bye"
        tab.close()

    def test_ctrl_c_in_the_middle_of_closing_still_closes(self, bridge, client, tools, monkeypatch):
        def interrupted(_seconds):
            raise KeyboardInterrupt

        tab = client.tab()
        bridge.push_health(tools.frame(0))
        assert tab.steps(1) == [0]
        monkeypatch.setattr(bridge._pump, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bridge.close()
        assert tab.names(until="bye")[-1:] == ["bye"]
        tab.close()
        with pytest.raises(ConnectionRefusedError):
            client.connect(timeout=1)

    def test_a_tab_that_never_reads_does_not_hold_up_the_end(self, bridge, client, tools):
        tab = client.tab(rcvbuf=4096)
        for step in range(100):
            bridge.push_health(tools.padded(step, 50_000))
        start = time.monotonic()
        bridge.close()
        assert time.monotonic() - start < 3
        tab.close()

    def test_the_port_is_closed_and_nothing_is_left(self, spec, make_client, tools):
        before = threading.active_count()
        bridge = Bridge(spec).start()
        client = make_client(bridge)
        tabs = [client.tab() for _ in range(5)]
        idle = client.connect()
        bridge.close()
        with pytest.raises(ConnectionRefusedError):
            client.connect(timeout=1)
        for tab in tabs:
            assert tab.names(until="bye")[-1] == "bye"
            assert tab.next() is None
            assert tab.ended
            tab.close()
        idle.close()
        assert tools.wait_until(lambda: threading.active_count() == before)

    def test_starting_twice_is_starting_once(self, bridge):
        assert bridge.start() is bridge

    def test_serve_forever_ends_with_close(self, spec, tools):
        bridge = Bridge(spec)
        thread = threading.Thread(target=bridge.serve_forever)
        thread.start()
        assert tools.wait_until(lambda: bridge._server)
        bridge.close()
        thread.join(5)
        assert not thread.is_alive()


class TestAnnouncing:
    def test_both_pages_are_printed(self, bridge, capsys):
        bridge.announce()
        out, err = capsys.readouterr()
        assert bridge.url in out
        assert bridge.local_url in out
        assert "ssh" not in out
        assert err == ""

    def test_a_remote_session_is_told_how_to_reach_the_page(self, bridge, monkeypatch):
        monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4 5 10.0.0.5 22")
        file = io.StringIO()
        bridge.announce(file=file)
        assert f"ssh -L {bridge.port}:127.0.0.1:{bridge.port} " in file.getvalue()

    @pytest.mark.parametrize("stream", ["none", "closed", "a pipe without a reader"])
    def test_without_standard_output_nothing_is_printed(self, bridge, monkeypatch, stream):
        out = None
        if stream != "none":
            reader, writer = os.pipe()
            os.close(reader)
            out = io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True)
        if stream == "closed":
            out.close()
        monkeypatch.setattr(sys, "stdout", out)
        bridge.announce()
        with contextlib.suppress(BrokenPipeError, AttributeError):
            out.close()

    @pytest.mark.parametrize("error", [RuntimeError, AttributeError, UnicodeEncodeError, RecursionError])
    def test_a_stream_of_the_users_that_fails_ends_nothing(self, bridge, error):
        class Failing:
            def write(self, text):
                raise error("ascii", text, 0, 1, "x") if error is UnicodeEncodeError else error

        bridge.announce(file=Failing())

    def test_a_stream_that_cannot_be_flushed_gets_the_lines(self, bridge):
        class Writing:
            def __init__(self):
                self.text = ""

            def write(self, text):
                self.text += text

        out = Writing()
        bridge.announce(file=out)
        assert bridge.url in out.text

    def test_when_no_page_comes_one_line_says_what_may_be_in_the_way(self, bridge, capfd, monkeypatch, tools):
        monkeypatch.setattr("ptoa_bridge.bridge.HINT_SECONDS", 0.05)
        bridge.announce(file=io.StringIO())
        lines = []
        assert tools.wait_until(lambda: lines.extend(capfd.readouterr().err.splitlines()) or lines)
        assert len(lines) == 1
        assert "Safari" in lines[0]
        assert bridge.token not in lines[0]

    @pytest.mark.parametrize("path", ["/", "/spec", "/health", "/events"])
    def test_no_hint_once_a_page_has_come(self, bridge, client, capfd, monkeypatch, path, tools):
        monkeypatch.setattr("ptoa_bridge.bridge.HINT_SECONDS", 0.3)
        bridge.announce(file=io.StringIO())
        client.get(path, method="HEAD")
        assert tools.wait_until(lambda: bridge._server._alarm is None)
        assert capfd.readouterr().err == ""

    def test_a_refused_request_is_no_page(self, bridge, client, capfd, monkeypatch, tools):
        monkeypatch.setattr("ptoa_bridge.bridge.HINT_SECONDS", 0.3)
        bridge.announce(file=io.StringIO())
        client.ask("/spec")
        assert tools.wait_until(lambda: bridge._server._alarm is None)
        assert "no page" in capfd.readouterr().err

    def test_no_hint_after_the_end(self, bridge, capfd, monkeypatch):
        monkeypatch.setattr("ptoa_bridge.bridge.HINT_SECONDS", 0.2)
        bridge.announce(file=io.StringIO())
        bridge.close()
        assert not bridge._server._thread.is_alive()
        assert capfd.readouterr().err == ""


class TestLogging:
    def test_requests_are_logged_without_the_token(self, spec, monkeypatch, capfd, make_client, tools):
        monkeypatch.setenv("PTA_DEBUG", "1")
        with Bridge(spec, token="s3cret") as bridge:
            client = make_client(bridge)
            client.get("/spec")
            client.get("/nope/s3cret")
            client.get("/s3cret%73")
            client.ask("/spec", {"X-PTA-Token": "s3cret"}, method="s3cret")
            client.raw(b"GET s3cret\r\n\r\n")
        err = capfd.readouterr().err
        assert "GET /spec: 200" in err
        assert "(unknown path): 404" in err
        assert "malformed" in err
        assert "s3cret" not in err.replace("s3cret /spec: 405", "")

    def test_nothing_is_logged_unasked(self, client, capfd):
        client.get("/spec")
        client.raw(b"\x16\x03\x01")
        assert capfd.readouterr() == ("", "")


def test_the_public_names_are_all_there():
    assert ptoa_bridge.__all__ == sorted(ptoa_bridge.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(ptoa_bridge, name) for name in ptoa_bridge.__all__)
