"""Every line marked ``look`` is a call; the test says how its operands are written, with their spans underlined."""

import linecache
import sys
import types

import pytest

from shardwise.diagnostics import operands
from shardwise.diagnostics.operands import locate
from shardwise.diagnostics.syntax import expression_at

SEEN = []


def text_of(location):
    """The source between a location's columns (one line), to check spans by eye."""
    if location is None:
        return None
    line = linecache.getline(location.file, location.line).encode()
    if location.end_line != location.line:
        return line[location.column :].decode().strip() + " ..."
    return line[location.column : location.end_column].decode()


def report(op, *labelled):
    SEEN.append([(name, text_of(location)) for name, location in locate(sys._getframe(2), op, labelled)])


class Probe:
    """Reports every operator applied to it, as a tensor would under the checker."""

    def __add__(self, other):
        report("add", ("input", self), ("other", other))
        return Probe()

    def __radd__(self, other):
        report("add", ("input", self), ("other", other))
        return Probe()

    def __iadd__(self, other):
        report("add", ("input", self), ("other", other))
        return self

    def __matmul__(self, other):
        report("matmul", ("input", self), ("other", other))
        return Probe()

    def __neg__(self):
        report("neg", ("input", self))
        return self

    def __lt__(self, other):
        report("lt", ("input", self), ("other", other))
        return self

    def __bool__(self):
        report("bool", ("input", self))
        return True

    def __getitem__(self, index):
        report("getitem", ("input", self), ("index", index))
        return Probe()

    def __setitem__(self, index, value):
        report("setitem", ("input", self), ("index", index), ("value", value))

    def __format__(self, spec):
        report("format", ("input", self))
        return ""

    def __iter__(self):
        report("iter", ("input", self))
        return iter(())

    @property
    def T(self):
        report("T", ("input", self))
        return Probe()

    def sum(self, dim=None):
        report("sum", ("input", self))
        return Probe()

    def add_(self, other):
        report("add", ("input", self), ("other", other))
        return self


def gelu(input):
    report("gelu", ("input", input))
    return Probe()


def linear(input, weight, bias=None):
    report("linear", ("input", input), ("weight", weight), *([("bias", bias)] if bias is not None else []))
    return Probe()


def cat(tensors, dim=0):
    report("cat", *((f"tensors[{i}]", tensor) for i, tensor in enumerate(tensors)))
    return Probe()


F = types.SimpleNamespace(gelu=gelu, linear=linear, cat=cat)
h, w, b = Probe(), Probe(), Probe()


def look(code, **names):
    """Run ``code`` as a file of its own and return what was reported."""
    SEEN.clear()
    filename = f"<look {hash(code)}>"
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    scope = {"F": F, "h": h, "w": w, "b": b, "Probe": Probe, "gelu": gelu, "linear": linear, "cat": cat, **names}
    exec(compile(code, filename, "exec"), scope)
    return SEEN


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("F.gelu(h)", [[("h", "h")]]),
        ("y = gelu(gelu(h))", [[("h", "h")], [("gelu(h)", "gelu(h)")]]),
        ("gelu(h), gelu(w)", [[("h", "h")], [("w", "w")]]),
        ("F.linear(h, w)", [[("h", "h"), ("w", "w")]]),
        ("F.linear(h, h)", [[("h", "h"), ("h", "h")]]),
        ("F.linear(h, weight=w, bias=b)", [[("h", "h"), ("w", "w"), ("b", "b")]]),
        ("F.linear(bias=b, weight=w, input=h)", [[("h", "h"), ("w", "w"), ("b", "b")]]),
        ("F.linear(h, weight=Probe())", [[("h", "h"), ("Probe()", "Probe()")]]),
        ("F.linear(Probe(), w)", [[("Probe()", "Probe()"), ("w", "w")]]),
        ("F.linear(Probe(), Probe())", [[("Probe()", "Probe()"), ("Probe()", "Probe()")]]),
        ("args = (h, w)\nF.linear(*args)", [[("args[0]", "args"), ("args[1]", "args")]]),
        ("args = (w,)\nF.linear(h, *args)", [[("h", "h"), ("args[0]", "args")]]),
        ("kw = {'weight': w}\nF.linear(h, **kw)", [[("h", "h"), ("weight", None)]]),
        ("F.cat([h, w, Probe()], 0)", [[("h", "h"), ("w", "w"), ("Probe()", "Probe()")]]),
        ("parts = [h, w]\nF.cat(parts)", [[("parts[0]", "parts"), ("parts[1]", "parts")]]),
        ("h + w", [[("h", "h"), ("w", "w")]]),
        ("1 + h", [[("h", "h"), ("1", "1")]]),
        ("h += w", [[("h", "h"), ("w", "w")]]),
        ("h + Probe() @ w", [[("Probe()", "Probe()"), ("w", "w")], [("h", "h"), ("Probe() @ w", "Probe() @ w")]]),
        ("-h", [[("h", "h")]]),
        ("h < w", [[("h", "h"), ("w", "w")]]),
        ("h[0]", [[("h", "h"), ("0", "0")]]),
        ("h[1:]", [[("h", "h"), ("index", None)]]),
        ("i = 3\nh[i] = w", [[("h", "h"), ("i", "i"), ("w", "w")]]),
        ("h[0] = Probe()", [[("h", "h"), ("0", "0"), ("Probe()", "Probe()")]]),
        ("h.T", [[("h", "h")]]),
        ("h.sum()", [[("h", "h")]]),
        ("h.T.sum()", [[("h", "h")], [("h.T", "h.T")]]),
        ("h.add_(w)", [[("h", "h"), ("w", "w")]]),
        ("h.add_(other=Probe())", [[("h", "h"), ("Probe()", "Probe()")]]),
        ("if h: pass", [[("h", "h")]]),
        ("h and w", [[("h", "h")]]),
        ("while not h: pass", [[("h", "h")]]),
        ("[gelu(t) for t in (h, w)]", [[("t", "t")], [("t", "t")]]),
        ("for t in h: pass", [[("h", "h")]]),
        ("for t in h.sum():\n    pass", [[("h", "h")], [("h.sum()", "h.sum()")]]),
        (
            "if h.sum() < w:\n    pass",
            [[("h", "h")], [("h.sum()", "h.sum()"), ("w", "w")], [("h.sum() < w", "h.sum() < w")]],
        ),
        ("a, = [*h, 1]", [[("h", "h")]]),
        ("f'{h}'", [[("h", "h")]]),
        ("def f(q):\n    return lambda: gelu(q)\nf(h)()", [[("q", "q")]]),
        ("@gelu\ndef f(): pass", [[("input", None)]]),
        ("F.linear(\n    h,\n    w,\n)", [[("h", "h"), ("w", "w")]]),
        ("(\n    h\n    .sum()\n    .sum(dim=1)\n)", [[("h", "h")], [("h .sum()", "h ...")]]),
        ("s = 'ä'; F.gelu(h)", [[("h", "h")]]),
        ("größe = h; F.gelu(größe)", [[("größe", "größe")]]),
        ("F.gelu((h))", [[("h", "h")]]),
        ("gelu(Probe() if h is None else w)", [[("Probe() if h is None else w", "Probe() if h is None else w")]]),
    ],
)
def test_operands_are_named_as_written(code, expected):
    assert look(code) == expected


@pytest.mark.parametrize(
    ("long", "outline"),
    [
        ("make('a name that makes the call longer than a name may be')", "make(...)"),
        ("make('a name that makes the call longer than a name may be').sum()", "make(...).sum(...)"),
        ("make('a name that makes the call longer than a name may be').T", "make(...).T"),
        ("h if 'a name that makes the call longer than a name may be' else 0", "input"),
    ],
)
def test_a_long_expression_is_shown_in_outline_or_keeps_its_label(long, outline):
    assert look(f"gelu({long})", make=lambda name: Probe())[-1] == [(outline, long)]


class _Trap:
    """Everything that reading may run by mistake is fatal."""

    def __init__(self):
        object.__setattr__(self, "h", h)

    def __getattr__(self, name):
        raise AssertionError(f"__getattr__({name}) was run")

    @property
    def lazy(self):
        raise AssertionError("a property was run")

    def __eq__(self, other):
        raise AssertionError("__eq__ was run")

    __hash__ = object.__hash__


class _Slots:
    __slots__ = ("h",)


class _Module:
    """Shaped like torch's Module: state in plain dicts, served by ``__getattr__``."""

    def __init__(self, **parameters):
        self.__dict__.update(_parameters=parameters, _buffers={"mask": b}, _modules={})

    def __getattr__(self, name):
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[kind]:
                return self.__dict__[kind][name]
        raise AttributeError(name)

    def __call__(self, x):
        report_from_module(x, self)


def report_from_module(x, module):
    located = locate(sys._getframe(2), "layer_norm", [("input", x), ("weight", module.weight)])
    SEEN.append([(name, text_of(location)) for name, location in located])


def test_attributes_are_followed_without_running_code():
    trap, slots = _Trap(), _Slots()
    slots.h = h
    assert look("gelu(trap.h)", trap=trap) == [[("trap.h", "trap.h")]]
    assert look("gelu(slots.h)", slots=slots) == [[("slots.h", "slots.h")]]
    assert look("F.linear(h, self.weight)", self=_Module(weight=w)) == [[("h", "h"), ("self.weight", "self.weight")]]
    assert look("F.linear(h, self.mask)", self=_Module(weight=w)) == [[("h", "h"), ("self.mask", "self.mask")]]


def test_reading_never_runs_user_code():
    trap = _Trap()
    names = {"trap": trap, "empty": _Slots(), "show": lambda *values: report("gelu", *(("input", v) for v in (h, w)))}
    code = "def gelu(*a): pass\ntry: show(trap.lazy)\nexcept AssertionError: pass\n"
    assert look(code, **names) == []
    frames = {}

    def gelu(*values):
        frames["named"] = locate(sys._getframe(1), "gelu", [("input", h), ("other", w)])

    # The expressions are not evaluated again: only h is a plain name with that very value.
    look("gelu(empty and h, trap if trap else trap, h)", **{**names, "gelu": gelu})
    assert [name for name, _ in frames["named"]] == ["h", "other"]


def test_a_module_that_is_called_names_its_parameters():
    norm = _Module(weight=w)
    assert look("self.norm(h)", self=_Module(norm=norm)) == [[("h", "h"), ("self.norm.weight", "self.norm")]]


def test_only_a_module_without_children_names_its_arguments_by_position():
    leaf, parent = _Module(weight=w), _Module(weight=w)
    parent.__dict__["_modules"]["child"] = _Module(weight=Probe())
    SEEN.clear()
    assert look("block(Probe())", block=leaf)[0][0] == ("Probe()", "Probe()")
    assert look("block(Probe())", block=parent)[0][0] == ("input", None)


def test_without_source_labels_remain():
    SEEN.clear()
    exec(compile("gelu(h)", "<nowhere>", "exec"), {"gelu": gelu, "h": h})
    assert SEEN == [[("input", None)]]


def test_source_that_does_not_parse_leaves_labels():
    filename = "<broken>"
    linecache.cache[filename] = (1, None, ["gelu(h\n"], filename)
    SEEN.clear()
    exec(compile("gelu(h)", filename, "exec"), {"gelu": gelu, "h": h})
    assert SEEN == [[("input", None)]]


def test_a_changed_file_is_read_again():
    filename = "<changing>"
    for code, expected in (("gelu(h)", "h"), ("gelu( w)", "w")):
        linecache.cache[filename] = (1, None, [code], filename)
        SEEN.clear()
        exec(compile(code, filename, "exec"), {"gelu": gelu, "h": h, "w": w})
        ((found,),) = SEEN
        assert found == (expected, expected)


def test_a_failure_of_ours_costs_only_the_names(monkeypatch):
    monkeypatch.setattr(operands, "_match", lambda *a, **k: 1 / 0)
    assert look("gelu(h)") == [[("input", None)]]


def test_an_instruction_without_columns_is_found_if_alone_on_its_line():
    filename = "<no columns>"
    code = "gelu(h)\nlinear(gelu(h), w)\n"
    linecache.cache[filename] = (1, None, code.splitlines(keepends=True), filename)

    class Code:
        co_filename = filename
        co_code = compile(code, filename, "exec").co_code

        def __init__(self, line):
            self.line = line

        def co_positions(self):
            return [(self.line, None, None, None)] * len(self.co_code)

    import dis

    call = next(i.offset for i in dis.get_instructions(compile(code, filename, "exec")) if i.opname == "CALL")
    assert expression_at(Code(1), call, None) is not None
    assert expression_at(Code(2), call, None) is None


class Shaped(Probe):
    """A probe that is taken for a tensor, as numbers beside it are not."""

    shape = ()

    def __rmul__(self, other):
        report("mul", ("input", self), ("other", other))
        return Shaped()

    def __rpow__(self, other):
        report("pow", ("exponent", self))
        return Shaped()

    __mul__ = __rmul__
    __gt__ = __rmul__

    def sum(self, dim=None):
        return Shaped()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("float(n) * x.sum()", [("x.sum()", "x.sum()"), ("float(n)", "float(n)")]),
        ("x.sum() * float(n)", [("x.sum()", "x.sum()"), ("float(n)", "float(n)")]),
        ("(n + 1) * (x * n)", [("x * n", "x * n"), ("n + 1", "n + 1")]),
        ("(x * n) * (n + 1)", [("x * n", "x * n"), ("n + 1", "n + 1")]),
        ("-n * x.sum(0)", [("x.sum(0)", "x.sum(0)"), ("-n", "-n")]),
        ("count() * x.sum()", [("x.sum()", "x.sum()"), ("count()", "count()")]),
        ("make() * float(n)", [("make()", "make()"), ("float(n)", "float(n)")]),
        ("x.shape * x.sum()", [("x.sum()", "x.sum()"), ("x.shape", "x.shape")]),
        ("float(n) < x.sum()", [("x.sum()", "x.sum()"), ("float(n)", "float(n)")]),
        ("(1 + 1) ** x.sum()", [("x.sum()", "x.sum()")]),
        ("if x.sum() > n: pass", [("x.sum() > n", "x.sum() > n")]),
        ("not x * n", [("x * n", "x * n")]),
        # Nothing but a call of what nobody knows on either side: no name is better than a wrong one.
        ("count() * make()", [("input", None), ("other", None)]),
    ],
)
def test_the_tensor_beside_a_number_has_its_own_name_on_either_side_of_an_operator(code, expected):
    seen = look(code, x=Shaped(), n=2, count=lambda: 3, make=Shaped)
    assert seen[-1] == expected
