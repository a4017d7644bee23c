//! The schema of a table as a message of Arrow's streams, which Parquet files carry so that readers
//! of Arrow find the types of columns again.
//!
//! The layout is that of Arrow's `format/Schema.fbs` and `format/Message.fbs`: a table lists its
//! fields by number, and those that have their default are left out.

use arrow_schema::{DataType, Field, Schema};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};

/// A table of the format.
type Made = WIPOffset<TableFinishedWIPOffset>;
type Builder = FlatBufferBuilder<'static>;

/// `MetadataVersion.V5`, and the numbers of `MessageHeader` and `Type`.
const V5: i16 = 4;
const SCHEMA: u8 = 1;
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
/// `Precision.DOUBLE`.
const DOUBLE: i16 = 2;
/// What stands before a message, which is padded to eight bytes.
const CONTINUES: [u8; 4] = [0xff; 4];
const PADDED: usize = 8;

/// The message of a schema, without metadata.
pub fn message(schema: &Schema) -> Vec<u8> {
    let b = &mut Builder::new();
    let fields = (0..).zip(schema.fields()).map(|(id, field)| column(b, id, field)).collect::<Vec<_>>();
    let fields = b.create_vector(&fields);
    let schema = table(b, |b| b.push_slot_always(slot(1), fields));
    let message = table(b, |b| {
        b.push_slot_always(slot(0), V5);
        b.push_slot_always(slot(1), SCHEMA);
        b.push_slot_always(slot(2), schema);
    });
    b.finish_minimal(message);
    let body = b.finished_data();
    let length = body.len().next_multiple_of(PADDED);
    let mut out = CONTINUES.to_vec();
    out.extend((length as u32).to_le_bytes());
    out.extend(body);
    out.resize(CONTINUES.len() + 4 + length, 0);
    out
}

/// A table with what `fill` puts into it.
fn table(b: &mut Builder, fill: impl FnOnce(&mut Builder)) -> Made {
    let start = b.start_table();
    fill(b);
    WIPOffset::new(b.end_table(start).value())
}

/// Where a table keeps the field of this number.
const fn slot(number: VOffsetT) -> VOffsetT {
    4 + 2 * number
}

/// A `Field`; `id` is that of its dictionary, if it has one.
fn column(b: &mut Builder, id: i64, field: &Field) -> Made {
    let name = b.create_string(field.name());
    let (value, dictionary) = match field.data_type() {
        DataType::Dictionary(index, value) => {
            let (_, index) = data_type(b, index);
            let encoding = table(b, |b| {
                b.push_slot_always(slot(0), id);
                b.push_slot_always(slot(1), index);
            });
            (value.as_ref(), Some(encoding))
        }
        plain => (plain, None),
    };
    let (kind, value) = data_type(b, value);
    let children = b.create_vector::<Made>(&[]);
    table(b, |b| {
        b.push_slot_always(slot(0), name);
        b.push_slot_always(slot(1), field.is_nullable());
        b.push_slot_always(slot(2), kind);
        b.push_slot_always(slot(3), value);
        if let Some(encoding) = dictionary {
            b.push_slot_always(slot(4), encoding);
        }
        b.push_slot_always(slot(5), children);
    })
}

/// The number of a `Type`, and its table.
fn data_type(b: &mut Builder, of: &DataType) -> (u8, Made) {
    let mut int = |bits: i32, signed: bool| {
        let made = table(b, |b| {
            b.push_slot_always(slot(0), bits);
            b.push_slot_always(slot(1), signed);
        });
        (INT, made)
    };
    match of {
        DataType::Int64 => int(64, true),
        DataType::Int32 => int(32, true),
        DataType::UInt64 => int(64, false),
        DataType::UInt32 => int(32, false),
        DataType::UInt16 => int(16, false),
        DataType::Float64 => (FLOATING_POINT, table(b, |b| b.push_slot_always(slot(0), DOUBLE))),
        DataType::Utf8 => (UTF8, table(b, |_| ())),
        DataType::Boolean => (BOOL, table(b, |_| ())),
        other => unreachable!("no column is {other}"),
    }
}
