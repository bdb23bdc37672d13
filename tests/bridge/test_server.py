"""The sockets, asked over real ones: floods, slow readers, broken clients, limits."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from pathlib import Path

import pytest

from ptoa_bridge import Bridge, server
from ptoa_bridge.server import Places, places_for

FILES = Path("/proc/self/fd")
LAB = "https://lab.papertoanything.com"


def threads_and_files():
    return threading.active_count(), len(list(FILES.iterdir()))


def more_than(before):
    """Whether there are more threads, or more open files, than before."""
    return any(now > then for now, then in zip(threads_and_files(), before, strict=True))


needs_proc = pytest.mark.skipif(not FILES.is_dir(), reason="counts files in /proc")


def test_it_listens_on_loopback_alone(bridge):
    assert bridge._server._listener.getsockname() == ("127.0.0.1", bridge.port)


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_the_other_loopback_address_works_when_it_is_asked_for(spec):
    try:
        bridge = Bridge(spec, host="::1").start()
    except OSError:
        pytest.skip("there is no ::1 here")
    with bridge, contextlib.closing(socket.create_connection(("::1", bridge.port), timeout=5)) as sock:
        assert bridge.origin == f"http://[::1]:{bridge.port}"
        sock.sendall(f"GET /spec?token={bridge.token} HTTP/1.1\r\nHost: [::1]:{bridge.port}\r\n\r\n".encode())
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


class TestRequests:
    @pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
    def test_both_versions_are_answered_and_the_connection_closed(self, client, version):
        answer = client.get("/spec", version=version)
        assert answer.status == 200
        assert answer.headers["connection"] == "close"

    def test_a_request_that_comes_byte_by_byte_is_answered(self, client):
        with contextlib.closing(client.connect()) as sock:
            for byte in client.head(f"/spec?token={client.token}"):
                sock.sendall(bytes([byte]))
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")

    def test_a_client_that_closes_its_half_still_gets_its_answer(self, client, tools):
        with contextlib.closing(client.connect()) as sock:
            sock.sendall(client.head(f"/health?token={client.token}"))
            sock.shutdown(socket.SHUT_WR)
            assert tools.answer(tools.read_all(sock)).json() == {"frames": []}

    def test_a_client_that_closes_its_half_too_early_is_closed(self, client, tools):
        with contextlib.closing(client.connect()) as sock:
            sock.sendall(b"GET /spec HT")
            sock.shutdown(socket.SHUT_WR)
            assert tools.read_all(sock) == b""

    @pytest.mark.parametrize("second", ["data", "foreign-host", "no-token", "garbage"])
    def test_a_second_request_on_a_connection_gets_nothing(self, client, tools, second):
        follow = {
            "data": client.head(f"/spec?token={client.token}"),
            "foreign-host": client.head(f"/spec?token={client.token}", host="evil.example"),
            "no-token": client.head("/spec"),
            "garbage": b"\0" * 1000,
        }[second]
        both = client.raw(client.head(f"/spec?token={client.token}", {"Connection": "keep-alive"}) + follow)
        assert both.raw.count(b"HTTP/1.1 ") == 1
        assert both.raw.count(b'"blocks"') == 1
        with contextlib.closing(client.connect()) as sock:
            sock.sendall(client.head(f"/spec?token={client.token}"))
            first = sock.recv(1 << 16)
            with contextlib.suppress(ConnectionError):
                sock.sendall(follow)
            assert (first + tools.read_all(sock)).count(b"HTTP/1.1 ") == 1

    def test_a_body_is_not_waited_for(self, client):
        start = time.monotonic()
        assert client.get("/spec", {"Content-Length": "10000000000"}).status == 200
        assert client.get("/spec", {"Transfer-Encoding": "chunked"}).status == 200
        assert client.get("/spec", {"Expect": "100-continue"}).status == 200
        assert time.monotonic() - start < 5

    def test_a_body_that_is_sent_does_not_cost_the_client_its_answer(self, client):
        head = client.head(f"/spec?token={client.token}", {"Content-Length": "3000000"})
        assert client.raw(head + b"x" * 3_000_000).status == 200
        bomb = client.head(f"/spec?token={client.token}", {"Transfer-Encoding": "chunked"})
        assert client.raw(bomb + b"ffffffff\r\n" + b"x" * 1_000_000).status == 200

    @pytest.mark.parametrize("size", [70_000, 2_000_000])
    def test_an_endless_line_is_refused_and_the_client_told(self, client, size):
        assert client.raw(b"GET /spec?token=" + b"a" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n").status == 431
        assert client.get("/spec").status == 200

    @pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\0", b"\0", b"\n", b"a\rb", b"GET / HTTP/1.1\r\n x"])
    def test_what_cannot_be_a_request_is_refused_at_its_first_byte(self, client, data):
        start = time.monotonic()
        assert client.raw(data + b"\r\n" * 2).status == 400
        assert time.monotonic() - start < server.HEAD_SECONDS - 2

    @pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get", "POST", "<b>X"])
    def test_an_odd_method_is_refused_without_an_echo(self, client, method):
        answer = client.get("/spec", {"X-Secret": "s3cr3t"}, method=method)
        assert answer.status in (400, 405)
        assert b"s3cr3t" not in answer.raw
        assert client.token.encode() not in answer.raw
        assert method.encode() + b" " not in answer.raw
        assert answer.headers["content-type"].startswith("text/plain")

    def test_three_hundred_requests_leave_nothing_behind(self, client, tools):
        client.get("/spec")
        before = threads_and_files()
        for _ in range(300):
            assert client.get("/health?since=40").status == 200
        assert tools.wait_until(lambda: not more_than(before))

    def test_the_lab_can_read_why_it_was_refused(self, client):
        answer = client.ask("/spec?token=wrong", {"Origin": LAB})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (403, LAB)


class TestFloods:
    def test_idle_connections_do_not_keep_a_request_waiting(self, client):
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    stack.enter_context(contextlib.closing(client.connect(timeout=0.5)))
            start = time.monotonic()
            assert client.get("/spec").status == 200
            tab = client.tab()
            assert tab.next()[0] == "hello"
            assert time.monotonic() - start < 1.5
            tab.close()

    def test_the_oldest_pending_connection_makes_room(self, client, bridge, tools):
        first = client.connect()
        others = [client.connect() for _ in range(40)]
        assert tools.wait_until(lambda: len(bridge._server._connections) == Places().pending)
        assert tools.read_all(first) == b""
        others[-1].sendall(client.head(f"/spec?token={client.token}"))
        assert others[-1].recv(1 << 16).startswith(b"HTTP/1.1 200")
        for sock in [first, *others]:
            sock.close()

    def test_a_head_that_does_not_arrive_is_not_waited_for(self, client, monkeypatch, tools):
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
        for start in (b"", b"GET /spec?tok", client.head("/spec")[:-2]):
            with contextlib.closing(client.connect()) as sock:
                sock.sendall(start)
                assert tools.read_all(sock) == b""

    def test_a_head_that_drips_is_not_waited_for(self, client, monkeypatch):
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
        start = time.monotonic()
        with contextlib.closing(client.connect()) as sock, contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 5:
                sock.sendall(b"X")
                if select.select([sock], [], [], 0.05)[0] and not sock.recv(100):
                    break
        assert time.monotonic() - start < 4

    def test_the_25th_tab_is_told_so_and_room_is_made_when_one_leaves(self, client, tools):
        tabs = [client.tab() for _ in range(Places().active)]
        assert {tab.status for tab in tabs} == {200}
        answer = client.get("/spec", {"Origin": LAB})
        assert answer.status == 503
        assert answer.body.count(b"\n") == 1
        assert answer.headers["access-control-allow-origin"] == LAB
        assert client.ask("/spec").status == 401
        tabs.pop().close()
        assert tools.wait_until(lambda: client.get("/spec").status == 200)
        for tab in tabs:
            tab.close()

    def test_tabs_that_come_and_go_leave_no_places_taken(self, client, bridge, tools):
        for index in range(100):
            tab = client.tab()
            assert (tab.status, tab.next()[0]) == (200, "hello")
            tools.reset(tab.sock) if index % 2 else tab.close()
        assert tools.wait_until(lambda: not bridge._subs)

    def test_a_storm_of_resets_is_silent(self, client, capfd, tools):
        for index in range(200):
            sock = client.connect()
            sock.sendall([b"", b"GET /", client.head(f"/events?token={client.token}"), b"\0"][index % 4])
            tools.reset(sock)
        assert client.get("/spec").status == 200
        assert capfd.readouterr() == ("", "")

    def test_a_reset_in_the_middle_of_an_answer_is_silent(self, client, bridge, capfd, tools):
        for step in range(500):
            bridge.push_health(tools.padded(step, 6000))
        for _ in range(6):
            sock = client.connect(rcvbuf=4096)
            sock.sendall(client.head(f"/health?token={client.token}"))
            sock.recv(100)
            tools.reset(sock)
        assert tools.wait_until(lambda: not bridge._server._in_stage(server.Stage.BODY))
        assert client.get("/spec").status == 200
        assert capfd.readouterr() == ("", "")

    def test_a_head_request_for_events_leaves_no_tab(self, client, bridge):
        for _ in range(5):
            answer = client.get("/events", method="HEAD")
            assert (answer.status, answer.body) == (200, b"")
        assert not bridge._subs


class TestTabs:
    def test_twenty_tabs_get_every_frame_in_order(self, bridge, client, tools):
        tabs = [client.tab() for _ in range(20)]
        for step in range(200):
            bridge.push_health(tools.frame(step))
        assert [tab.steps(200) for tab in tabs] == [list(range(200))] * 20
        for tab in tabs:
            tab.close()

    def test_a_tab_resumes_where_it_was(self, bridge, client, tools):
        tab = client.tab()
        for step in range(0, 100, 10):
            bridge.push_health(tools.frame(step))
        seen = tab.steps(4)
        tab.close()
        for step in (5, 6):
            bridge.push_health(tools.frame(step))
        again = client.tab({"Last-Event-ID": str(seen[-1])})
        assert again.next()[0] == "hello"
        assert again.steps(8) == [40, 50, 60, 70, 80, 90, 5, 6]
        bridge.push_health(tools.frame(7))
        assert again.steps(1) == [7]
        again.close()

    @pytest.mark.parametrize("text", ["abc", "", "9" * 400, "\xff", "-5", "1.5", "1;2"], ids=ascii)
    def test_a_nonsense_id_starts_afresh(self, client, text):
        tab = client.tab({"Last-Event-ID": text})
        assert (tab.status, tab.next()[0]) == (200, "hello")
        tab.close()

    def test_a_tab_before_the_spec_is_greeted_when_it_comes(self, make_client, spec, tools):
        with Bridge() as bridge:
            tab = make_client(bridge).tab()
            bridge.push_health(tools.frame(1))
            assert tab.next()[0] == "health"
            bridge.set_spec(spec)
            name, step, data = tab.next()
            assert (name, step, json.loads(data)["spec"]) == ("hello", None, spec)
            bridge.set_spec(spec)
            name, step, data = tab.next()
            assert (name, step, json.loads(data)) == ("spec", None, spec)
            tab.close()

    def test_a_tab_that_never_reads_is_disconnected_and_another_is_not(
        self, bridge, client, tools, monkeypatch
    ):
        monkeypatch.setattr(server, "LATE_SECONDS", 0.2)
        bad = client.tab(rcvbuf=4096)
        good = client.tab()
        steps = []
        reader = threading.Thread(target=lambda: steps.extend(good.steps(300)))
        reader.start()
        for step in range(300):
            bridge.push_health(tools.padded(step, 50_000))
        reader.join(20)
        assert steps == list(range(300))
        assert tools.wait_until(lambda: len(bridge._subs) == 1)
        got = bad.steps(300)
        assert got == list(range(len(got)))
        assert len(got) < 300
        assert bad.ended
        resumed = client.tab({"Last-Event-ID": str(got[-1])})
        assert resumed.steps(300 - len(got)) == list(range(len(got), 300))
        for tab in (bad, good, resumed):
            tab.close()

    def test_a_fault_with_one_tab_ends_no_other(self, bridge, client, capfd, tools, monkeypatch):
        one, other = client.tab(), client.tab()
        broken = next(iter(bridge._server.tabs)).tab
        after = bridge._log.after

        def failing(tab):
            if tab is broken:
                raise MemoryError
            return after(tab)

        monkeypatch.setattr(bridge._log, "after", failing)
        bridge.push_health(tools.frame(7))
        assert sorted([one.steps(1), other.steps(1)]) == [[], [7]]
        assert client.get("/spec").status == 200
        assert capfd.readouterr().err == "ptoa-bridge: a request failed: MemoryError: \n"
        one.close()
        other.close()

    def test_a_burst_alone_does_not_disconnect_a_tab(self, bridge, client, tools):
        tab = client.tab()
        for step in range(200):
            bridge.push_health(tools.padded(step, 50_000))
        assert tab.steps(200) == list(range(200))
        tab.close()

    def test_one_frame_of_many_megabytes_reaches_every_tab(self, bridge, client, tools, monkeypatch):
        monkeypatch.setattr(server, "LATE_SECONDS", 60)  # the tabs are read one after another
        tabs = [client.tab() for _ in range(3)]
        bridge.push_health(tools.padded(1, 9_000_000))
        bridge.push({"step": 2, "tensors": [{"key": "a" * 9_000_000}]})
        bridge.push_health(tools.frame(3))
        for tab in tabs:
            sizes = {}
            while len(sizes) < 3:
                name, step, data = tab.next(20)
                if name != "hello":
                    sizes[step] = len(data)
            assert sizes[1] > 9_000_000
            assert sizes[2] > 9_000_000
            tab.close()

    def test_a_stalled_download_gives_its_place_back(self, bridge, client, tools, monkeypatch):
        monkeypatch.setattr(server, "STALL_SECONDS", 0.3)
        for step in range(200):
            bridge.push_health(tools.padded(step, 50_000))
        sock = client.connect(rcvbuf=4096)
        sock.sendall(client.head(f"/health?token={client.token}"))
        assert tools.wait_until(lambda: bridge._server._in_stage(server.Stage.BODY))
        assert tools.wait_until(lambda: not bridge._server._connections)
        sock.close()

    def test_a_quiet_tab_is_kept_alive_and_not_taken_for_a_stalled_one(
        self, client, bridge, tools, monkeypatch
    ):
        monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0.1)
        monkeypatch.setattr(server, "STALL_SECONDS", 0.2)
        tab = client.tab()
        tab.next()
        comments = b""
        while comments.count(b": keep-alive\n\n") < 5:
            comments += tab.sock.recv(100)
        bridge.push_health(tools.padded(1, 2_000_000))
        assert tab.steps(1) == [1]
        tab.close()

    def test_a_tab_that_talks_is_read_and_ignored(self, client, bridge, tools):
        tab = client.tab()
        tab.next()
        tab.sock.sendall(client.head("/spec") * 20)
        bridge.push_health(tools.frame(1))
        assert tab.steps(1) == [1]
        tab.close()

    def test_a_clock_that_jumps_changes_nothing(self, client, monkeypatch):
        tab = client.tab()
        tab.next()
        monkeypatch.setattr(time, "time", lambda: 10.0**12)
        assert client.get("/spec").status == 200
        assert tab.next(0.2) is None
        assert not tab.ended
        tab.close()


class TestPlaces:
    @pytest.mark.parametrize("limit", [0, -1, 1024, 4096, 10**6])
    def test_with_enough_files_there_are_32_and_24(self, limit):
        assert places_for(limit) == Places(32, 24)

    @pytest.mark.parametrize("limit", [1, 16, 32, 64, 100, 128, 200, 256, 300])
    def test_with_few_files_most_are_left_to_the_process(self, limit):
        places = places_for(limit)
        assert places.pending >= 4
        assert places.active >= 3
        assert places.pending + places.active <= max(7, limit // 4)

    def test_a_port_without_free_files_is_left_alone_for_a_moment(self, bridge, client, monkeypatch, tools):
        """An accept that fails must not be tried again at once: the listener stays ready."""
        listener = bridge._server._listener
        failed = []

        class Full:
            """A listener of a process that has no file handle left."""

            def accept(self):
                failed.append(time.monotonic())
                raise OSError(24, "Too many open files")

            def __getattr__(self, name):
                return getattr(listener, name)

        bridge._server._selector.modify(listener, select.EPOLLIN, bridge._server._accept)
        bridge._server._listener = Full()
        sock = client.connect()
        assert tools.wait_until(lambda: len(failed) >= 3)
        assert failed[2] - failed[0] > 0.5
        bridge._server._listener = listener
        sock.sendall(client.head(f"/spec?token={client.token}"))
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
        sock.close()


@needs_proc
def test_fifty_bridges_leave_no_thread_and_no_file(spec, tools):
    Bridge(spec).start().close()
    before = threads_and_files()
    for _ in range(50):
        bridge = Bridge(spec).start()
        bridge.push_health(tools.frame(1))
        bridge.close()
    assert tools.wait_until(lambda: not more_than(before))


def test_several_bridges_run_side_by_side(spec, make_client, tools):
    with contextlib.ExitStack() as stack:
        bridges = [stack.enter_context(Bridge(spec)) for _ in range(5)]
        for number, bridge in enumerate(bridges):
            bridge.push_health(tools.frame(number))
        for number, bridge in enumerate(bridges):
            assert make_client(bridge).get("/health").json()["frames"] == [tools.frame(number)]
            other = bridges[number - 1]
            assert make_client(bridge).ask(f"/spec?token={other.token}").status == 403


def test_a_bridge_started_in_a_thread_works(spec, make_client):
    started = []
    thread = threading.Thread(target=lambda: started.append(Bridge(spec).start()))
    thread.start()
    thread.join()
    assert make_client(started[0]).get("/spec").status == 200
    started[0].close()
