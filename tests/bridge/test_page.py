"""The local page's files: only those of the build, under the names that they had at the start."""

from __future__ import annotations

import pytest

from ptoa_bridge.page import SECURITY_POLICY, read_pages


@pytest.fixture
def built(tmp_path):
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<p>page")
    (folder / "assets" / "index-a1_B2.js").write_text("1")
    (folder / "assets" / "index.css").write_text("p{}")
    return folder


def test_the_build_is_served_under_its_own_names(built):
    pages = read_pages(built)
    assert sorted(pages) == ["/", "/assets/index-a1_B2.js", "/assets/index.css"]
    assert pages["/"].body == b"<p>page"
    assert pages["/assets/index.css"].content_type == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "name", [".hidden.js", "a b.js", "a%2e.js", "a.py", "a.html.bak", "a", "é.js", "-a.js", "a?.js"]
)
def test_a_file_with_another_kind_of_name_is_left_out(built, name):
    (built / "assets" / name).write_text("secret")
    assert len(read_pages(built)) == 3


def test_links_and_folders_are_left_out(built, tmp_path):
    (tmp_path / "secret.js").write_text("secret")
    (built / "assets" / "link.js").symlink_to(tmp_path / "secret.js")
    (built / "assets" / "dangling.js").symlink_to(tmp_path / "nothing.js")
    (built / "assets" / "folder.js").mkdir()
    assert len(read_pages(built)) == 3


def test_files_are_read_once(built):
    pages = read_pages(built)
    (built / "index.html").write_text("changed")
    (built / "assets" / "new.js").write_text("new")
    assert pages["/"].body == b"<p>page"
    assert "/assets/new.js" not in pages


def test_without_a_build_the_page_says_how_to_build_it(tmp_path):
    pages = read_pages(tmp_path / "nowhere")
    assert list(pages) == ["/"]
    assert pages["/"].content_type.startswith("text/plain")
    assert b"npm run build" in pages["/"].body


def test_the_policy_lets_the_page_load_from_the_bridge_alone():
    rules = dict(rule.split(" ", 1) for rule in SECURITY_POLICY.split("; "))
    sources = {source for value in rules.values() for source in value.split()}
    assert sources == {"'none'", "'self'", "data:", "blob:", "'script'"}
    assert (
        rules["default-src"]
        == rules["frame-ancestors"]
        == rules["base-uri"]
        == rules["form-action"]
        == "'none'"
    )
    assert rules["script-src"] == rules["connect-src"] == rules["style-src"] == "'self'"
