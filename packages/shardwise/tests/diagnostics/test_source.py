import dis

from shardwise.diagnostics.source import positions_of


def test_calls_of_a_script_of_thousands_of_lines_stand_where_python_has_them() -> None:
    code = compile("".join(f"y = f(y, {number})\n" for number in range(2_000)), "train.py", "exec")
    calls = [one for one in dis.get_instructions(code) if one.opname == "CALL"]
    assert len(calls) == 2_000
    for call in calls:
        assert positions_of(code, call.offset) == call.positions
    assert positions_of(code, len(code.co_code) + 2) == (None, None, None, None)
