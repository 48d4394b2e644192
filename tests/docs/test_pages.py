"""What CONTRIBUTING and the other pages say of the tree is so."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.readme import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "spec" / "decisions").glob("*.md"))
)]  # fmt: skip


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_tree_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", text(page))
    assert [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_the_tree_that_is_named_exists(page: str) -> None:
    named = re.findall(r"`((?:jobqueue|model|spec|stress|tests)/[\w./-]*)`", text(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_folder_of_tests_is_told_of() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert {folder for folder in folders if f"`tests/{folder}/`" not in text("CONTRIBUTING.md")} == set()


def test_the_changelog_has_the_version_that_is_packaged() -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    assert f"## [{version}]" in text("CHANGELOG.md")


def test_the_licence_is_the_one_that_is_packaged() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert text("LICENSE").startswith("MIT License\n\nCopyright (c) 2026 The jobqueue authors\n")
