"""What the docs show runs: the README and every page, in a reader's order, in one folder."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import reader_order
from cli_program import Program, Ran

from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import options_of
from qframe.options.settings import Settings

ROOT = reader_order.ROOT
README = ROOT / "README.md"
QUICK_START = ROOT / "docs" / "quickstart.md"
ELSEWHERE = {"spark.md"}  # its Python is run in tests/spark, where there is a JVM
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
IN_ORDER = [README, *(page for _, page in reader_order.users_pages())]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
CODE = re.compile(r"`[^`\n]+`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
DATABASE = re.compile(r"sqlite(?:\+aiosqlite)?:///([\w./-]+)")
BROUGHT = {"aiosqlite", "opentelemetry-api", "prometheus-client", "pyspark", "qframe", "sqlalchemy"}
UNLISTED = {"__init__", "__pycache__", "command_line"}
STRICT = "import warnings\n\nwarnings.simplefilter('error')\n\n"


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [body for found, body in BLOCK.findall(text) if found == language]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(folder: Path, module: str, program: str) -> Ran:
    """Runs a page's Python as a reader does who has saved it in the folder."""
    here = Program(folder)
    here.write(f"{module}.py", program)
    return here.run(module=module)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one folder in which a reader tries page after page."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize(
    "page",
    [page for page in IN_ORDER if blocks(page, "python") and page.name not in ELSEWHERE],
    ids=name_of,
)
def test_a_page_runs_in_the_folder_where_those_before_it_ran(page: Path, folder: Path) -> None:
    module = "shop" if page == README else f"page_{page.stem.replace('-', '_')}"
    ran = run(folder, module, STRICT + "\n\n".join(blocks(page, "python")))
    assert ran.code == 0, ran.err
    if page == README:
        billed = re.findall(r"billed (customer-\d): (\d+)", ran.out)
        assert [int(number) for name, number in billed if name == "customer-0"] == [0, 60, 120]
        assert [int(number) for name, number in billed if name == "customer-1"] == [30, 90, 150]


def test_the_quick_start_runs_twice_in_the_same_folder(tmp_path: Path) -> None:
    program = STRICT + "\n\n".join(blocks(QUICK_START, "python"))
    for _ in range(2):
        ran = run(tmp_path, "page", program)
        assert ran.code == 0, ran.err


def test_the_quick_starts_service_serves_its_commands(folder: Path) -> None:
    """In the folder where README's shop.py has run, which this one replaces."""
    [module] = blocks(QUICK_START, "py")
    [terminal] = [each for each in blocks(QUICK_START, "") if "qframe publish" in each]
    here = Program(folder)
    here.write("shop.py", module)
    here.ok("worker", "shop", "--burst")
    store = {"QFRAME_STORE": "sqlite:///shop.db"}
    commands = re.findall(r"^\$ qframe (.+)$", terminal, re.MULTILINE)
    for command in commands[:2]:
        here.ok(*shlex.split(command), **store)
    assert "billed order 7 of ann" in here.ok("worker", "shop", "--burst").out
    for command in commands[2:]:
        here.ok(*shlex.split(command), **store)
    assert len(commands) == 5


def test_the_outbox_commands_take_the_pages_module(tmp_path: Path) -> None:
    page = ROOT / "docs" / "outbox.md"
    ran = run(tmp_path, "outbox_shop", STRICT + "\n".join(blocks(page, "python")))
    assert ran.code == 0, ran.err
    commands = re.findall(
        r"^\| `qframe (outbox list [^`]+)`", page.read_text("utf-8"), re.MULTILINE
    )
    assert len(commands) == 2
    for command in commands:
        Program(tmp_path).ok(*shlex.split(command))


@pytest.mark.parametrize("page", IN_ORDER, ids=name_of)
def test_a_page_runs_by_itself_and_ends_with_links_to_its_neighbours(page: Path) -> None:
    """It has databases of its own, and imports what `qframe[all]` brings or says what else."""
    text = page.read_text(encoding="utf-8")
    known = {
        *sys.stdlib_module_names,
        "opentelemetry",
        *(each.replace("-", "_") for each in BROUGHT),
    }
    for block in blocks(page, "python"):
        before = text.partition(block)[0]
        for name in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE):
            assert name in known or f"`pip install {name}`" in before, name
        assert set(re.findall(r"sqlite\+(\w+):", block)) <= BROUGHT
        own = "shop" if page == README else page.stem
        others = [name for name in DATABASE.findall(block) if not name.startswith(own)]
        assert others == [], "they may be another page's"
    if page != README:  # `python tests/reader_order.py` writes them
        assert text.endswith(f"\n{reader_order.last_line(page)}\n")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_headings_and_files_that_a_page_names_exist(page: Path) -> None:
    whole = page.read_text(encoding="utf-8")
    for link, anchor in LINK.findall(CODE.sub("", BLOCK.sub("", whole))):
        if ":" not in link:
            file = page.parent / link if link else page
            assert file.exists(), link
            assert not anchor or anchor in anchors(file), f"{link}#{anchor}"
    for name in re.findall(r"`((?:tests|qframe|examples)/[\w/.]*)`", whole):
        assert (ROOT / name).exists(), name


def test_what_the_pages_import_is_what_qframe_all_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = re.findall(r"[\w-]+", extras["all"][0].partition("[")[2])
    required = [*project["dependencies"], *(each for extra in named for each in extras[extra])]
    brought = {re.split(r"[^\w-]", each)[0] for each in required}
    assert {"qframe"} == BROUGHT - brought


def test_every_page_is_in_the_index() -> None:
    listed = {page.name for page in IN_ORDER}
    contributors = set((ROOT / "docs" / "contributors").glob("*.md"))
    for page in set(PAGES) - contributors:
        assert page.name in {*listed, "index.md"}, f"docs/index.md does not list {page.name}"
    text = reader_order.INDEX.read_text(encoding="utf-8")
    for page in contributors:
        assert f"(contributors/{page.name})" in text


def test_every_example_is_in_the_index() -> None:
    text = reader_order.INDEX.read_text(encoding="utf-8")
    for each in (ROOT / "examples").iterdir():
        if each.suffix in ("", ".py") and each.stem not in UNLISTED:
            assert re.search(rf"`(examples/)?{each.stem}(\.py)?`", text), each.name


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name_of)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text = "\n".join(blocks(page, "console"))
    commands = re.findall(r"^\$ qframe (.+)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        ran = Program(tmp_path).run(*shlex.split(command))
        assert ran.code == 0, ran.err


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"[^\w\- ]", "", each.lower()) for each in HEADING.findall(text)]
    return {each.replace(" ", "-") for each in headings} | set(re.findall(r'<a id="(\w+)">', text))


def test_the_pages_that_code_names_exist() -> None:
    sources = [*(ROOT / "qframe").rglob("*.py"), *(ROOT / "qframe").rglob("*.lua")]
    for source in sources:
        for name in re.findall(r"docs/[\w/-]+\.md", source.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{source.relative_to(ROOT)} names {name}"


def test_the_options_in_the_docs_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if line.startswith("| `")]
    lines = [
        f"| `{each.name}` | {each.rule.text} | {each.shown_default} | {each.help} |"
        for options in (Settings, ConsumerOptions)
        for each in options_of(options).values()
    ]
    expected = [line.replace("  ", " ") for line in lines]
    assert shown == expected


def test_what_is_published_of_the_project_is_named_from_its_root() -> None:
    """A name alone stands for all files of it: the licence of a library of the tests was there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    published = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert "/LICENSE" in published
    assert [each for each in published if not each.startswith("/")] == []
