"""`step.report(...)`: the page, by its structure, and in a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SECTIONS = ("overview", "source", "graph", "kernels", "roofline", "memory")
VOID = ("meta", "link", "input", "br")


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        gate = lucid.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        return g * gate * (1 + x * (1 - gate))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + Swish.apply(self.mlp(self.norm(x)))


def trained(depth: int) -> tuple[Any, tuple[lucid.Tensor, lucid.Tensor]]:
    lucid.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(depth)], nn.Linear(16, 5))
    opt = lucid.optim.AdamW(model.parameters())

    @lucid.compile
    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y)  # <&> "
        loss.backward()
        opt.step()
        return loss

    batch = lucid.randn(2, 7, 16), lucid.zeros(14, dtype=lucid.int64)
    step(*batch)
    return step, batch


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    step, batch = trained(6)
    path = tmp_path_factory.mktemp("report") / "step.html"
    return step.report(path, *batch, calls=3), path


class Elements(HTMLParser):
    """All elements, whose ends are checked; and the page's texts by the element around them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


def elements(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    found.close()
    assert not found.open
    return found


def test_the_page_is_complete_and_needs_nothing_else(page: tuple[Any, Path]) -> None:
    report, path = page
    text = path.read_text(encoding="utf-8")
    assert text == report.html and 20_000 < len(text.encode()) < 2_000_000
    found = elements(text)
    sections = [a["id"] for tag, a in found.found if tag == "section"]
    assert tuple(sections) == SECTIONS
    links = [a["href"] for tag, a in found.found if tag == "a"]
    assert links == [f"#{name}" for name in SECTIONS]
    for tag, attributes in found.found:
        for name in ("src", "href", "data", "action"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:")) or not value, (tag, value)
    assert "url(" not in text and "@import" not in text and "fetch(" not in text
    assert re.findall(r"https?://[^\s\"'<]+", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert "<!--" not in text.replace("<!DOCTYPE", "")


def test_what_it_says_is_what_explain_and_profile_say(page: tuple[Any, Path]) -> None:
    report, path = page
    found = elements(path.read_text(encoding="utf-8"))
    cells = [text for tag, text in found.texts if tag == "td"]
    assert len(report.profile.rows) == len(report.explanation.kernels)
    for kernel in report.explanation.kernels[:20]:
        assert ", ".join(kernel.ops) in cells and kernel.place in cells
    rows = [a for tag, a in found.found if tag == "circle" and a.get("fill-opacity")]
    assert len(rows) > 20
    codes = [text for tag, text in found.texts if tag == "code"]
    source = next(x for x in codes if "F.cross_entropy(model(x)" in x)
    assert source.endswith('# <&> "')
    data = next(text for tag, text in found.texts if tag == "script" and text.startswith("{"))
    graph = json.loads(data)
    names = [node[0] for node in graph["graph"]]
    assert len(names) == len(report.program.recorded.nodes)
    assert {node[2] for node in graph["graph"]} == {"forward", "backward", "update"}
    assert any(node[3].startswith("model.0.attention") for node in graph["graph"])
    assert {"Swish", "Swish.backward", "LayerNorm"} <= graph["functions"].keys()
    assert {node[5] for node in graph["graph"]} >= {"Swish", "Swish.backward"}


def test_without_arguments_nothing_is_called_and_times_are_expected_ones() -> None:
    step, _ = trained(1)
    calls = step.stats.calls
    report = step.report()
    assert step.stats.calls == calls and report.profile is None
    assert "expected by shapes: pass arguments to measure" in report.html
    html = report._repr_html_()
    assert html.startswith('<iframe src="data:text/html;base64,') and elements(html)
    assert repr(report) == "<report on step(x: f32[2,7,16], y: i64[14])>"


def test_the_graph_of_kernels_is_drawn(tmp_path: Path) -> None:
    step, _ = trained(1)
    graph = step.kernel_graph()
    step.export_kernel_graph(tmp_path / "k.svg")
    picture = ElementTree.fromstring((tmp_path / "k.svg").read_text())
    space = "{http://www.w3.org/2000/svg}"
    places = [(int(x.get("x")), int(x.get("y"))) for x in picture.iter(f"{space}rect")]
    assert len(places) == len(graph) == len(set(places))
    assert len(list(picture.iter(f"{space}path"))) == graph.number_of_edges()
    with pytest.raises(lucid.ArgumentError, match=r"networkx writes step.kernel_graph"):
        step.export_kernel_graph(tmp_path / "k.png")


# In a browser -------------------------------------------------------------------------------

ACTIONS = """<script>
const said = {};
said.parts = [...document.querySelectorAll("#tree > details > summary")].map(x => x.textContent);
const box = document.getElementById("find");
box.value = "= matmul";
box.dispatchEvent(new Event("input"));
box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
said.hit = document.querySelector(".hit").textContent;
said.open = document.querySelectorAll("#tree details[open]").length;
document.querySelector(".hit a").click();
said.next = document.querySelector(".hit").textContent;
const titles = [...document.querySelectorAll("#kernel-table th button")];
const column = titles.findIndex(x => x.textContent === "µs");
titles[column].click(); titles[column].click();
const rows = [...document.querySelectorAll("#kernel-table tbody tr")];
said.times = rows.map(row => Number(row.cells[column].textContent));
const filter = document.querySelector("input[data-filters]");
filter.value = "softmax or whatever";
filter.dispatchEvent(new Event("input"));
said.shown = rows.filter(row => !row.hidden).length;
for (let closed = [1]; closed.length;) {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const x of closed) { if (x.fill) x.fill(); x.open = true; }
}
said.nodes = document.querySelectorAll("#tree .node").length;
said.focusable = titles.every(x => x.tabIndex === 0);
document.body.dataset.said = JSON.stringify(said);
</script></body>"""


def opened(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    command += ["--disable-sync", "--disable-quic"]  # it has nothing to ask the network for
    command += ["--enable-logging=stderr", f"--user-data-dir={path.parent / 'profile'}", *options]
    return subprocess.run(
        [*map(str, command), path.as_uri()], capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_browser_opens_it_without_errors_and_its_controls_work(page: tuple[Any, Path]) -> None:
    report, path = page
    shown = opened(path, "--window-size=1300,4000", f"--screenshot={path.with_suffix('.png')}")
    assert "CONSOLE" not in shown.stderr and path.with_suffix(".png").stat().st_size > 50_000
    acted = path.with_name("acted.html")
    acted.write_text(report.html.replace("</body>", ACTIONS), encoding="utf-8")
    found = opened(acted, "--dump-dom")
    assert "CONSOLE" not in found.stderr
    (said,) = [a for tag, a in elements_of(found.stdout) if "data-said" in a]
    result = json.loads(said["data-said"] or "")
    assert [x.split()[0] for x in result["parts"]] == ["forward", "backward", "update"]
    assert " = matmul " in result["hit"]
    assert result["open"] >= 3 and result["hit"] != result["next"]
    assert result["times"] == sorted(result["times"], reverse=True) and result["shown"] == 0
    assert result["nodes"] >= len(report.program.recorded.nodes) and result["focusable"]


def elements_of(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = HTMLParser()
    found: list[tuple[str, dict[str, str | None]]] = []
    parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))  # type: ignore[method-assign]
    parser.feed(text)
    return found


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_browser_says_what_is_wrong_with_a_broken_page(tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text("<body><script>nothing.at.all()</script></body>")
    assert "CONSOLE" in opened(path, "--dump-dom").stderr
