"""Figures of a board: grouped bars from records and published tables, as SVG and PNG.

Which board has a figure, and what it shows, is data (`FIGURES`). Published bars are pale and
hatched and have no interval; measured ones are solid and carry their 95% interval. The same
figures give the same bytes, given the same matplotlib and font; text is drawn as outlines, with
one font that has every character, so that no viewer shows boxes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from harness.errors import StoreError, UsageError, missing_dependency
from harness.records import RecordSet
from harness.report.printed import beside
from harness.report.published import PublishedTable
from harness.report.summary import summarise

FOLDER = "figures"
FORMATS = ("svg", "png")
_FONT_PACKAGE = "noto_cjk_sans_jp_regular"  # OFL; has all of Chinese, Japanese and Korean
_SYSTEM_FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "Noto Sans CJK JP")
_COLOURS = (("#1f5a99", "#c7d6e6"), ("#d9822b", "#f6e0ca"), ("#3d8b5f", "#cfe2d7"))
"""Solid and pale; pale is opaque, as matplotlib's SVG loses a hatch on a transparent ground."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What the figure of a board shows.

    Attributes:
        panels: (task, title), one beside the other.
        metrics: (metric, label): the bars of a group.
        retriever: Measured rows with another one are left out: it is part of the protocol.
        published, measured: Words of the legend.
    """

    title: str
    panels: tuple[tuple[str, str], ...]
    metrics: tuple[tuple[str, str], ...]
    axis: str
    retriever: str
    published: str
    measured: str


FIGURES = {
    "railway_rag": Figure(
        title="图 1  RAG Top-5 及 RAG Top-3 场景下各模型的评测结果",
        panels=(("railway_rag_top5", "RAG Top-5"), ("railway_rag_top3", "RAG Top-3")),
        metrics=(("answer_accuracy", "答案准确率"), ("page_accuracy", "页码准确率")),
        axis="准确率",
        retriever="published",
        published="原文公布",
        measured="本次实测，95% 置信区间",
    ),
    "railway_demo": Figure(
        title="Railway demo: answer and page from the top 5 and the top 3",
        panels=(("railway_demo_top5", "RAG top-5"), ("railway_demo_top3", "RAG top-3")),
        metrics=(("answer_accuracy", "answer accuracy"), ("page_accuracy", "page accuracy")),
        axis="accuracy",
        retriever="bm25",
        published="published",
        measured="measured, 95% interval",
    ),
}
"""By board."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `low` and `high` are None for published ones and where there is no interval."""

    task: str
    model: str
    metric: str
    value: float
    low: float | None
    high: float | None
    published: bool


def bars(
    figure: Figure, sets: Sequence[RecordSet], tables: Sequence[PublishedTable]
) -> tuple[Bar, ...]:
    """The bars of a figure: published ones first, each in the order of its source.

    Rows that are incomplete, a sample of the docs or off protocol are left out. Of several runs
    of a model the first is shown, frozen ones last.
    """
    metrics = [metric for metric, _ in figure.metrics]
    found: dict[tuple[str, str, str, bool], Bar] = {}
    for task, _ in figure.panels:
        for other in beside(tables, task, metrics):
            model = other.name.partition(" / ")[0]
            for metric, cell in other.cells.items():
                bar = Bar(task, model, metric, cell.value, None, None, True)
                found.setdefault((task, model, metric, True), bar)
        rows = [s for s in sets if s.task == task and _whole(s, figure)]
        for records in sorted(rows, key=lambda s: ("(frozen" in s.source, s.name, s.source)):
            estimates = summarise(records).estimates
            for metric in metrics:
                if e := estimates.get(metric):
                    bar = Bar(task, records.name, metric, e.mean, e.low, e.high, False)
                    found.setdefault((task, records.name, metric, False), bar)
    return tuple(found.values())


def _whole(records: RecordSet, figure: Figure) -> bool:
    return (
        records.selected == records.total
        and not records.missing
        and not records.info.get("off_protocol")
        and records.info.get("retriever") == figure.retriever
    )


def digest(figure: Figure, drawn: Sequence[Bar]) -> str:
    """Hash of what a figure shows; it stands in the SVG."""
    text = json.dumps([astuple(figure), [astuple(bar) for bar in drawn]])
    return f"data {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def link(
    folder: Path, board: str, sets: Sequence[RecordSet], tables: Sequence[PublishedTable]
) -> list[str]:
    """Lines of a board that show its figure; a figure of other records is only named."""
    figure, path = FIGURES.get(board), folder / FOLDER / f"{board}.svg"
    if figure is None or not path.exists():
        return []
    shown = digest(figure, bars(figure, sets, tables))
    if shown not in path.read_text(encoding="utf-8", errors="replace"):
        return [f"{FOLDER}/{board}.svg shows older records: `nox -s leaderboard -- figures=true`.",
                ""]  # fmt: skip
    return [f"![{figure.title}]({FOLDER}/{board}.svg)", ""]


def write_figures(
    folder: Path, sets: Sequence[RecordSet], tables: Sequence[PublishedTable]
) -> list[Path]:
    """Draw the figure of every board that has one and has bars for it.

    Raises:
        UsageError: matplotlib, or a font with all characters, is missing.
        StoreError: The folder cannot be written.
    """
    written: list[Path] = []
    for board, figure in FIGURES.items():
        drawn = bars(figure, sets, tables)
        if not drawn:
            continue
        try:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            for kind in FORMATS:
                path = folder / FOLDER / f"{board}.{kind}"
                draw(figure, drawn, path)
                written.append(path)
        except OSError as error:
            raise StoreError(f"cannot write {folder / FOLDER}: {error.strerror}") from error
    return written


def draw(figure: Figure, drawn: Sequence[Bar], path: Path, font: Path | None = None) -> None:
    """Draw a figure into a file whose name ends in .svg or .png.

    Args:
        figure: What to show.
        drawn: Its bars.
        path: Where to.
        font: None finds one.

    Raises:
        UsageError: matplotlib is missing, or the font lacks a character.
    """
    try:
        import matplotlib
        from matplotlib import font_manager
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise missing_dependency("matplotlib", "figures", error) from error
    chosen = font or find_font()
    _check_glyphs(chosen, figure, drawn)
    face: Any = font_manager.FontProperties(fname=str(chosen))
    settings: Any = {
        "svg.hashsalt": "checkrail",
        "svg.fonttype": "path",
        "hatch.linewidth": 0.6,
        "path.simplify": False,
    }
    with matplotlib.rc_context(settings):
        models = list(dict.fromkeys(bar.model for bar in drawn))
        width = max(9.0, 1.2 + 2 * (0.45 + 1.05 * len(models)))
        canvas: Any = Canvas(figsize=(width, 4.6), dpi=150)
        FigureCanvasAgg(canvas)
        axes = canvas.subplots(1, len(figure.panels), sharey=True, squeeze=False)[0]
        for axis, (task, title) in zip(axes, figure.panels, strict=True):
            _panel(axis, figure, [b for b in drawn if b.task == task], face)
            axis.set_title(title, fontproperties=face, fontsize=11)
        axes[0].set_ylabel(figure.axis, fontproperties=face, fontsize=10, labelpad=8)
        canvas.suptitle(figure.title, fontproperties=face, fontsize=13, y=0.98)
        _legend(canvas, figure, drawn, face)
        canvas.subplots_adjust(left=0.07, right=0.99, top=0.84, bottom=0.25, wspace=0.05)
        metadata = (
            {"Date": None, "Creator": None, "Description": digest(figure, drawn)}
            if path.suffix == ".svg"
            else {"Software": None}
        )
        canvas.savefig(path, metadata=metadata)


def _panel(axis: Any, figure: Figure, drawn: Sequence[Bar], face: Any) -> None:
    models = list(dict.fromkeys(bar.model for bar in drawn))
    for index, model in enumerate(models):
        group = [b for b in drawn if b.model == model]
        order = {metric: i for i, (metric, _) in enumerate(figure.metrics)}
        group.sort(key=lambda b: (not b.published, order[b.metric]))
        width = 0.84 / max(len(group), 2 * len(figure.metrics) if _both(drawn) else len(group))
        for place, bar in enumerate(group):
            x = index + (place - (len(group) - 1) / 2) * width
            axis.bar(x, bar.value, width * 0.92, **_style(order[bar.metric], bar.published))
            top = bar.value
            if bar.low is not None and bar.high is not None:
                ends = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
                axis.errorbar(x, bar.value, yerr=ends, color="#222222", capsize=2.5, linewidth=1)
                top = max(top, bar.high)
            shown = f"{bar.value:.3f}".replace("0.", ".", 1) if bar.value < 1 else "1.00"
            axis.text(x, top + 0.012, shown, ha="center", va="bottom", fontproperties=face,
                      fontsize=7)  # fmt: skip
    axis.set_xticks(range(len(models)))
    axis.set_xticklabels([m.replace("-SFT", "\n-SFT").replace("-Zero", "\n-Zero") for m in models],
                         fontproperties=face, fontsize=8.5)  # fmt: skip
    axis.set_xlim(-0.6, len(models) - 0.4)
    axis.set_ylim(0, 1.06)  # room for the figure over a full bar
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axis.set_yticks(ticks)
    axis.set_yticklabels([f"{t:.1f}" for t in ticks], fontproperties=face, fontsize=8.5)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _both(drawn: Sequence[Bar]) -> bool:
    """Whether some model has published and measured bars: then all bars are made that narrow."""
    kinds = {(b.model, b.published) for b in drawn}
    return any((model, not published) in kinds for model, published in kinds)


def _style(metric: int, published: bool) -> dict[str, Any]:
    colour, pale = _COLOURS[metric % len(_COLOURS)]
    if published:
        return {"facecolor": pale, "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
    return {"facecolor": colour, "edgecolor": colour, "linewidth": 0.8}


def _legend(canvas: Any, figure: Figure, drawn: Sequence[Bar], face: Any) -> None:
    from matplotlib.patches import Patch

    kinds = sorted({b.published for b in drawn}, reverse=True)
    handles = [
        Patch(**_style(i, published), label=_label(figure, label, published))
        for published in kinds
        for i, (_, label) in enumerate(figure.metrics)
    ]
    canvas.legend(handles=handles, loc="lower center", ncols=2, prop=face, frameon=False,
                  bbox_to_anchor=(0.5, 0.0))  # fmt: skip


def _label(figure: Figure, label: str, published: bool) -> str:
    return f"{label} ({figure.published if published else figure.measured})"


# --- fonts ----------------------------------------------------------------------------------


def find_font() -> Path:
    """A font with Chinese: the one the extra `figures` brings, else one of the system's.

    Raises:
        UsageError: There is none.
    """
    spec = importlib.util.find_spec(_FONT_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(place).glob("*.otf")):
            return path
    from matplotlib import font_manager

    known = {entry.name: entry.fname for entry in font_manager.fontManager.ttflist}
    for name in _SYSTEM_FONTS:
        if name in known:
            return Path(known[name])
    raise UsageError(
        "figures need a font with Chinese characters: pip install 'checkrail[figures]', or install "
        "the system's fonts-noto-cjk"
    )


def _check_glyphs(font: Path, figure: Figure, drawn: Sequence[Bar]) -> None:
    """Refuse a font that would show boxes."""
    from matplotlib.ft2font import FT2Font

    texts = [figure.title, figure.axis, "0123456789.", *(title for _, title in figure.panels)]
    texts += [_label(figure, label, p) for _, label in figure.metrics for p in (True, False)]
    texts += [bar.model for bar in drawn]
    have: Any = FT2Font(str(font)).get_charmap()
    lacking = sorted({c for text in texts for c in text if ord(c) not in have and c != "\n"})
    if lacking:
        raise UsageError(
            f"{font.name} has no {', '.join(map(repr, lacking[:5]))}: a figure would show boxes; "
            f"pip install 'checkrail[figures]' brings a font that has them"
        )
