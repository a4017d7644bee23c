//! The time-sharing dispatch table, and its text form as `dispadmin -g -c TS` prints it.

use crate::task::Ns;

/// One priority level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// Quantum in ticks.
    pub quantum: i64,
    /// Level after a quantum was used up.
    pub tqexp: usize,
    /// Level after a sleep, when `maxwait` was exceeded.
    pub slpret: usize,
    /// Seconds without a used-up quantum before `lwait`.
    pub maxwait: i64,
    /// Level then.
    pub lwait: usize,
}

/// Number of levels.
pub(super) const LEVELS: usize = 60;

/// The default table; quanta in 1/1000 s.
fn default_row(level: usize) -> [i64; 5] {
    let l = level as i64;
    let quantum = [200, 160, 120, 80, 40, 40][level / 10];
    let quantum = if level == 59 { 20 } else { quantum };
    let slpret = match level {
        0..=9 => 50,
        10..=19 => 51,
        20..=29 => 52,
        30..=34 => 53,
        35..=39 => 54,
        40..=44 => 55,
        45 => 56,
        46 => 57,
        47..=58 => 58,
        _ => 59,
    };
    let lwait = if level <= 48 { slpret } else { 59 };
    [quantum, (l - 10).max(0), slpret, if level == 59 { 32_000 } else { 0 }, lwait]
}

/// Ticks of a quantum of `quantum` / `res` seconds, rounded up.
fn ticks(quantum: i64, res: i64, tick_ns: Ns) -> i64 {
    let ns = i128::from(quantum) * 1_000_000_000 / i128::from(res.max(1));
    (((ns + i128::from(tick_ns) - 1) / i128::from(tick_ns)) as i64).max(1)
}

/// A table as text: `RES=n` and rows of five numbers; rows end at a line end or `;`, `#` begins a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    rows: Vec<[i64; 5]>,
    /// Units of a quantum per second, where the text says so.
    res: Option<i64>,
}

impl Table {
    /// The default table where `text` is `default`, else the rows of `text`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Table { rows: (0..LEVELS).map(default_row).collect(), res: None });
        }
        let mut rows = Vec::new();
        let mut res = None;
        for line in text.split(['\n', ';']) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            if let Some(value) = line.strip_prefix("RES=") {
                res = Some(value.trim().parse().ok().filter(|r| *r > 0).ok_or(format!("`{line}`: expected RES=1000"))?);
                continue;
            }
            let numbers: Vec<i64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
            let level = |n: i64| (0..LEVELS as i64).contains(&n);
            match numbers[..] {
                [quantum, tqexp, slpret, maxwait, lwait]
                    if quantum > 0 && maxwait >= 0 && level(tqexp) && level(slpret) && level(lwait) =>
                {
                    rows.push([quantum, tqexp, slpret, maxwait, lwait]);
                }
                _ => {
                    return Err(format!(
                        "table row {} is `{line}`: expected ts_quantum > 0, ts_tqexp, ts_slpret 0 \
                        to 59, ts_maxwait, ts_lwait 0 to 59",
                        rows.len()
                    ))
                }
            }
        }
        if rows.len() != LEVELS {
            return Err(format!("table: expected {LEVELS} rows, found {}", rows.len()));
        }
        Ok(Table { rows, res })
    }

    /// The levels, with quanta in ticks; `res` overrides the text's own.
    pub(super) fn levels(&self, res: Option<i64>, tick_ns: Ns) -> Vec<Level> {
        let res = res.or(self.res).unwrap_or(1000);
        let level = |r: &[i64; 5]| Level {
            quantum: ticks(r[0], res, tick_ns),
            tqexp: r[1] as usize,
            slpret: r[2] as usize,
            maxwait: r[3],
            lwait: r[4] as usize,
        };
        self.rows.iter().map(level).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Ns = 10_000_000;

    #[test]
    fn the_default_table_is_the_documented_one() {
        let t = Table::parse("default").unwrap().levels(None, TICK);
        assert_eq!(t[0], Level { quantum: 20, tqexp: 0, slpret: 50, maxwait: 0, lwait: 50 });
        assert_eq!(t[29], Level { quantum: 12, tqexp: 19, slpret: 52, maxwait: 0, lwait: 52 });
        assert_eq!(t[47], Level { quantum: 4, tqexp: 37, slpret: 58, maxwait: 0, lwait: 58 });
        assert_eq!(t[49], Level { quantum: 4, tqexp: 39, slpret: 58, maxwait: 0, lwait: 59 });
        assert_eq!(t[59], Level { quantum: 2, tqexp: 49, slpret: 59, maxwait: 32_000, lwait: 59 });
    }

    #[test]
    fn res_divides_quanta_and_rounds_up() {
        let t = Table::parse("default").unwrap().levels(Some(4000), TICK);
        assert_eq!(
            [t[0].quantum, t[10].quantum, t[20].quantum, t[30].quantum, t[40].quantum, t[59].quantum],
            [5, 4, 3, 2, 1, 1]
        );
    }

    #[test]
    fn text_tables_are_read_and_refused_with_the_row() {
        let mut text = String::from("# Time Sharing Dispatcher Configuration\nRES=1000\n");
        for l in 0..60 {
            text.push_str(&format!("{} {} 59 5 {}  # {l}\n", 200 - l, l.max(10) - 10, l));
        }
        let t = Table::parse(&text).unwrap().levels(None, TICK);
        assert_eq!(t[59], Level { quantum: 15, tqexp: 49, slpret: 59, maxwait: 5, lwait: 59 });
        assert!(Table::parse("RES=1000;200 0 50 0 50").unwrap_err().contains("expected 60 rows, found 1"));
        assert!(Table::parse("200 0 60 0 50").unwrap_err().contains("table row 0"));
    }
}
