//! The `format` file of an event: its number and where its fields lie.
//!
//! ```text
//! name: sched_switch
//! ID: 316
//! format:
//!     field:unsigned short common_type;    offset:0;    size:2;    signed:0;
//!     field:char prev_comm[16];    offset:8;    size:16;    signed:1;
//!
//! print fmt: "prev_comm=%s ...", REC->prev_comm, ...
//! ```
//!
//! `signed` is absent in 2.6.3x kernels, where the type name says it. The common fields vary
//! (`common_lock_depth`, `common_migrate_disable`), so no offset is ever assumed.

use crate::binary::bytes::uint;

/// An integer field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int {
    /// Offset in the record.
    pub at: usize,
    /// 1, 2, 4 or 8 bytes.
    pub size: u8,
    /// Sign-extended?
    pub signed: bool,
}

impl Int {
    /// The field's value in `record`, `None` when the record is too short for it.
    #[inline]
    pub fn get(&self, record: &[u8], be: bool) -> Option<i64> {
        let raw = uint(record, self.at, usize::from(self.size), be)?;
        let shift = 64 - 8 * u32::from(self.size);
        Some(if self.signed { (raw << shift) as i64 >> shift } else { raw as i64 })
    }
}

/// A text field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `char x[n]`: at most `len` bytes, to the first NUL; `len` 0 means to the end of the record.
    Array {
        /// Offset in the record.
        at: usize,
        /// Length.
        len: usize,
    },
    /// `__data_loc char[] x`: a word of length << 16 | offset in the record.
    DataLoc {
        /// Offset of the word.
        at: usize,
    },
    /// `__rel_loc char[] x`: the same, with an offset from the end of the word.
    RelLoc {
        /// Offset of the word.
        at: usize,
    },
}

impl Text {
    /// The field's bytes with whatever follows the NUL, `None` when they do not lie in `record`.
    #[inline]
    pub fn get<'r>(&self, record: &'r [u8], be: bool) -> Option<&'r [u8]> {
        let (at, base) = match *self {
            Text::Array { at, len: 0 } => return record.get(at..),
            Text::Array { at, len } => return record.get(at..at + len),
            Text::DataLoc { at } => (at, 0),
            Text::RelLoc { at } => (at, at + 4),
        };
        let word = uint(record, at, 4, be)? as usize;
        let start = base + (word & 0xffff);
        record.get(start..start + (word >> 16))
    }
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// One integer.
    Int(Int),
    /// Text.
    Text(Text),
    /// An array of anything else, or a type of another size.
    Other,
}

/// One field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name without array bounds.
    pub name: String,
    /// What and where.
    pub content: Content,
}

/// One event's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFormat {
    /// System (`sched`), empty when the container does not say it.
    pub system: String,
    /// Name.
    pub name: String,
    /// Number: the value of `common_type` in its records.
    pub id: u32,
    /// Fields in order, the common ones first.
    pub fields: Vec<Field>,
    /// The text after `print fmt:`.
    pub print_fmt: String,
}

impl EventFormat {
    /// Reads a format file; `None` when it has no name or number.
    pub fn parse(system: &str, text: &str) -> Option<Self> {
        let mut event = EventFormat { system: system.to_owned(), ..Self::default() };
        let mut id = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("name:") {
                event.name = name.trim().to_owned();
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(decl) = line.strip_prefix("field:") {
                event.fields.extend(field(decl));
            } else if let Some(fmt) = line.strip_prefix("print fmt:") {
                event.print_fmt = fmt.trim().to_owned();
            }
        }
        event.id = id?;
        (!event.name.is_empty()).then_some(event)
    }

    /// The content of the field called `name`.
    pub fn field(&self, name: &str) -> Option<Content> {
        self.fields.iter().find(|f| f.name == name).map(|f| f.content)
    }

    /// The integer field called `name`.
    pub fn int(&self, name: &str) -> Option<Int> {
        match self.field(name) {
            Some(Content::Int(int)) => Some(int),
            _ => None,
        }
    }
}

/// Reads `unsigned short common_type; offset:0; size:2; signed:0;`.
fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';');
    let decl = parts.next()?.trim();
    let (mut at, mut size, mut signed) = (None, None, None);
    for part in parts {
        if let Some((key, value)) = part.split_once(':') {
            let value: Option<u32> = value.trim().parse().ok();
            match key.trim() {
                "offset" => at = value,
                "size" => size = value,
                "signed" => signed = value,
                _ => {}
            }
        }
    }
    let (at, size) = (at? as usize, size? as usize);
    let (ty, name) = decl.rsplit_once([' ', '\t', '*']).unwrap_or(("", decl));
    let (name, array) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, ty.trim_end().ends_with(']')),
    };
    let chars = ty.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "char");
    let content = if ty.contains("__data_loc") {
        Content::Text(Text::DataLoc { at })
    } else if ty.contains("__rel_loc") {
        Content::Text(Text::RelLoc { at })
    } else if array && chars {
        Content::Text(Text::Array { at, len: size })
    } else if !array && matches!(size, 1 | 2 | 4 | 8) {
        let signed = signed.map_or_else(|| signed_by_type(decl), |s| s != 0);
        Content::Int(Int { at, size: size as u8, signed })
    } else {
        Content::Other
    };
    Some(Field { name: name.to_owned(), content })
}

/// For kernels that do not write `signed`.
fn signed_by_type(decl: &str) -> bool {
    let ty = decl.rsplit_once(' ').map_or("", |(ty, _)| ty).trim();
    matches!(ty, "int" | "long" | "short" | "char" | "pid_t" | "long long" | "s32" | "s64" | "ssize_t")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: sched_process_fork\nID: 310\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:char child_comm[16];\toffset:12;\tsize:16;\n\
        \tfield:pid_t child_pid;\toffset:28;\tsize:4;\n\
        \tfield:const char * fmt;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long args[6];\toffset:40;\tsize:48;\tsigned:0;\n\
        \tfield:char buf[];\toffset:88;\tsize:0;\tsigned:1;\n\n\
        print fmt: \"comm=%s\", REC->parent_comm\n";

    #[test]
    fn fields_of_every_sort() {
        let f = EventFormat::parse("sched", TEXT).unwrap();
        assert_eq!((f.name.as_str(), f.id, f.system.as_str()), ("sched_process_fork", 310, "sched"));
        assert_eq!(f.field("parent_comm"), Some(Content::Text(Text::DataLoc { at: 8 })));
        assert_eq!(f.field("child_comm"), Some(Content::Text(Text::Array { at: 12, len: 16 })));
        assert_eq!(f.int("child_pid"), Some(Int { at: 28, size: 4, signed: true }));
        assert_eq!(f.int("fmt"), Some(Int { at: 32, size: 8, signed: false }));
        assert_eq!(f.field("args"), Some(Content::Other));
        assert_eq!(f.field("buf"), Some(Content::Text(Text::Array { at: 88, len: 0 })));
        assert_eq!(f.print_fmt, "\"comm=%s\", REC->parent_comm");
        assert_eq!(EventFormat::parse("", "name: x\n"), None);
    }

    #[test]
    fn values_are_taken_from_where_the_format_says() {
        let mut record = vec![0u8; 24];
        record[4..8].copy_from_slice(&(-5i32).to_le_bytes());
        record[8..12].copy_from_slice(&(3u32 << 16 | 20).to_le_bytes());
        record[12..16].copy_from_slice(&(3u32 << 16 | 4).to_le_bytes());
        record[20..24].copy_from_slice(b"abc\0");
        assert_eq!(Int { at: 4, size: 4, signed: true }.get(&record, false), Some(-5));
        assert_eq!(Int { at: 4, size: 4, signed: false }.get(&record, false), Some(0xffff_fffb));
        assert_eq!(Int { at: 22, size: 4, signed: true }.get(&record, false), None);
        assert_eq!(Text::DataLoc { at: 8 }.get(&record, false), Some(&b"abc"[..]));
        assert_eq!(Text::RelLoc { at: 12 }.get(&record, false), Some(&b"abc"[..]));
        assert_eq!(Text::DataLoc { at: 4 }.get(&record, false), None);
    }
}
