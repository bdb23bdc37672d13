"""`show`: a link, a bridge or a file, each said on standard output."""

from __future__ import annotations

import re
import warnings

import pytest

import papertoanything as ptoa
from papertoanything.show import link_for, save_new


@pytest.fixture
def opened(monkeypatch):
    """The addresses that a browser would have been opened with."""
    import ptoa_bridge

    addresses = []
    monkeypatch.setattr(ptoa_bridge, "open_in_browser", addresses.append)
    return addresses


@pytest.mark.parametrize("mode", ["auto", "link"])
def test_a_link_is_printed_opened_and_returned(folder, capsys, opened, spec, mode):
    url = ptoa.show(spec(), mode=mode)
    assert capsys.readouterr().out == url + "\n"
    assert opened == [url]
    assert ptoa.from_url(url).to_dict() == spec()


def test_no_browser_is_opened_when_none_is_wanted(folder, capsys, opened, spec):
    ptoa.show(spec(), open_browser=False)
    assert opened == []


@pytest.mark.parametrize("mode", ["", "LINK", "web", None, 3], ids=repr)
def test_an_unknown_mode_is_refused_and_the_modes_are_named(spec, mode):
    with pytest.raises(ValueError, match="'auto', 'link', 'local', 'file'"):
        ptoa.show(spec(), mode=mode)


@pytest.mark.parametrize("mode", ["link", "local", "file"])
@pytest.mark.parametrize("bad", [None, 3, {"v": 1}], ids=repr)
def test_what_is_no_model_is_refused_and_nothing_is_left(folder, capsys, opened, mode, bad):
    with pytest.raises(ValueError, match=r"\S"):
        ptoa.show(bad, mode=mode)
    assert [path.name for path in folder.iterdir()] == ["spec.json"]
    assert opened == []
    assert capsys.readouterr().out == ""


def test_a_long_link_warns_and_names_file_mode(folder, capsys, opened, spec):
    import random

    letters = random.Random(1)
    blocks = spec()["blocks"] + [
        {"id": f"g{i}", "kind": "group", "label": str(letters.random()), "params": {}, "inputs": []}
        for i in range(4000)
    ]
    with pytest.warns(UserWarning, match='mode="file"') as caught:
        url = ptoa.show(spec(blocks=blocks))
    assert len(url) > 32_000
    assert caught[0].filename == __file__


def test_a_link_of_usual_length_does_not_warn(folder, capsys, opened, spec):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ptoa.show(spec())


def test_lab_url_comes_before_the_environment(folder, capsys, opened, monkeypatch, spec):
    monkeypatch.setenv("PTA_LAB_URL", "https://one.example/")
    assert ptoa.show(spec()).startswith("https://one.example/#s=")
    assert ptoa.show(spec(), lab_url="https://two.example/").startswith("https://two.example/#s=")


@pytest.mark.parametrize(
    "lab", ["http://example.org/", "https://a@b/", "file:///x", "https://x/?q", ""], ids=repr
)
def test_an_address_that_is_no_lab_is_refused(folder, opened, spec, lab):
    with pytest.raises(ValueError, match="lab_url"):
        ptoa.show(spec(), lab_url=lab)
    assert opened == []


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_the_local_lab_gets_its_links_from_one_bridge(folder, capsys, opened, monkeypatch, spec, by):
    if by == "environment":
        monkeypatch.setenv("PTA_LAB_URL", "local")
    lab = "local" if by == "argument" else None
    first, second = ptoa.show(spec(), lab_url=lab), ptoa.show(spec(name="other"), lab_url=lab)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#s=[A-Za-z0-9_-]+", first)
    assert first.partition("#")[0] == second.partition("#")[0]
    assert ptoa.from_url(second).name == "other"
    assert opened == [first, second]


def test_a_bridge_is_announced_with_its_addresses(folder, capsys, spec):
    with ptoa.show(spec(), mode="local", open_browser=False) as server:
        out = capsys.readouterr().out
        assert server.url in out
        assert server.local_url in out
        assert server.spec.to_dict() == spec()


def test_a_file_is_written_under_the_models_name(folder, capsys, spec):
    assert ptoa.show(spec(), mode="file") == "s.pta"
    assert "s.pta" in capsys.readouterr().out
    assert ptoa.load("s.pta")[0].to_dict() == spec()


def test_a_file_that_is_there_is_left_alone(folder, capsys, spec):
    (folder / "s.pta").write_text("mine")
    (folder / "s-2.pta").symlink_to("nowhere")
    assert ptoa.show(spec(), mode="file") == "s-3.pta"
    assert (folder / "s.pta").read_text() == "mine"
    assert not (folder / "nowhere").exists()


def test_a_given_path_is_used_as_it_is(folder, capsys, spec):
    (folder / "mine.pta").write_text("old")
    assert ptoa.show(spec(), mode="file", path="mine.pta") == "mine.pta"
    assert ptoa.load("mine.pta")[0].name == "s"


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a\x1b[2Jb", "x" * 1000], ids=ascii)
def test_a_strangers_name_stays_in_the_folder_and_off_the_terminal(folder, capsys, spec, name):
    path = ptoa.show(spec(name=name), mode="file")
    assert {p.name for p in folder.iterdir()} == {"spec.json", path}
    assert "\x1b" not in capsys.readouterr().out


def test_a_file_that_cannot_be_written_leaves_nothing(folder, spec, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ptoa_core.files.save", full)
    with pytest.raises(OSError, match="No space"):
        save_new(ptoa.as_spec(spec()))
    assert [p.name for p in folder.iterdir()] == ["spec.json"]


def test_link_for_takes_the_lab_of_the_environment(folder, monkeypatch, spec):
    monkeypatch.setenv("PTA_LAB_URL", "https://lab.example/x")
    assert link_for(ptoa.as_spec(spec())).startswith("https://lab.example/x#s=")


class TestWithAModel:
    """The same with a module, where PyTorch is installed."""

    @pytest.fixture
    def net(self):
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    @pytest.fixture
    def x(self):
        return pytest.importorskip("torch").ones(1, 4)

    def test_a_link_holds_the_architecture(self, folder, capsys, opened, net, x):
        kinds = [block.kind for block in ptoa.from_url(ptoa.show(net, x)).blocks]
        assert kinds.count("linear") == 2

    def test_a_bridge_holds_one_captured_forward_pass(self, folder, capsys, net, x):
        import json
        import urllib.request

        with (
            ptoa.show(net, x, mode="local", open_browser=False) as server,
            urllib.request.urlopen(f"{server.origin}/trace?token={server.token}", timeout=10) as answer,
        ):
            trace = ptoa.TraceFrame.from_dict(json.load(answer))
        last = server.spec.output
        assert trace.tensor(f"{last}:out").values() == pytest.approx(net(x).flatten().tolist())

    def test_a_file_holds_one_captured_forward_pass(self, folder, capsys, net, x):
        spec, trace = ptoa.load(ptoa.show(net, x, mode="file"))
        assert trace.tensor(f"{spec.output}:out").values() == pytest.approx(net(x).flatten().tolist())

    def test_save_records_the_forward_pass_too(self, folder, net, x):
        spec, trace = ptoa.load(ptoa.save(net, "x.pta", example_input=x))
        assert trace.tensor(f"{spec.output}:out").shape == [1, 2]

    def test_the_model_is_left_as_it_was(self, folder, capsys, opened, net, x):
        net[1].eval()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        for mode in ("link", "file"):
            ptoa.show(net, x, mode=mode)
        assert [module.training for module in net] == [True, False, True]
        assert all((net.state_dict()[key] == value).all() for key, value in before.items())

    def test_watch_trace_shows_the_model_on_a_bridge_that_had_none(self, folder, net, x):
        with ptoa.serve() as server, server.watch_trace(net, x, every=1) as traces:
            traces.step()
            assert len(server.spec.blocks) >= 3

    def test_a_bridge_watches_a_model(self, folder, capsys, net, x):
        import torch

        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with ptoa.serve() as server:
            with server.watch(net, optimizer, every=1, open=False, run_file=False) as watch:
                for _ in range(3):
                    loss = net(x).sum()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    watch.step(loss)
            assert watch.server is server
            assert [frame.step for frame in watch.frames] == [0, 1, 2]
