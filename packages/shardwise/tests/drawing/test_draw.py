"""``shardwise.draw``: every subject, every medium, and hostile text in each."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import shardwise
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.printing.paint import STYLES
from shardwise.drawing.drawing import Drawing
from shardwise.drawing.subjects import draw
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout

from .pictures import hold, tiles_of

HOSTILE = [
    *("<script>alert(1)</script>", "]]>", "&amp;", '" onload="x', "\x1b[31mred", "\u202eabc", "a\nb\tc", "\ud800"),
    "x" * 500,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_mean_nothing_to_any_medium(name):
    drawing = draw(torch.ones(2, 2), names=[name, name])
    hold(drawing.picture())
    assert "\x1b" not in drawing.text()
    for markup in (drawing.svg(), drawing.html(), drawing._repr_html_()):
        assert "<script" not in markup
        assert "\x1b" not in markup
        markup.encode("utf-8")
    attributes = {key for element in ElementTree.fromstring(drawing.svg()).iter() for key in element.attrib}
    assert "onload" not in attributes
    hold(draw({name: 2, "tp": 2}).picture())


@pytest.mark.parametrize("subject", ["f32[4@{0}, 3]", "mesh"])
def test_a_long_name_leaves_the_picture_as_narrow_as_it_can_be_read(subject):
    name = "n" * 300
    sizes = {name: 2}
    drawing = draw(sizes) if subject == "mesh" else draw(subject.format(name), mesh=sizes, names=["b" * 300, "c"])
    width = float(ElementTree.fromstring(drawing.svg()).attrib["width"])
    assert width <= 1200
    assert name in drawing.svg()  # in the title and in what is said in place of the picture


@pytest.mark.slow
@given(st.text(max_size=20))
def test_any_text_is_drawn_or_refused_in_words(text):
    refused = None
    try:
        hold(draw(text, mesh={"dp": 2, "tp": 2}).picture())
    except SpmdValueError as error:
        refused = error
    assert refused is None or repr(text) in refused.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f32[8, 16@tq]", "expected one of the axes dp, tp at position 10, got 'tq]'"),
        ("f32[8; 16]", "expected ',' or ']' at position 5, got '; 16]'"),
        ("all_gather P -> R", "all_gather has V -> R"),
        ("send P -> R", "known are all_reduce"),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_the_place(text, said):
    with pytest.raises(SpmdValueError) as caught:
        draw(text, mesh={"dp": 2, "tp": 4})
    assert said in caught.value.message


@pytest.mark.parametrize("x", [3, None, object(), ["tp"]])
def test_what_has_no_picture_is_refused(x):
    with pytest.raises(TypeError, match="draw takes a tensor, a type"):
        draw(x)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"limit": 2}, "limit is at least 3"), ({"node_size": 0}, "node_size"), ({"highlight": "ep"}, "no axis 'ep'")],
)
def test_options_are_checked(options, said):
    with pytest.raises(ValueError, match=said):
        draw({"tp": 2}, **options)


def test_a_mesh_of_no_ranks_is_refused():
    with pytest.raises(ValueError, match="numbers of ranks"):
        draw({"tp": 0})


@pytest.mark.parametrize(
    "x",
    [
        {"dp": 2, "tp": 4},
        {"dp": MeshAxis.of(2, 4), "tp": MeshAxis.of(4, 1)},
        MeshAxis.of(4, 2),
        Layout((2, 3, 2), (24, 4, 1)),
        Layout(),
        IndexMap((4, 2, 2), (1, 4, 0)),
        "f32[3, 5@tp]",
        "all_to_all S(0) -> S(1)",
        torch.ones(2, 3),
    ],
    ids=str,
)
def test_every_subject_is_drawn_in_every_medium(x):
    with shardwise.set_current_mesh({"dp": MeshAxis.of(2, 4), "tp": MeshAxis.of(4, 1)}):
        drawing = draw(x)
    hold(drawing.picture())
    assert isinstance(drawing, Drawing)
    assert drawing.svg() in drawing.html()
    assert "<svg" in drawing._repr_html_()
    parser = HTMLParser()
    parser.feed(drawing.html())
    assert repr(drawing).startswith("<Drawing of ")


def test_a_layout_is_drawn_as_its_map():
    text = str(draw(Layout((2, 2), (4, 1))))
    assert "offset = 4 * i0 + 1 * i1" in text
    assert "│ 4 │ 5 │" in text


@pytest.mark.parametrize("modes", [*itertools.permutations([(2, 12), (3, 1), (4, 3)])], ids=str)
def test_a_layout_is_drawn_in_the_order_in_which_its_digits_are_written(modes):
    counted = IndexMap.of_modes(modes)
    picture = draw(counted, limit=12).picture()
    shown = {cell.index: cell.lines for cell in tiles_of(picture.block) if cell.index is not None}
    assert shown == {counted.digits(at): (str(counted(at)),) for at in range(counted.size)}


def test_a_layout_that_counts_column_by_column_is_no_other_than_it_is_written():
    text = str(draw(IndexMap((4, 2), (1, 4))))
    assert text.startswith("layout (4, 2):(1, 4)")
    assert "│ 1 │ 5 │" in text


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_a_narrow_page_shows_fewer_indices(width):
    lines = draw(torch.arange(400).reshape(20, 20)).text(width).splitlines()
    assert max(map(len, lines)) <= width


def test_pictures_of_one_page_do_not_share_their_names():
    one, other = draw({"tp": 2}).svg(), draw({"tp": 4}).svg()
    names = [{e.get("id") for e in ElementTree.fromstring(svg).iter() if e.get("id")} for svg in (one, other)]
    assert not names[0] & names[1]


def test_dark_pages_have_colours_of_their_own():
    svg = draw("f32[8@tp]", mesh={"tp": 8}).svg()
    assert "prefers-color-scheme:dark" in svg
    assert 'fill="#ffffff"' in svg  # the light ones stand as attributes too


def test_colour_never_stands_alone():
    plain = draw("f32[8@tp]", mesh={"tp": 8})
    assert "\x1b[" in plain.text(color=True)
    assert "\x1b[" not in plain.text()


@pytest.fixture
def device_mesh():
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    dist.destroy_process_group()


def test_a_mesh_of_jax_is_drawn_with_the_ids_of_its_devices_as_ranks():
    ids = np.arange(8).reshape(4, 2).T
    devices = np.array([SimpleNamespace(id=int(rank)) for rank in ids.flat], dtype=object).reshape(ids.shape)
    text = str(draw(SimpleNamespace(axis_names=("dp", "tp"), devices=devices)))
    assert text.startswith("mesh dp=2, tp=4: 8 ranks")
    assert "│ 1 │ 3 │ 5 │ 7 │" in text


def test_a_device_mesh_is_drawn(device_mesh):
    assert str(draw(device_mesh)).startswith("mesh dp=2, tp=4: 8 ranks")
    assert "1 = 5" in str(draw("f32[4@tp] {dp: R}", mesh=device_mesh))


PALETTES = {
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 "
    "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "VGA": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa "
    "555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "Windows": "000000 800000 008000 808000 000080 800080 008080 c0c0c0 "
    "808080 ff0000 00ff00 ffff00 0000ff ff00ff 00ffff ffffff",
}


@pytest.mark.parametrize("palette", PALETTES.values(), ids=PALETTES)
def test_cells_can_be_read_in_the_colours_of_a_terminal(palette):
    """WCAG 2 asks for 3 of large text and for 4.5 of small."""

    def luminance(number):
        parts = (value / 255 for value in bytes.fromhex(palette.split()[number]))
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for tone in range(6):
        style = Style.parse(STYLES[f"tone {tone}"])
        dark, light = sorted(luminance(color.number) for color in (style.color, style.bgcolor))
        assert (light + 0.05) / (dark + 0.05) >= 4, (tone, str(style))
