//! What the `print fmt` of an event says beyond its words: tables of flags and symbols.
//!
//! The bit of a task state differs between kernel versions (16 is Z up to 3.14 and X afterwards),
//! so states are decoded with the table in the file's own sched_switch format, never with a
//! constant.

/// The `{ value, "text" }` pairs of the first `__print_flags` or `__print_symbolic` after `from`.
pub fn pairs(fmt: &str, function: &str) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let Some(at) = fmt.find(function) else { return found };
    let mut rest = &fmt[at..];
    while let Some(open) = rest.find('{') {
        // A parenthesis that closes the call ends the table; those within an argument are balanced.
        let between = &rest[..open];
        if !found.is_empty() && between.contains(')') {
            break;
        }
        let Some(close) = rest[open..].find('}') else { break };
        let inner = &rest[open + 1..open + close];
        let Some((value, text)) = inner.split_once(',') else { break };
        let text = text.trim().trim_matches('"');
        let Some(value) = evaluate(value) else { break };
        found.push((value, text.to_owned()));
        rest = &rest[open + close + 1..];
    }
    found
}

/// Evaluates a constant C expression of integers, `|`, `+`, `-`, `<<` and parentheses.
pub fn evaluate(text: &str) -> Option<u64> {
    let mut e = Expr { rest: text.trim(), depth: 0 };
    let value = e.or()?;
    e.rest.trim().is_empty().then_some(value)
}

struct Expr<'a> {
    rest: &'a str,
    depth: u32,
}

impl Expr<'_> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.eat("|") {
            value |= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        while self.eat("<<") {
            value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
        }
        Some(value)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.atom()?;
        loop {
            if self.eat("+") {
                value = value.wrapping_add(self.atom()?);
            } else if self.eat("-") {
                value = value.wrapping_sub(self.atom()?);
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&mut self) -> Option<u64> {
        if self.eat("(") {
            self.depth += 1;
            if self.depth > 64 {
                return None;
            }
            let value = self.or()?;
            self.depth -= 1;
            return self.eat(")").then_some(value);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        let digits = digits.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

/// How a kernel writes task states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateTable {
    /// Bit or bits, and letter, in the order in which they are printed.
    pub letters: Vec<(u64, String)>,
    /// The bits that the letters are looked up in.
    pub mask: u64,
    /// The bit that means `preempted`, 0 when this kernel has none.
    pub preempted: u64,
    /// Records hold the place of the letter, from 1, not its bit.
    pub indexed: bool,
}

impl StateTable {
    /// Reads the table out of the `print fmt` of sched_switch.
    pub fn from_print_fmt(fmt: &str) -> Self {
        let letters = pairs(fmt, "__print_flags");
        let all = letters.iter().fold(0, |bits, (bit, _)| bits | bit);
        let masks = masks(fmt);
        let preempted = fmt.find("\"+\"").and_then(|plus| {
            let (_, mask) = masks.iter().rfind(|(at, _)| *at < plus)?;
            Some(*mask)
        });
        let flags_at = fmt.find("__print_flags").unwrap_or(fmt.len());
        let mask = masks.iter().find(|(at, _)| *at > flags_at).map_or(all, |(_, mask)| *mask);
        let preempted = preempted.unwrap_or(0);
        StateTable { letters, mask: if mask == preempted { all } else { mask }, preempted, indexed: false }
    }

    /// Takes the kernel's release into account: 4.14 writes the place of the state in its table (Linux commit
    /// 3f5fe9fef5b2, in 4.15, repairs that). True when it does.
    pub fn of_kernel(&mut self, release: &str) -> bool {
        self.indexed = release.strip_prefix("4.14").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
        self.indexed &= !self.letters.is_empty();
        self.indexed
    }

    /// The bits of a recorded `value`. A value that only bits can make shows that the kernel was repaired.
    pub fn bits(&mut self, value: u64) -> u64 {
        if !self.indexed || value == 0 || value == self.preempted {
            return value;
        }
        match usize::try_from(value - 1).ok().and_then(|place| self.letters.get(place)) {
            Some((bit, _)) => *bit,
            None => {
                self.indexed = false;
                value
            }
        }
    }

    /// The state as the kernel prints it: letters joined with `|`, `R` for none, `+` when preempted.
    pub fn letters(&self, value: u64) -> String {
        let mut text = String::new();
        let mut left = value & self.mask;
        for (bit, letter) in &self.letters {
            if *bit != 0 && left & bit == *bit {
                if !text.is_empty() {
                    text.push('|');
                }
                text.push_str(letter);
                left &= !bit;
            }
        }
        if text.is_empty() {
            if left == 0 {
                text.push('R');
            } else {
                text = format!("{left:#x}");
            }
        } else if left != 0 {
            text.push_str(&format!("|{left:#x}"));
        }
        if self.preempted != 0 && value & self.preempted != 0 {
            text.push('+');
        }
        text
    }

    /// The table as JSON: bit -> letter.
    pub fn json(&self) -> String {
        let mut fields: Vec<_> = self.letters.iter().map(|(bit, letter)| format!("\"{bit}\": \"{letter}\"")).collect();
        if self.preempted != 0 {
            fields.push(format!("\"{}\": \"+\"", self.preempted));
        }
        format!("{{{}}}", fields.join(", "))
    }
}

/// Every `prev_state & (constant)` with its position.
fn masks(fmt: &str) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for (at, _) in fmt.match_indices("prev_state & ") {
        let rest = &fmt[at + "prev_state & ".len()..];
        let end = if rest.starts_with('(') { balanced(rest) } else { rest.find(|c: char| !c.is_alphanumeric()) };
        if let Some(mask) = end.and_then(|end| evaluate(&rest[..end])) {
            found.push((at, mask));
        }
    }
    found
}

/// Length of the parenthesised expression at the start of `text`.
fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0u32;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(i + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = r#""... prev_state=%s%s ==> ...", (REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? "+" : "", REC->next_comm"#;
    const OLD: &str = r#""...", REC->prev_state & (1024-1) ? __print_flags(REC->prev_state & (1024-1), "|", { 1, "S"} , { 2, "D" }, { 16, "Z" }, { 32, "X" }, { 128, "K" }, { 512, "P" }) : "R", REC->prev_state & 1024 ? "+" : "", REC->next_comm"#;
    const OLDEST: &str = r#""...", REC->prev_state ? __print_flags(REC->prev_state, "|", { 1, "S"} , { 2, "D" }, { 128, "W" }) : "R", REC->next_comm"#;

    #[test]
    fn places_of_kernel_4_14_until_a_bit_shows() {
        let mut table = StateTable::from_print_fmt(NEW);
        assert!(!table.of_kernel("4.141.0") && !table.of_kernel("6.1.0") && table.of_kernel("4.14.15"));
        let mut of = |n| {
            let bits = table.bits(n);
            table.letters(bits)
        };
        assert_eq!([of(0), of(1), of(3), of(6), of(8), of(0x100)], ["R", "S", "T", "Z", "I", "R+"]);
        // A repaired kernel: 0x80 can only be a bit, and 8 is one from there on.
        assert_eq!([of(0x80), of(8)], ["I", "t"]);
    }

    #[test]
    fn state_tables_of_three_kernels() {
        let new = StateTable::from_print_fmt(NEW);
        assert_eq!((new.mask, new.preempted), (0xff, 0x100));
        let of = |t: &StateTable, v| t.letters(v);
        assert_eq!([0, 1, 2, 0x80, 0x100, 0x10].map(|v| of(&new, v)), ["R", "S", "D", "I", "R+", "X"]);
        let old = StateTable::from_print_fmt(OLD);
        assert_eq!((old.mask, old.preempted), (1023, 1024));
        assert_eq!([0x82, 16, 1025, 1024].map(|v| of(&old, v)), ["D|K", "Z", "S+", "R+"]);
        let oldest = StateTable::from_print_fmt(OLDEST);
        assert_eq!((oldest.mask, oldest.preempted), (0x83, 0));
        assert_eq!([0x81, 0].map(|v| of(&oldest, v)), ["S|W", "R"]);
        assert_eq!(oldest.json(), r#"{"1": "S", "2": "D", "128": "W"}"#);
    }

    #[test]
    fn unknown_bits_are_shown() {
        let t = StateTable::from_print_fmt(OLD);
        assert_eq!(t.letters(256), "0x100");
        assert_eq!(t.letters(257), "S|0x100");
    }

    #[test]
    fn symbols() {
        let fmt =
            r#""vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" }), { 2, "no" }"#;
        assert_eq!(pairs(fmt, "__print_symbolic"), [(0, "HI".to_owned()), (1, "TIMER".to_owned())]);
        assert_eq!(evaluate("(1 << 4) | 3"), Some(19));
        assert_eq!(evaluate("1 << 99"), None);
        assert_eq!(evaluate(&"(".repeat(200)), None);
        assert_eq!(evaluate("REC->x"), None);
    }
}
