//! TSDL, the language of the `metadata` of a CTF 1.8 trace: types, then what a trace, its streams
//! and events hold.
//!
//! A name must be declared before it is used, so types cannot contain themselves. Nesting is bounded.

mod lexer;
pub mod types;

use std::collections::HashMap;
use std::sync::Arc;

use lexer::Token;
use types::{Enum, Fields, Int, Length, Type};

/// Types within types, at most.
const DEEPEST: u32 = 32;

/// The clock of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    pub name: String,
    pub hz: u64,
    pub offset_s: i64,
    pub offset: i64,
}

/// What the streams of one number hold.
#[derive(Clone, Debug, Default)]
pub struct StreamClass {
    pub packet_context: Option<Type>,
    pub event_header: Option<Type>,
    pub event_context: Option<Type>,
}

/// What the events of one number hold.
#[derive(Clone, Debug, Default)]
pub struct EventClass {
    pub name: String,
    pub context: Option<Type>,
    pub fields: Option<Type>,
}

/// A trace's description of itself.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pub big_endian: bool,
    pub packet_header: Option<Type>,
    pub env: HashMap<String, String>,
    pub clocks: Vec<Clock>,
    pub streams: HashMap<u64, StreamClass>,
    /// By number of the stream and of the event.
    pub events: HashMap<(u64, u64), EventClass>,
}

/// What is wrong, and the offset in the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    pub message: String,
    pub at: usize,
}

/// Reads the text of a description.
pub fn read(text: &str) -> Result<Metadata, Wrong> {
    let tokens = lexer::tokens(text)
        .map_err(|at| Wrong { message: "expected a word of TSDL, found something else".to_owned(), at })?;
    let mut p = Parser { tokens, at: 0, aliases: HashMap::new(), depth: 0 };
    let mut meta = Metadata::default();
    while p.at < p.tokens.len() {
        p.top(&mut meta)?;
    }
    Ok(meta)
}

/// A right side of `=`.
#[derive(Debug)]
enum Value {
    Number(i128),
    Text(String),
}

impl Value {
    fn number(&self) -> Option<i128> {
        match self {
            Value::Number(n) => Some(*n),
            Value::Text(text) => text.parse().ok(),
        }
    }

    fn into_text(self) -> String {
        match self {
            Value::Number(n) => n.to_string(),
            Value::Text(text) => text,
        }
    }

    fn is_true(&self) -> bool {
        match self {
            Value::Number(n) => *n != 0,
            Value::Text(text) => text.eq_ignore_ascii_case("true"),
        }
    }
}

/// What stands between the braces of a block: values and types, by name.
#[derive(Debug, Default)]
struct Block {
    values: Vec<(String, Value)>,
    types: HashMap<String, Type>,
}

impl Block {
    fn value(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.number().and_then(|n| u64::try_from(n).ok())
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    /// Types by name; those of structs, variants and enumerations behind their keyword.
    aliases: HashMap<String, Type>,
    depth: u32,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.0)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(s)) if *s == sign)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    fn wrong<T>(&self, expected: &str) -> Result<T, Wrong> {
        let (found, at) = match self.tokens.get(self.at) {
            Some((Token::Word(w), at)) => (w.clone(), *at),
            Some((Token::Number(n), at)) => (n.to_string(), *at),
            Some((Token::Text(t), at)) => (format!("\"{}\"", t.chars().take(40).collect::<String>()), *at),
            Some((Token::Sign(s), at)) => ((*s).to_owned(), *at),
            None => ("the end".to_owned(), self.tokens.last().map_or(0, |t| t.1)),
        };
        Err(Wrong { message: format!("expected {expected}, found {found}"), at })
    }

    fn expect(&mut self, sign: &str) -> Result<(), Wrong> {
        if self.eat(sign) {
            return Ok(());
        }
        self.wrong(&format!("`{sign}`"))
    }

    fn word(&mut self) -> Result<String, Wrong> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.wrong("a name"),
        }
    }

    /// `a.b.c`
    fn path(&mut self) -> Result<String, Wrong> {
        let mut path = self.word()?;
        while self.eat(".") {
            path.push('.');
            path.push_str(&self.word()?);
        }
        Ok(path)
    }

    fn top(&mut self, meta: &mut Metadata) -> Result<(), Wrong> {
        if self.eat(";") {
            return Ok(());
        }
        for block in ["trace", "env", "clock", "stream", "event", "callsite"] {
            if matches!(self.peek(), Some(Token::Word(w)) if w == block) {
                self.at += 1;
                let found = self.block()?;
                self.eat(";");
                return self.take(block, found, meta);
            }
        }
        self.declaration()
    }

    fn take(&self, block: &str, mut found: Block, meta: &mut Metadata) -> Result<(), Wrong> {
        match block {
            "trace" => {
                meta.packet_header = found.types.remove("packet.header");
                meta.big_endian =
                    matches!(found.value("byte_order"), Some(Value::Text(t)) if t == "be" || t == "network");
            }
            "env" => meta.env.extend(found.values.into_iter().map(|(k, v)| (k, v.into_text()))),
            "clock" => {
                let signed = |key: &str| found.value(key).and_then(Value::number).map_or(0, |n| n as i64);
                let hz = found.number("freq").unwrap_or(1_000_000_000);
                if hz == 0 {
                    return self.wrong("a frequency above 0");
                }
                let (offset_s, offset) = (signed("offset_s"), signed("offset"));
                let name = found.values.into_iter().find(|(k, _)| k == "name").map(|(_, v)| v.into_text());
                meta.clocks.push(Clock { name: name.unwrap_or_default(), hz, offset_s, offset });
            }
            "stream" => {
                let class = StreamClass {
                    packet_context: found.types.remove("packet.context"),
                    event_header: found.types.remove("event.header"),
                    event_context: found.types.remove("event.context"),
                };
                meta.streams.insert(found.number("id").unwrap_or(0), class);
            }
            "event" => {
                let key = (found.number("stream_id").unwrap_or(0), found.number("id").unwrap_or(0));
                let (context, fields) = (found.types.remove("context"), found.types.remove("fields"));
                let name = found.values.into_iter().find(|(k, _)| k == "name").map(|(_, v)| v.into_text());
                meta.events.insert(key, EventClass { name: name.unwrap_or_default(), context, fields });
            }
            _ => {}
        }
        Ok(())
    }

    /// `{ key = value; key := type; ... }`
    fn block(&mut self) -> Result<Block, Wrong> {
        self.expect("{")?;
        let mut block = Block::default();
        while !self.eat("}") {
            if self.eat(";") {
                continue;
            }
            let next = self.tokens.get(self.at + 1).map(|t| &t.0);
            let assigned = matches!(next, Some(Token::Sign("=" | ":=" | ".")));
            if !assigned {
                self.declaration()?;
                continue;
            }
            let key = self.path()?;
            if self.eat(":=") {
                let found = self.specifier()?;
                block.types.insert(key, found);
            } else {
                self.expect("=")?;
                block.values.push((key, self.value()?));
            }
            self.expect(";")?;
        }
        Ok(block)
    }

    fn value(&mut self) -> Result<Value, Wrong> {
        let negative = self.eat("-");
        match self.peek() {
            Some(Token::Number(n)) => {
                let n = if negative { -*n } else { *n };
                self.at += 1;
                Ok(Value::Number(n))
            }
            Some(Token::Text(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(Value::Text(text))
            }
            _ => self.path().map(Value::Text),
        }
    }

    /// A declaration that stands alone: an alias, or a named struct, variant or enumeration.
    fn declaration(&mut self) -> Result<(), Wrong> {
        if self.eat_word("typealias") {
            let found = self.specifier()?;
            self.expect(":=")?;
            let name = self.alias_name()?;
            self.aliases.insert(name, found);
        } else if self.eat_word("typedef") {
            let found = self.specifier()?;
            let (name, found) = self.declarator(found)?;
            self.aliases.insert(name, found);
        } else {
            self.specifier()?;
        }
        self.expect(";")
    }

    /// Words up to what ends a name.
    fn alias_name(&mut self) -> Result<String, Wrong> {
        let mut name = self.word()?;
        while let Some(Token::Word(word)) = self.peek() {
            name.push(' ');
            name.push_str(word);
            self.at += 1;
        }
        Ok(name)
    }

    /// A type, without what it is given to.
    fn specifier(&mut self) -> Result<Type, Wrong> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.wrong("types less deep within each other");
        }
        let found = match self.peek() {
            Some(Token::Word(word)) => match word.clone().as_str() {
                "integer" => self.integer(),
                "floating_point" => self.float(),
                "string" => self.text(),
                "enum" => self.enumeration(),
                "struct" => self.structure(),
                "variant" => self.variant(),
                _ => self.known(),
            },
            _ => self.wrong("a type"),
        };
        self.depth -= 1;
        found
    }

    fn integer(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        let block = self.block()?;
        let size = block.number("size").filter(|n| (1..=64).contains(n));
        let Some(size) = size.map(|n| n as u32) else { return self.wrong("an integer of 1 to 64 bits") };
        let align = block.number("align").unwrap_or(if size % 8 == 0 { 8 } else { 1 });
        let text = |key: &str| match block.value(key) {
            Some(Value::Text(text)) => text.as_str(),
            _ => "",
        };
        Ok(Type::Int(Int {
            size,
            align: self.alignment(align)?,
            signed: block.value("signed").is_some_and(Value::is_true),
            big_endian: match text("byte_order") {
                "be" | "network" => Some(true),
                "le" => Some(false),
                _ => None,
            },
            character: matches!(text("encoding"), "UTF8" | "ASCII" | "utf8" | "ascii") && size == 8,
            clock: text("map").starts_with("clock."),
        }))
    }

    fn alignment(&self, align: u64) -> Result<u32, Wrong> {
        match u32::try_from(align) {
            Ok(n) if n.is_power_of_two() && n <= 4096 => Ok(n),
            _ => self.wrong("an alignment that is a power of two"),
        }
    }

    fn float(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        let block = self.block()?;
        let size = block.number("exp_dig").unwrap_or(8).saturating_add(block.number("mant_dig").unwrap_or(24));
        let align = self.alignment(block.number("align").unwrap_or(1))?;
        match size {
            1..=128 => Ok(Type::Float(size as u32, align)),
            _ => self.wrong("a number of up to 128 bits"),
        }
    }

    fn text(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        if self.is("{") {
            self.block()?;
        }
        Ok(Type::Text)
    }

    /// A type by its name. Of the words, the last may be what the type is given to.
    fn known(&mut self) -> Result<Type, Wrong> {
        let mut name = String::new();
        let mut found = None;
        let mut at = self.at;
        while let Some((Token::Word(word), _)) = self.tokens.get(at) {
            if !name.is_empty() {
                name.push(' ');
            }
            name.push_str(word);
            at += 1;
            if let Some(known) = self.aliases.get(&name) {
                found = Some((known.clone(), at));
            }
        }
        match found {
            Some((known, end)) => {
                self.at = end;
                Ok(known)
            }
            None => self.wrong("the name of a type"),
        }
    }

    fn enumeration(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        let name = self.tag();
        let int =
            if self.eat(":") { self.specifier()? } else { self.aliases.get("int").cloned().unwrap_or(Type::Text) };
        if !self.is("{") {
            return self.tagged("enum", name);
        }
        let Type::Int(int) = int else { return self.wrong("an integer under the enumeration") };
        let labels = self.labels()?;
        Ok(self.named("enum", name, Type::Enum(Arc::new(Enum { int, labels }))))
    }

    fn labels(&mut self) -> Result<Vec<(i128, i128, String)>, Wrong> {
        self.expect("{")?;
        let (mut labels, mut next) = (Vec::new(), 0);
        while !self.eat("}") {
            let name = match self.peek() {
                Some(Token::Text(text)) => {
                    let text = text.clone();
                    self.at += 1;
                    text
                }
                _ => self.word()?,
            };
            let (mut lo, mut hi) = (next, next);
            if self.eat("=") {
                lo = self.constant()?;
                hi = if self.eat("...") { self.constant()? } else { lo };
            }
            next = hi.saturating_add(1);
            labels.push((lo, hi, name));
            if !self.eat(",") && !self.is("}") {
                return self.wrong("`,` or `}`");
            }
        }
        Ok(labels)
    }

    fn constant(&mut self) -> Result<i128, Wrong> {
        match self.value()? {
            Value::Number(n) => Ok(n),
            Value::Text(_) => self.wrong("a number"),
        }
    }

    fn structure(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        let name = self.tag();
        if !self.is("{") {
            return self.tagged("struct", name);
        }
        let mut fields = self.fields()?;
        if self.eat_word("align") {
            self.expect("(")?;
            let align = u64::try_from(self.constant()?).unwrap_or(0);
            fields.align = fields.align.max(self.alignment(align)?);
            self.expect(")")?;
        }
        Ok(self.named("struct", name, Type::Struct(Arc::new(fields))))
    }

    fn variant(&mut self) -> Result<Type, Wrong> {
        self.at += 1;
        let name = self.tag();
        let tag = if self.eat("<") {
            let tag = self.path()?;
            self.expect(">")?;
            tag
        } else {
            String::new()
        };
        let tag = tag.rsplit('.').next().unwrap_or_default().to_owned();
        if self.is("{") {
            let fields = self.fields()?;
            return Ok(self.named("variant", name, Type::Variant(tag, Arc::new(fields))));
        }
        match self.tagged("variant", name)? {
            Type::Variant(_, options) => Ok(Type::Variant(tag, options)),
            other => Ok(other),
        }
    }

    /// The name behind `struct`, `variant` or `enum`, if there is one.
    fn tag(&mut self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(_)) => self.word().ok(),
            _ => None,
        }
    }

    fn named(&mut self, keyword: &str, name: Option<String>, found: Type) -> Type {
        if let Some(name) = name {
            self.aliases.insert(format!("{keyword} {name}"), found.clone());
        }
        found
    }

    fn tagged(&self, keyword: &str, name: Option<String>) -> Result<Type, Wrong> {
        let known = name.and_then(|n| self.aliases.get(&format!("{keyword} {n}")));
        match known {
            Some(known) => Ok(known.clone()),
            None => self.wrong(&format!("`{{` or a {keyword} that was declared before")),
        }
    }

    /// `{ type name; ... }`
    fn fields(&mut self) -> Result<Fields, Wrong> {
        self.expect("{")?;
        let mut fields = Fields { list: Vec::new(), align: 1 };
        while !self.eat("}") {
            if self.eat(";") {
                continue;
            }
            if matches!(self.peek(), Some(Token::Word(w)) if w == "typealias" || w == "typedef") {
                self.declaration()?;
                continue;
            }
            let base = self.specifier()?;
            loop {
                let (name, found) = self.declarator(base.clone())?;
                fields.align = fields.align.max(found.align());
                fields.list.push((name, found));
                if !self.eat(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        Ok(fields)
    }

    /// `name`, `name[8]`, `name[ length ]`
    fn declarator(&mut self, base: Type) -> Result<(String, Type), Wrong> {
        let name = self.word()?;
        let mut lengths = Vec::new();
        while self.eat("[") {
            lengths.push(match self.peek() {
                Some(Token::Number(n)) => {
                    let n = u64::try_from(*n).unwrap_or(u64::MAX);
                    self.at += 1;
                    Length::Fixed(n)
                }
                _ => {
                    let path = self.path()?;
                    Length::Field(path.rsplit('.').next().unwrap_or_default().to_owned())
                }
            });
            self.expect("]")?;
        }
        if lengths.len() > DEEPEST as usize {
            return self.wrong("arrays less deep within each other");
        }
        let found = lengths.into_iter().rev().fold(base, |element, n| Type::Array(Arc::new(element), n));
        Ok((name, found))
    }
}

#[cfg(test)]
mod tests;
