//! The words of TSDL, the language in which a CTF trace describes itself.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name or keyword.
    Word(String),
    /// A whole number, as its 64 bits.
    Number(i128),
    /// A quoted text.
    Text(String),
    /// `:=`, `...`, or one character.
    Sign(&'static str),
}

const SIGNS: [&str; 16] = [":=", "...", "{", "}", "[", "]", "(", ")", "<", ">", ";", ":", ",", "=", ".", "-"];

/// Splits `text`; the error is the offset of what is no word.
pub fn tokens(text: &str) -> Result<Vec<(Token, usize)>, usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let first = rest.as_bytes()[0];
        if first.is_ascii_whitespace() || first == 0 {
            at += 1;
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |n| n + 2);
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if first == b'"' {
            let (value, len) = quoted(rest).ok_or(at)?;
            found.push((Token::Text(value), at));
            at += len;
        } else if first.is_ascii_digit() {
            let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric()).count();
            found.push((Token::Number(number(&rest[..len]).ok_or(at)?), at));
            at += len;
        } else if first.is_ascii_alphabetic() || first == b'_' {
            let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            found.push((Token::Word(rest[..len].to_owned()), at));
            at += len;
        } else if first == b'+' {
            at += 1;
        } else {
            let sign = SIGNS.into_iter().find(|s| rest.starts_with(s)).ok_or(at)?;
            found.push((Token::Sign(sign), at));
            at += sign.len();
        }
    }
    Ok(found)
}

/// The text of a string literal, and its length with the quotes.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, at + 1)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            _ => value.push(c),
        }
    }
    None
}

fn number(text: &str) -> Option<i128> {
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return i128::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        Some(octal) => i128::from_str_radix(octal, 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_kind() {
        let found: Vec<_> = tokens("/* c */ enum : a_1 { x = 0 ... 0x1F, \"y \\\"z\" } := // end\n")
            .unwrap()
            .into_iter()
            .map(|t| t.0)
            .collect();
        let word = |t: &str| Token::Word(t.to_owned());
        let want = [
            word("enum"),
            Token::Sign(":"),
            word("a_1"),
            Token::Sign("{"),
            word("x"),
            Token::Sign("="),
            Token::Number(0),
            Token::Sign("..."),
            Token::Number(31),
            Token::Sign(","),
            Token::Text("y \"z".to_owned()),
            Token::Sign("}"),
            Token::Sign(":="),
        ];
        assert_eq!(found, want);
        assert_eq!(tokens("a @"), Err(2));
        assert_eq!(tokens("\"open"), Err(0));
        assert_eq!(tokens("/* open"), Ok(Vec::new()));
    }
}
