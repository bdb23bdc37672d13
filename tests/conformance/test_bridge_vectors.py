"""Every spec and every request of the vectors through a real bridge, over a real socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time

import pytest

from ptoa_bridge import Bridge
from ptoa_core import frames, jsontext, link, spec

LAB = "https://lab.papertoanything.com/"
TINY = '{"v":1,"name":"N","blocks":[{"id":"i0","kind":"input","params":{},"inputs":[]}],"output":"i0"}'


def read(bridge, path):
    """Status and content of a GET, asked for as a script would."""
    connection = http.client.HTTPConnection("127.0.0.1", bridge.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"X-PTA-Token": bridge.token})
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def bridges():
    """A bridge for each Lab that a vector chooses, all with the same spec."""
    tiny = spec.ModelSpec.from_json(TINY)
    with contextlib.ExitStack() as stack:
        running = {}

        def get(lab):
            if lab not in running:
                running[lab] = stack.enter_context(Bridge(tiny, lab_url=lab))
            return running[lab]

        yield get


@pytest.fixture(scope="module")
def bridge(bridges):
    return bridges(LAB)


def ask(bridge, method, path, headers):
    """Status line and headers of an answer to a request that is sent as it stands."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    request = f"{method} {path} HTTP/1.1\r\n{head}\r\n"
    request = request.replace("{port}", str(bridge.port)).replace("{token}", bridge.token)
    with socket.create_connection(("127.0.0.1", bridge.port), timeout=10) as stream:
        stream.sendall(request.encode())
        answer = http.client.HTTPResponse(stream, method=method)
        answer.begin()
        return answer.status, answer.headers


@pytest.mark.vectors("guard")
def test_guard_answers_the_table(case, bridges):
    given = case.input
    status, headers = ask(bridges(given.get("lab", LAB)), given["method"], given["path"], given["headers"])
    assert status == case.result["status"]
    assert headers.get("Access-Control-Allow-Origin") == case.result["cors"]
    assert case.result["cors"] is None or "Origin" in headers["Vary"]


@pytest.mark.vectors("guard")
def test_every_answer_carries_the_safety_headers(case, bridges):
    given = case.input
    _, headers = ask(bridges(given.get("lab", LAB)), given["method"], given["path"], given["headers"])
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.vectors("spec", "ok")
def test_bridge_serves_a_spec_and_gives_back_an_equal_one(case, bridge):
    given = spec.ModelSpec.from_json(case.data)
    bridge.set_spec(given)
    status, body = read(bridge, "/spec")
    hello = jsontext.loads(body)
    assert status == 200
    assert hello["spec"] == case.result["spec"]
    assert frames.BridgeHello.from_dict(hello).spec == given


@pytest.mark.vectors("frame", "ok", kind="trace")
def test_bridge_serves_a_trace_and_gives_back_an_equal_one(case, bridge):
    bridge.push(frames.TraceFrame.from_dict(case.result["frame"]))
    status, body = read(bridge, "/trace")
    assert (status, jsontext.loads(body)) == (200, case.result["frame"])


@pytest.mark.vectors("frame", "ok", kind="health")
def test_bridge_serves_a_health_frame_and_gives_back_an_equal_one(case, bridge):
    bridge.begin(spec.ModelSpec.from_json(TINY))
    bridge.push_health(frames.HealthFrame.from_dict(case.result["frame"]))
    assert wait_for(lambda: json.loads(read(bridge, "/health")[1])["frames"]) == [case.result["frame"]]


def wait_for(look, seconds=10):
    """What `look` finds, once it finds anything."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.mark.vectors("link", "ok")
def test_bridge_serves_what_a_link_holds(case, bridge):
    bridge.set_spec(link.from_url(case.input["text"]))
    assert jsontext.loads(read(bridge, "/spec")[1])["spec"] == case.result["spec"]
