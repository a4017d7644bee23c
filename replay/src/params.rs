//! Policy strings `name:param=value,param=value`, and the typed parameter table of each policy.

use crate::near;
use crate::task::Ns;
use std::fmt;

/// Unit and type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, written with its unit (`10ms`, `750us`, `4s`, `100ns`); stored in ns.
    Time,
    /// A whole number.
    Count,
    /// A number with a fraction.
    Number,
    /// `on` or `off`; stored as 1 and 0.
    Switch,
    /// One of these words; stored as its position.
    Choice(&'static [&'static str]),
    /// Free text (a table, a pattern).
    Text,
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Default, as the user would write it; or, where it depends on the choice made by the table's
    /// first parameter, pairs such as `2.6.29:20ms 6.1:6ms`.
    pub default: &'static str,
    /// Smallest and largest value, as the user would write them; `None` for no bound.
    pub range: Option<(&'static str, &'static str)>,
    /// What it does.
    pub doc: &'static str,
}

/// A checked set of parameters: every parameter of the policy has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    values: Vec<(&'static str, Value)>,
    given: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Int(i64),
    Number(f64),
    Text(String),
}

/// A policy string that does not fit the policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParamError(pub String);

/// A time with its unit in ns: `10ms`, `1.5us`, `3s`, `100ns`.
pub fn duration(text: &str) -> Option<Ns> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let scale: i64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    decimal(number, scale)
}

/// `number` times `scale`, exactly, without floats; `None` when it is no decimal number or has a rest.
pub fn decimal(number: &str, scale: i64) -> Option<i64> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut ns = whole.checked_mul(scale)?;
    let mut step = scale;
    for digit in fraction.bytes() {
        if step % 10 != 0 {
            return if digit == b'0' { continue } else { None };
        }
        step /= 10;
        ns = ns.checked_add(i64::from(digit - b'0') * step)?;
    }
    Some(sign * ns)
}

/// A time for people: the largest unit that needs no more than three decimals.
pub fn show_duration(ns: Ns) -> String {
    for (unit, scale) in [("s", 1_000_000_000i64), ("ms", 1_000_000), ("us", 1_000)] {
        if ns % (scale / 1000) == 0 && ns.abs() >= scale {
            let text = format!("{}.{:03}", ns / scale, (ns % scale).abs() / (scale / 1000));
            return format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{ns}ns")
}

/// `on`, `off` and their usual synonyms.
pub fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

impl Param {
    /// The default when the table's first parameter is `form`.
    pub fn default_for(&self, form: &str) -> &'static str {
        if matches!(self.unit, Unit::Text) || !self.default.contains(':') {
            return self.default;
        }
        let mut pairs = self.default.split_whitespace().filter_map(|pair| pair.split_once(':'));
        let found = pairs.clone().find(|(f, _)| *f == form).or_else(|| pairs.next());
        found.map_or(self.default, |(_, value)| value)
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self.unit {
            Unit::Time => {
                duration(text).map(Value::Int).ok_or_else(|| "a time with its unit, such as 10ms or 750us".to_owned())
            }
            Unit::Count => text.parse().map(Value::Int).map_err(|_| "a whole number".to_owned()),
            Unit::Number => match text.parse::<f64>() {
                Ok(v) if v.is_finite() => Ok(Value::Number(v)),
                _ => Err("a number".to_owned()),
            },
            Unit::Switch => on_off(text).map(|v| Value::Int(v.into())).ok_or_else(|| "on or off".to_owned()),
            Unit::Choice(words) => words
                .iter()
                .position(|w| *w == text)
                .map(|i| Value::Int(i as i64))
                .ok_or_else(|| format!("one of {}", words.join(", "))),
            Unit::Text => Ok(Value::Text(text.to_owned())),
        };
        let value = value.map_err(|want| format!("{}={text}: expected {want}", self.name))?;
        self.check(&value, text)?;
        Ok(value)
    }

    fn check(&self, value: &Value, text: &str) -> Result<(), String> {
        let Some((lo, hi)) = self.range else { return Ok(()) };
        let as_number = |text: &str| match self.unit {
            Unit::Time => duration(text).unwrap_or(0) as f64,
            _ => text.parse::<f64>().unwrap_or(0.0),
        };
        let number = match value {
            Value::Int(v) => *v as f64,
            Value::Number(v) => *v,
            Value::Text(_) => return Ok(()),
        };
        if number < as_number(lo) || number > as_number(hi) {
            return Err(format!("{}={text}: expected {lo} to {hi}", self.name));
        }
        Ok(())
    }
}

impl Params {
    /// The defaults of `table`, overridden by `text` (`param=value,param=value`, may be empty).
    pub fn parse(policy: &str, table: &'static [Param], text: &str) -> Result<Self, ParamError> {
        let mut values: Vec<(&'static str, Value)> = Vec::with_capacity(table.len());
        let form = Self::form(table, text);
        for p in table {
            let default = p.default_for(form);
            let v = p.parse(default).map_err(|e| ParamError(format!("policy {policy}: default of {e}")))?;
            values.push((p.name, v));
        }
        let mut given = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| ParamError(format!("policy {policy}: `{part}`: expected param=value")))?;
            let (name, value) = (name.trim(), value.trim());
            let Some(i) = table.iter().position(|p| p.name == name) else {
                let names: Vec<&str> = table.iter().map(|p| p.name).collect();
                let meant = near::nearest(name, &names);
                let valid = if names.is_empty() { "it has none".into() } else { near::valid(meant, &names) };
                return Err(ParamError(format!("policy {policy}: no parameter {name}; {valid}")));
            };
            values[i].1 = table[i].parse(value).map_err(|e| ParamError(format!("policy {policy}: {e}")))?;
            given.push(table[i].name);
        }
        Ok(Params { values, given })
    }

    /// The same with `form` for the table's first parameter, and the defaults of that where no value
    /// was given.
    pub fn of_form(&self, table: &'static [Param], form: &str) -> Self {
        let mut params = self.clone();
        for (at, p) in table.iter().enumerate().filter(|(_, p)| !self.given(p.name)) {
            let text = if at == 0 { form } else { p.default_for(form) };
            if let Ok(value) = p.parse(text) {
                params.values[at].1 = value;
            }
        }
        params
    }

    /// The choice that `text` makes for the first parameter of the table, when that is a choice.
    fn form<'a>(table: &'static [Param], text: &'a str) -> &'a str {
        let Some(Param { name, unit: Unit::Choice(_), default, .. }) = table.first() else { return "" };
        let given = text.split(',').filter_map(|part| part.split_once('=')).find(|(n, _)| n.trim() == *name);
        given.map_or(default, |(_, value)| value.trim())
    }

    fn value(&self, name: &str) -> &Value {
        &self.values.iter().find(|v| v.0 == name).unwrap_or_else(|| panic!("no parameter {name} in the table")).1
    }

    /// A time in ns, a count, or the position of a choice.
    pub fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Int(v) => *v,
            Value::Number(v) => *v as i64,
            Value::Text(_) => panic!("parameter {name} is text"),
        }
    }

    /// A switch.
    pub fn on(&self, name: &str) -> bool {
        self.int(name) != 0
    }

    /// A number with a fraction.
    pub fn number(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Int(v) => *v as f64,
            Value::Number(v) => *v,
            Value::Text(_) => panic!("parameter {name} is text"),
        }
    }

    /// A text.
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(v) => v,
            _ => panic!("parameter {name} is not text"),
        }
    }

    /// True when the user wrote the parameter down.
    pub fn given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// All parameters as a policy string would write them.
    pub fn show<'a>(&'a self, table: &'a [Param]) -> impl fmt::Display + 'a {
        Show { params: self, table }
    }
}

struct Show<'a> {
    params: &'a Params,
    table: &'a [Param],
}

impl fmt::Display for Show<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (p, (_, v))) in self.table.iter().zip(&self.params.values).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}=", p.name)?;
            match (p.unit, v) {
                (Unit::Time, Value::Int(v)) => f.write_str(&show_duration(*v))?,
                (Unit::Switch, Value::Int(v)) => f.write_str(if *v != 0 { "on" } else { "off" })?,
                (Unit::Choice(words), Value::Int(v)) => f.write_str(words[*v as usize])?,
                (_, Value::Int(v)) => write!(f, "{v}")?,
                (_, Value::Number(v)) => write!(f, "{v}")?,
                (_, Value::Text(v)) => f.write_str(v)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Param] = &[
        Param { name: "form", unit: Unit::Choice(&["a", "b"]), default: "b", range: None, doc: "" },
        Param { name: "wait", unit: Unit::Time, default: "a:1ms b:2ms", range: None, doc: "" },
        Param { name: "quantum", unit: Unit::Time, default: "100ms", range: Some(("1us", "10s")), doc: "" },
        Param { name: "fair", unit: Unit::Switch, default: "on", range: None, doc: "" },
    ];

    #[test]
    fn defaults_units_and_round_trip() {
        let p = Params::parse("x", TABLE, "quantum=1.5ms, fair=off").unwrap();
        assert_eq!(p.int("quantum"), 1_500_000);
        assert!(!p.on("fair"));
        assert!(p.given("fair") && !p.given("form"));
        assert_eq!(p.show(TABLE).to_string(), "form=b,wait=2ms,quantum=1.5ms,fair=off");
    }

    #[test]
    fn defaults_follow_the_form() {
        assert_eq!(Params::parse("x", TABLE, "").unwrap().int("wait"), 2_000_000);
        assert_eq!(Params::parse("x", TABLE, "form=a").unwrap().int("wait"), 1_000_000);
        assert_eq!(Params::parse("x", TABLE, "wait=7ms, form = a").unwrap().int("wait"), 7_000_000);
        let shown = |text: &str| Params::parse("x", TABLE, text).unwrap().of_form(TABLE, "a").show(TABLE).to_string();
        assert_eq!(shown("fair=off"), "form=a,wait=1ms,quantum=100ms,fair=off");
        assert_eq!(shown("wait=7ms"), "form=a,wait=7ms,quantum=100ms,fair=on");
    }

    #[test]
    fn errors_name_what_is_valid() {
        let e = |t: &str| Params::parse("x", TABLE, t).unwrap_err().0;
        assert_eq!(e("slice=1ms"), "policy x: no parameter slice; valid are form, wait, quantum, fair");
        assert!(
            e("quantm=1ms").ends_with("no parameter quantm; did you mean quantum? Valid are form, wait, quantum, fair")
        );
        assert_eq!(e("quantum=5"), "policy x: quantum=5: expected a time with its unit, such as 10ms or 750us");
        assert_eq!(e("quantum=11s"), "policy x: quantum=11s: expected 1us to 10s");
        assert_eq!(e("form=c"), "policy x: form=c: expected one of a, b");
        assert_eq!(e("fair"), "policy x: `fair`: expected param=value");
    }

    #[test]
    fn durations_are_exact() {
        assert_eq!(duration("0.1ms"), Some(100_000));
        assert_eq!(duration("1.0000001s"), Some(1_000_000_100));
        assert_eq!(duration("1.5ns"), None);
        assert_eq!(duration("10"), None);
        assert_eq!(duration("9000000000s"), Some(9_000_000_000_000_000_000));
        assert_eq!(duration("99999999999s"), None);
        assert_eq!(show_duration(1_500_000), "1.5ms");
        assert_eq!(show_duration(123_456_789), "123456.789us");
    }
}
