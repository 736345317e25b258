//! Ranges against a model: any bounds over any kind of key, ascending or descending, clustered or
//! in an index, by every kind of scan.

use evenkeel::ValueRef::{Bytes, Decimal, Int, Text};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Error, IndexSpec, Isolation, LockWait,
    Locking, Mode, Options, Range, Row, Scan, ScanRange, TableSpec, ValueRef, exactly,
    starting_with,
};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::ops::Bound;

/// A value of the first column: bytes, the letters of a text, or a number of thousandths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Bytes(Vec<u8>),
    Text(String),
    Thousandths(i32),
}

impl Part {
    fn value(&self) -> ValueRef<'_> {
        match self {
            Part::Bytes(bytes) => Bytes(bytes),
            Part::Text(text) => Text(text),
            Part::Thousandths(number) => Decimal(i128::from(*number), 3),
        }
    }
}

/// A row: the first column, a number.
type Key = (Part, i8);

/// What a bound gives: the first column, or both.
type Given = (Part, Option<i16>);

#[derive(Clone, Copy, Debug)]
struct Kind {
    ty: ColumnType,
    desc: bool,
}

impl Kind {
    fn compare(self, row: &Key, bound: &Given) -> Ordering {
        let first = row.0.cmp(&bound.0);
        let first = if self.desc { first.reverse() } else { first };
        let second = || bound.1.map_or(Ordering::Equal, |number| i16::from(row.1).cmp(&number));
        first.then_with(second)
    }

    fn order(self, a: &Key, b: &Key) -> Ordering {
        self.compare(a, &(b.0.clone(), Some(i16::from(b.1))))
    }

    fn is_inside(self, row: &Key, lower: &Bound<Given>, upper: &Bound<Given>) -> bool {
        (match lower {
            Bound::Included(bound) => self.compare(row, bound).is_ge(),
            Bound::Excluded(bound) => self.compare(row, bound).is_gt(),
            Bound::Unbounded => true,
        }) && (match upper {
            Bound::Included(bound) => self.compare(row, bound).is_le(),
            Bound::Excluded(bound) => self.compare(row, bound).is_lt(),
            Bound::Unbounded => true,
        })
    }
}

/// The primary key of `t` and the index `i` of `u` hold the same. Texts of 5,000 bytes are beyond
/// the limit of clustered keys.
fn database(kind: Kind, rows: &[Key]) -> Database {
    let db = Database::open_with("unused", Options::in_memory()).expect("opens");
    let part = if kind.desc { "k desc" } else { "k" };
    let columns = TableSpec::new()
        .column(ColumnSpec::new("k", kind.ty))
        .column(ColumnSpec::new("n", ColumnType::Int8));
    let keyed = columns.clone().primary_key(&[part, "n"]);
    db.create_table("t", &keyed).expect("creates");
    let indexed = columns
        .column(ColumnSpec::new("id", ColumnType::Int64).auto_increment())
        .primary_key(&["id"])
        .index(IndexSpec::new("i", &[part, "n"]))
        .index(IndexSpec::new("j", &["n", part]));
    db.create_table("u", &indexed).expect("creates");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for (part, number) in rows {
        let mut row = vec![part.value(), Int(i64::from(*number))];
        txn.table("t").and_then(|t| t.insert(&row)).expect("inserts");
        row.push(ValueRef::Null);
        txn.table("u").and_then(|u| u.insert(&row)).expect("inserts");
    }
    txn.commit().expect("commits");
    db
}

fn key_of(row: &Row) -> Key {
    let part = match row.value("k").expect("has it") {
        Bytes(bytes) => Part::Bytes(bytes.to_vec()),
        Text(text) => Part::Text(text.to_string()),
        Decimal(number, scale) => {
            Part::Thousandths(number as i32 * 10i32.pow(3 - u32::from(scale)))
        }
        other => panic!("{other:?}"),
    };
    let Int(number) = row.value("n").expect("has it") else { panic!("no number") };
    (part, number as i8)
}

fn all(mut scan: Scan) -> Vec<Key> {
    let (mut row, mut keys) = (Row::new(), Vec::new());
    while scan.next(&mut row).expect("reads") {
        keys.push(key_of(&row));
    }
    keys
}

/// All ways to read a range.
fn read(
    db: &Database,
    range: impl ScanRange + Copy,
    direction: Direction,
) -> Vec<(&'static str, Vec<Key>)> {
    let mut found = Vec::new();
    let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
    for level in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let txn = db.begin(level, Access::ReadWrite).expect("begins");
        let t = txn.table("t").expect("is there");
        found.push(("table", all(t.scan(range, direction).expect("scans"))));
        found.push(("locked", all(t.locked_scan(range, direction, locking).expect("scans"))));
        assert!(t.count_estimate(range).is_ok() && t.lock_range(range).is_ok());
        let i = txn.table("u").and_then(|u| u.index("i")).expect("is there");
        found.push(("index", all(i.scan(range, direction).expect("scans"))));
        found.push(("locked index", all(i.locked_scan(range, direction, locking).expect("scans"))));
        let i = i.keys_only();
        found.push(("keys only", all(i.scan(range, direction).expect("scans"))));
    }
    found
}

fn values((part, number): &Given) -> Vec<ValueRef<'_>> {
    [Some(part.value()), number.map(|number| Int(i64::from(number)))]
        .into_iter()
        .flatten()
        .collect()
}

fn values_of(bound: &Bound<Given>) -> Vec<ValueRef<'_>> {
    match bound {
        Bound::Included(given) | Bound::Excluded(given) => values(given),
        Bound::Unbounded => Vec::new(),
    }
}

fn check(kind: Kind, rows: &[Key], lower: &Bound<Given>, upper: &Bound<Given>) {
    let db = database(kind, rows);
    let (from, to) = (values_of(lower), values_of(upper));
    let range =
        Range { lower: lower.as_ref().map(|_| &from[..]), upper: upper.as_ref().map(|_| &to[..]) };
    let mut expected: Vec<Key> =
        rows.iter().filter(|row| kind.is_inside(row, lower, upper)).cloned().collect();
    expected.sort_by(|a, b| kind.order(a, b));
    for direction in [Direction::Forward, Direction::Backward] {
        for (how, found) in read(&db, range, direction) {
            assert_eq!(found, expected, "{how} {kind:?} {direction:?} {lower:?} {upper:?}");
        }
        expected.reverse();
    }
    // A range of one key, and the row that has it.
    if let Bound::Included(key @ (_, Some(_))) = lower {
        let is_there = rows.iter().any(|row| kind.compare(row, key).is_eq());
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let t = txn.table("t").expect("is there");
        assert_eq!(t.get(&from).expect("reads").is_some(), is_there);
        assert_eq!(t.delete(&from).expect("deletes"), is_there);
    }
}

fn begins(row: &Key, start: &Part) -> bool {
    match (&row.0, start) {
        (Part::Bytes(bytes), Part::Bytes(start)) => bytes.starts_with(start),
        (Part::Text(text), Part::Text(start)) => text.starts_with(&start[..]),
        other => panic!("{other:?}"),
    }
}

/// The rows whose first column begins with `start`, also among those of one number.
fn check_start(kind: Kind, rows: &[Key], start: &Part, number: i8) {
    let db = database(kind, rows);
    let mut expected: Vec<Key> = rows.iter().filter(|row| begins(row, start)).cloned().collect();
    expected.sort_by(|a, b| kind.order(a, b));
    let mut of_number: Vec<Key> = expected.iter().filter(|row| row.1 == number).cloned().collect();
    for direction in [Direction::Forward, Direction::Backward] {
        for (how, found) in read(&db, starting_with(start.value()), direction) {
            assert_eq!(found, expected, "{how} {kind:?} {direction:?} {start:?}");
        }
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        let j = txn.table("u").and_then(|u| u.index("j")).expect("is there");
        let range = starting_with((number, start.value()));
        let found = all(j.scan(range, direction).expect("scans"));
        assert_eq!(found, of_number, "{kind:?} {direction:?} {start:?} {number}");
        expected.reverse();
        of_number.reverse();
    }
}

/// Few different values, so that bounds often meet rows.
fn part(ty: ColumnType, beyond: bool) -> BoxedStrategy<Part> {
    let bytes = |len| {
        let byte = prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)];
        prop::collection::vec(byte, len).prop_map(Part::Bytes).boxed()
    };
    match (ty, beyond) {
        (ColumnType::FixedBytes { len }, false) => bytes(usize::from(len)..usize::from(len) + 1),
        (ColumnType::FixedBytes { len }, true) => bytes(0..usize::from(len) + 2),
        (ColumnType::Bytes { max }, false) => bytes(0..max as usize + 1),
        (ColumnType::Bytes { max }, true) => bytes(0..max as usize + 3),
        (ColumnType::Text { .. }, false) => "[\u{0}a\u{10ffff}]{0,2}".prop_map(Part::Text).boxed(),
        (ColumnType::Text { .. }, true) => "[\u{0}a\u{10ffff}]{0,4}".prop_map(Part::Text).boxed(),
        (_, false) => (-9i32..=9).prop_map(|tenths| Part::Thousandths(tenths * 100)).boxed(),
        (_, true) => (-30i32..=30).prop_map(|n| Part::Thousandths(n * 50)).boxed(),
    }
}

fn bound(ty: ColumnType) -> impl Strategy<Value = Bound<Given>> {
    let number = prop::option::of(prop_oneof![-2i16..3, Just(1000), Just(-1000)]);
    let given = (part(ty, true), number);
    prop_oneof![
        4 => given.clone().prop_map(Bound::Included),
        4 => given.prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    rows: Vec<Key>,
    lower: Bound<Given>,
    upper: Bound<Given>,
}

const TYPES: [ColumnType; 5] = [
    ColumnType::FixedBytes { len: 2 },
    ColumnType::Bytes { max: 2 },
    ColumnType::Text { max: 8 },
    ColumnType::Text { max: 5_000 },
    ColumnType::Decimal { precision: 2, scale: 1 },
];

fn case() -> impl Strategy<Value = Case> {
    (prop::sample::select(&TYPES[..]), any::<bool>()).prop_flat_map(|(ty, desc)| {
        let rows = prop::collection::btree_set((part(ty, false), -2i8..3), 0..30);
        let shuffled = rows.prop_map(Vec::from_iter).prop_shuffle();
        let same = bound(ty).prop_map(|bound| (bound.clone(), bound));
        let bounds = prop_oneof![3 => (bound(ty), bound(ty)), 1 => same];
        (shuffled, bounds).prop_map(move |(rows, (lower, upper))| Case {
            kind: Kind { ty, desc },
            rows,
            lower,
            upper,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_scan_gives_the_rows_of_its_range_in_the_order_of_the_key(case in case()) {
        check(case.kind, &case.rows, &case.lower, &case.upper);
    }

    #[test]
    fn every_scan_gives_the_rows_that_begin_with_a_value(case in case(), number in -2i8..3) {
        let start = match case.lower {
            Bound::Included((part, _)) | Bound::Excluded((part, _)) => part,
            Bound::Unbounded => return Ok(()),
        };
        prop_assume!(!matches!(start, Part::Thousandths(_)));
        check_start(case.kind, &case.rows, &start, number);
    }
}

#[test]
fn a_start_of_the_last_bytes_reaches_the_end_of_a_table() {
    for desc in [false, true] {
        let kind = Kind { ty: ColumnType::Bytes { max: 2 }, desc };
        let rows = [vec![0xfe], vec![0xff], vec![0xff, 0xff]].map(|b| (Part::Bytes(b), 0));
        check_start(kind, &rows, &Part::Bytes(vec![0xff]), 0);
        check_start(kind, &rows, &Part::Bytes(vec![]), 0);
    }
}

#[test]
fn ranges_are_written_as_those_of_rust() {
    let kind = Kind { ty: ColumnType::Text { max: 8 }, desc: false };
    let row = |text: &str| (Part::Text(text.to_string()), 0);
    let rows = ["a", "ab", "b", "c"].map(row);
    let db = database(kind, &rows);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let t = txn.table("t").expect("is there");
    let scan = |range: Result<Scan, Error>| all(range.expect("scans"));
    assert_eq!(scan(t.scan(.., Direction::Forward)), rows);
    assert_eq!(scan(t.scan("ab".., Direction::Forward)), rows[1..]);
    assert_eq!(scan(t.scan(..("b", 0), Direction::Forward)), rows[..2]);
    assert_eq!(scan(t.scan("a"..="b", Direction::Forward)), rows[..3]);
    assert_eq!(scan(t.scan("a".."b", Direction::Forward)), rows[..2]);
    assert_eq!(scan(t.scan(..="b", Direction::Forward)), rows[..3]);
    assert_eq!(scan(t.scan(exactly("ab"), Direction::Forward)), rows[1..2]);
    assert_eq!(scan(t.scan(exactly(("ab", 1)), Direction::Forward)), []);
    let between = (Bound::Excluded("a"), Bound::Excluded("c"));
    assert_eq!(scan(t.scan(between, Direction::Forward)), rows[1..3]);
    let backward: Vec<Key> = t
        .scan("b".., Direction::Backward)
        .expect("scans")
        .map(|r| key_of(&r.expect("reads")))
        .collect();
    assert_eq!(backward, [row("c"), row("b")]);
}

#[test]
fn rows_come_in_the_order_of_a_primary_key_beyond_the_clustering_limit() {
    let kind = Kind { ty: ColumnType::Text { max: 5_000 }, desc: false };
    let row = |letter: char| (Part::Text(letter.to_string()), 0);
    let db = database(kind, &['c', 'a', 'd', 'b'].map(row));
    assert!(db.table_info("t").expect("is there").hidden_key);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let t = txn.table("t").expect("is there");
    let scan = t.scan(Range::ALL, Direction::Forward).expect("scans");
    assert_eq!(all(scan), ['a', 'b', 'c', 'd'].map(row));
    assert_eq!(t.first().expect("reads").map(|found| key_of(&found)), Some(row('a')));
    assert_eq!(t.last().expect("reads").map(|found| key_of(&found)), Some(row('d')));
    let scan = t.scan(Range::prefix(&[Text("b")]), Direction::Forward).expect("scans");
    assert_eq!(all(scan), [row('b')]);
    // As they were inserted.
    let scan = t.by_clustered_key().scan(Range::ALL, Direction::Forward).expect("scans");
    assert_eq!(all(scan), ['c', 'a', 'd', 'b'].map(row));
}

#[test]
fn a_locking_scan_of_a_key_between_two_rows_finds_neither() {
    for desc in [false, true] {
        let kind = Kind { ty: ColumnType::Decimal { precision: 2, scale: 1 }, desc };
        let rows = [(Part::Thousandths(2_500), 0), (Part::Thousandths(2_600), 0)];
        let between = (Part::Thousandths(2_550), Some(0));
        check(kind, &rows, &Bound::Included(between.clone()), &Bound::Included(between));
    }
}
