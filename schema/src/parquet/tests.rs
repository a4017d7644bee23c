use super::*;
use crate::Events;
use proptest::prelude::*;

/// Rows whose columns repeat, hardly repeat, or come to repeat too little for a dictionary.
fn piece(rows: usize, seed: u64, strings: &mut Strings) -> Events {
    let mut events = Events::default();
    let mut state = seed;
    for i in 0..rows {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = state >> 24;
        let mut row = events.push();
        row.ts_ns((seed % 1000) as i64 + i as i64 * 7).seq(i as u64).kind(Kind::ALL[random as usize % Kind::ALL.len()]);
        row.quality((random % 3) as u16).cpu((random % 4) as i32).tid((random % 50) as i64 - 1);
        row.comm(strings.intern(format!("task {}", random % 90).as_bytes()));
        if random.is_multiple_of(5) {
            row.value(random as i64).next_comm(strings.intern(&[b'x', (random % 251) as u8]));
        }
    }
    events
}

fn written(pieces: &[Events], strings: &Strings, group_rows: usize, threads: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new::<Events>(group_rows, threads);
    pieces.iter().for_each(|piece| writer.push(piece, strings, &mut out));
    writer.finish(&BTreeMap::from([("a".to_owned(), "b".to_owned())]), &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn bytes_are_the_same_for_any_number_of_threads(
        sizes in prop::collection::vec(1usize..40_000, 1..5),
        seed: u64,
        group_rows in 1usize..100_000,
    ) {
        let mut strings = Strings::new();
        let pieces: Vec<_> = sizes.iter().map(|rows| piece(*rows, seed ^ *rows as u64, &mut strings)).collect();
        let alone = written(&pieces, &strings, group_rows, 1);
        for threads in 2..6 {
            prop_assert!(written(&pieces, &strings, group_rows, threads) == alone, "{threads} threads");
        }
    }
}
