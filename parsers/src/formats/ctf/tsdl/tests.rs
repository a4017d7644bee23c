//! A description, read and refused.

use super::*;

const TEXT: &str = r#"/* CTF 1.8 */
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 32; align = 8; signed = false; } := unsigned int;
struct head {
enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
variant <id> { struct { unsigned int low; } compact; struct { unsigned int id; } extended; } v;
} align(8);
trace { major = 1; minor = 8; byte_order = be; packet.header := struct { unsigned int magic; }; };
env { hostname = "h"; tracer_major = 2; };
clock { name = "mono"; freq = 1000; offset = -5; offset_s = 7; };
stream { id = 3; event.header := struct head; };
event { id = 9; name = "e"; stream_id = 3; fields := struct { unsigned int n; string s; unsigned int a[n][2]; }; };
"#;

#[test]
fn a_description_is_read() {
    let meta = read(TEXT).unwrap();
    assert!(meta.big_endian && meta.packet_header.is_some());
    assert_eq!(meta.clocks, [Clock { name: "mono".to_owned(), hz: 1000, offset_s: 7, offset: -5 }]);
    assert_eq!((meta.env["hostname"].as_str(), meta.env["tracer_major"].as_str()), ("h", "2"));
    assert!(meta.streams[&3].event_header.is_some());
    let Some(Type::Struct(fields)) = &meta.events[&(3, 9)].fields else { panic!("no fields") };
    assert_eq!(fields.list.iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["n", "s", "a"]);
    assert!(matches!(&fields.list[2].1, Type::Array(_, Length::Field(n)) if n == "n"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, message) in [
        ("struct a { struct a b; };", "expected `{` or a struct that was declared before, found b"),
        ("typealias foo := bar;", "expected the name of a type, found foo"),
        ("typealias integer { size = 65; } := x;", "expected an integer of 1 to 64 bits, found :="),
        ("event { name = ", "expected a name, found the end"),
    ] {
        assert_eq!(read(text).unwrap_err().message, message, "{text}");
    }
    let deep = format!("{}{}", "struct { ".repeat(5000), "} x; ".repeat(5000));
    assert!(read(&deep).unwrap_err().message.starts_with("expected types less deep"));
}
