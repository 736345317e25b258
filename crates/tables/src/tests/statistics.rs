//! Statistics of keys against the true values, for even and for uneven groups, in memory and on
//! disk; where they are stored, and when they are dropped.

use super::*;
use evenkeel_format::catalog::entry_kind;
use evenkeel_io::Rng;
use std::collections::BTreeSet;

/// (x, y) is the primary key; indexes on (a, b), and unique on (c).
fn grouped() -> TableSpec {
    let column = |name: &str| ColumnSpec::new(name, ColumnType::Int32);
    TableSpec::new()
        .column(column("x"))
        .column(column("y"))
        .column(column("a"))
        .column(column("b").nullable())
        .column(column("c"))
        .primary_key(&["x", "y"])
        .index(IndexSpec::new("by_a", &["a desc", "b"]))
        .index(IndexSpec::new("by_c", &["c"]).unique())
}

type Values = [i64; 5];

/// `n` rows: groups of x, y; of a; of b within a. Every second group of a has `skew` times as many
/// rows as the others.
fn made(n: i64, (of_x, of_a, of_b): (i64, i64, i64), skew: i64) -> Vec<Values> {
    let mut rows = Vec::new();
    let (mut a, mut left) = (0, of_a);
    for id in 0..n {
        if left == 0 {
            a += 1;
            left = if a % 2 == 1 { of_a * skew } else { of_a };
        }
        left -= 1;
        rows.push([id / of_x, id % of_x, a, left / of_b, id]);
    }
    rows
}

fn fill(db: &Db, table: &Arc<Table>, rows: &[Values]) {
    for rows in rows.chunks(1000) {
        let mut txn = db.begin();
        for row in rows {
            let values = row.map(ValueRef::Int);
            txn.insert(table, &values).unwrap();
        }
        commit(txn);
    }
}

/// Rows per different value of these columns.
fn truth(rows: &[Values], columns: &[usize]) -> f64 {
    let of = |row: &Values| columns.iter().map(|c| row[*c]).collect::<Vec<_>>();
    let distinct: BTreeSet<Vec<i64>> = rows.iter().map(of).collect();
    rows.len() as f64 / distinct.len().max(1) as f64
}

/// Each number is within a factor of two of the truth.
fn compare(table: &Table, rows: &[Values], what: &str) {
    let keys: [(Option<usize>, &[usize]); 3] =
        [(None, &[0, 1]), (Some(0), &[2, 3]), (Some(1), &[4])];
    for (index, columns) in keys {
        let known = table.statistics(index).unwrap();
        assert_eq!(known.distinct.len(), columns.len());
        for parts in 1..=columns.len() {
            let (said, is) = (known.rows_per_key(parts), truth(rows, &columns[..parts]));
            let near = said.is_some_and(|said| said as f64 <= 2.0 * is && said as f64 * 2.0 >= is);
            assert!(near, "{what}: index {index:?}, {parts} parts: {said:?} rows, {is}");
        }
        let all = rows.len() as u64;
        assert!((all / 2..=2 * all).contains(&known.rows), "{what}: {} rows", known.rows);
    }
}

#[test]
fn rows_per_key_are_near_the_truth() {
    // All in memory, and mostly in runs.
    for generation_bytes in [SMALL.generation_bytes, 16 << 20] {
        for (groups, skew) in [
            ((40, 10, 2), 1),
            ((40, 10, 2), 10),
            ((1, 500, 7), 1),
            ((700, 500, 1), 10),
            ((12_000, 3_000, 3_000), 1),
            ((3, 1, 1), 1),
        ] {
            for in_order in [true, false] {
                let db = Db::create(Arc::new(MemEnv::new()), Sizes { generation_bytes, ..SMALL });
                let table = db.store.create_table("t", &grouped()).unwrap();
                let rows = made(12_000, groups, skew);
                let mut given = rows.clone();
                let mut rng = Rng::new(7);
                for i in (1..given.len()).filter(|_| !in_order) {
                    given.swap(i, rng.below(i as u64 + 1) as usize);
                }
                fill(&db, &table, &given);
                db.store.analyze_table("t").unwrap();
                let what = format!("{groups:?} skew {skew}, in order: {in_order}");
                compare(&table, &rows, &format!("{what}, generations of {generation_bytes}"));
            }
        }
    }
}

/// A small table is known exactly: also without rows, with NULLs, and with deleted rows.
#[test]
fn small_tables_are_known_exactly() {
    let db = Db::new();
    let table = db.store.create_table("t", &grouped()).unwrap();
    assert!(table.statistics(None).is_none());
    db.store.analyze_table("t").unwrap();
    let none = table.statistics(Some(0)).unwrap();
    assert_eq!((none.rows, none.rows_per_key(1)), (0, None));
    let rows = made(40, (8, 4, 2), 1);
    fill(&db, &table, &rows);
    let mut txn = db.begin();
    for row in &rows[..20] {
        assert!(txn.delete(&table, &[row[0].into(), row[1].into()]).unwrap());
    }
    for row in &rows[20..] {
        let key = [row[0].into(), row[1].into()];
        assert!(txn.update(&table, &key, &[(3, ValueRef::Null)]).unwrap());
    }
    commit(txn);
    db.store.analyze_table("t").unwrap();
    let known = table.statistics(Some(0)).unwrap();
    let averages: Vec<_> = (1..=2).map(|parts| known.rows_per_key(parts)).collect();
    assert_eq!(averages, [Some(4), Some(4)]);
}

/// Entries of statistics in the catalog.
fn kept(db: &Db) -> usize {
    let rows = all_rows(&mut db.begin(), &db.store.catalog.table, Direction::Forward);
    let kind = Value::UInt(entry_kind::STATISTICS.into());
    rows.iter().filter(|row| row[1] == kind).count()
}

#[test]
fn statistics_are_stored_and_dropped_with_their_keys() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let rows = made(2_000, (40, 10, 2), 1);
    let table = db.store.create_table("t", &grouped()).unwrap();
    fill(&db, &table, &rows);
    db.store.analyze_table("t").unwrap();
    let known = [None, Some(0), Some(1)].map(|index| table.statistics(index).unwrap());
    drop((db, table));

    let db = Db::open(env.clone(), SMALL, root);
    let table = db.store.table("t").unwrap();
    assert_eq!([None, Some(0), Some(1)].map(|index| table.statistics(index).unwrap()), known);
    assert_eq!(kept(&db), 3);
    db.store.drop_index("t", "by_a").unwrap();
    assert_eq!(kept(&db), 2);
    assert_eq!(table.statistics(Some(0)).unwrap(), known[2], "by_c comes first now");
    db.store.truncate_table("t").unwrap();
    assert_eq!((kept(&db), table.statistics(None)), (0, None));
    db.store.analyze_table("t").unwrap();
    assert_eq!(kept(&db), 2);
    db.store.drop_table("t").unwrap();
    assert_eq!(kept(&db), 0);
    assert_eq!(db.store.analyze_table("t").unwrap_err().code(), evenkeel_base::Code::TableMissing);
    drop((db, table));
    assert_eq!(Db::open(env, SMALL, root).store.table_names(), [""; 0]);
}
