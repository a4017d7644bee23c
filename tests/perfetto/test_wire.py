"""The bulk encoder against Google's own protobuf library."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.perfetto import wire
from tracekit.perfetto.packets import PacketWriter, Switches, Wakings

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=50))
def test_packed_integers_decode_to_themselves(values: list[int]) -> None:
    encoded = wire.packed(2, np.array(values, np.int64))
    bundle = pb.FtraceEventBundle.CompactSched.FromString(encoded)
    assert list(bundle.switch_prev_state) == values


@given(st.lists(st.tuples(INT64, st.text(max_size=300), st.booleans()), min_size=1, max_size=20))
def test_messages_of_columns_decode_row_by_row(rows: list[tuple[int, str, bool]]) -> None:
    numbers = np.array([r[0] for r in rows], np.int64)
    words = [r[1].encode("utf-8", "replace") for r in rows]
    told = np.array([r[2] for r in rows])
    event = [
        *wire.texts(5, words, np.arange(len(rows))),
        *wire.only(told, wire.ints(4, numbers)),
    ]
    decoded = pb.FtraceEventBundle.FromString(wire.rows(wire.message(2, wire.message(4, event))))
    for got, (number, text, present) in zip(decoded.event, rows, strict=True):
        assert got.sched_switch.next_comm == text.encode("utf-8", "replace").decode()
        assert got.sched_switch.HasField("prev_state") == present
        assert not present or got.sched_switch.prev_state == number


def test_more_rows_than_are_laid_out_at_a_time() -> None:
    values = np.arange(2 * wire.ROWS_AT_A_TIME + 7) * 1_000_003
    encoded = wire.packed(2, values)
    assert list(pb.FtraceEventBundle.CompactSched.FromString(encoded).switch_prev_state) == values.tolist()


def test_a_compact_bundle_holds_deltas_and_names_once() -> None:
    file = io.BytesIO()
    ints = lambda *values: np.array(values, np.int64)  # noqa: E731
    switches = Switches(
        ints(100, 250, 260), ints(0, 1, 256), ints(7, 8, 7), ints(120, 99, 120), ints(2, 0, 2)
    )
    wakings = Wakings(
        ints(90, 255), ints(8, 7), ints(1, 1), ints(99, 120), ints(0, 2), ints(0, 8), ints(-1, 0)
    )
    PacketWriter(file, sequence=3, machine=77).schedule(1, switches, wakings, [b"b", b"unused", b"a"])
    (packet,) = pb.Trace.FromString(file.getvalue()).packet
    assert (packet.trusted_packet_sequence_id, packet.machine_id) == (3, 77)
    compact = packet.ftrace_events.compact_sched
    assert packet.ftrace_events.cpu == 1
    assert not packet.ftrace_events.lost_events
    assert list(compact.switch_timestamp) == [100, 150, 10]
    assert list(compact.switch_next_pid) == [7, 8, 7]
    assert sorted(compact.intern_table) == ["a", "b"]
    assert [compact.intern_table[k] for k in compact.switch_next_comm_index] == ["a", "b", "a"]
    assert list(compact.waking_timestamp) == [90, 165]
    assert [compact.intern_table[k] for k in compact.waking_comm_index] == ["b", "a"]
    assert list(compact.waking_common_flags) == [0, 8]
