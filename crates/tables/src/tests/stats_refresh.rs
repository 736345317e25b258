//! Background refresh of statistics: when it is due, in counts of changes; its cost, in counts of
//! pages; and operations during it.

use super::*;
use crate::stats_refresh::CHANGES_MIN;
use evenkeel_io::TickingEnv;

/// Longer than any test.
const MINUTES: Duration = Duration::from_secs(6_000);

/// Inserts rows `from..to`, in groups of ten by `a`.
fn put(db: &Db, table: &Arc<Table>, rows: std::ops::Range<i64>) {
    for from in rows.clone().step_by(500) {
        let until = rows.end.min(from + 500);
        let values: Vec<_> = (from..until).map(|id| row_values(id, id / 10, None, None)).collect();
        let mut txn = db.begin();
        txn.insert_many(table, values.iter().map(|v| &v[..])).unwrap();
        commit(txn);
    }
}

/// Runs the background until it is idle; returns how often it had work.
fn beats(db: &Db) -> usize {
    (0..).take_while(|_| db.store.statistics_beat().unwrap() == Beat::More).count()
}

fn renewed(db: &Db) -> u64 {
    db.store.rt.metrics.get(evenkeel_base::metrics::Metric::StatisticsRefreshed)
}

#[test]
fn a_refresh_is_due_after_a_tenth_of_the_rows_changed() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let known = || table.statistics(Some(0)).map(|known| (known.rows, known.rows_per_key(1)));
    put(&db, &table, 0..CHANGES_MIN as i64 - 1);
    assert_eq!((beats(&db), known()), (0, None), "too few to look at");
    assert_eq!(db.store.next_statistics_in(), None);
    put(&db, &table, 1_999..30_000);
    assert_eq!(db.store.next_statistics_in(), Some(Duration::ZERO));
    assert!(beats(&db) > 10, "bounded steps");
    let (rows, per_key) = known().unwrap();
    assert!((20_000..45_000).contains(&rows), "{rows}");
    assert!(matches!(per_key, Some(5..=20)), "{per_key:?}");
    assert_eq!((renewed(&db), table.changes()), (1, 0));
    assert!(db.store.analyzed_ns_ago(&table).is_some());

    // Updates and deletes count like inserts; rolled-back rows have changed too.
    let due = rows / 10;
    let mut txn = db.begin();
    for id in 0..due as i64 - 1 {
        match id % 2 {
            0 => assert!(txn.update(&table, &[id.into()], &[(1, 7.into())]).unwrap()),
            _ => assert!(txn.delete(&table, &[id.into()]).unwrap()),
        }
    }
    txn.rollback().unwrap();
    assert_eq!((beats(&db), table.changes()), (0, due - 1));
    let mut txn = db.begin();
    assert!(txn.delete(&table, &[29_000i64.into()]).unwrap());
    commit(txn);
    assert!(beats(&db) > 10);
    assert_eq!((renewed(&db), table.changes()), (2, 0));
    // A refresh on request counts as well.
    put(&db, &table, 40_000..40_100);
    assert_eq!(table.changes(), 100);
    db.store.analyze_table("t").unwrap();
    assert_eq!((renewed(&db), table.changes(), beats(&db)), (2, 0, 0));
}

/// A refresh reads a bounded number of pages, whatever the size of the table; counting rows reads
/// none.
#[test]
fn a_statistics_refresh_costs_the_same_for_any_table_size() {
    let visited = [3_000, 60_000].map(|rows| {
        let db = Db::new();
        let table = db.store.create_table("t", &spec()).unwrap();
        put(&db, &table, 0..rows);
        let before = evenkeel_pages::visits();
        assert!(beats(&db) > 10);
        evenkeel_pages::visits() - before
    });
    println!("pages visited: {visited:?}");
    assert!(visited[1] <= visited[0] * 2, "{visited:?}");
}

/// Reads of runs for statistics are counted separately from those of users, all of them and no
/// others.
#[test]
fn run_blocks_read_by_a_statistics_refresh_are_counted_separately() {
    use evenkeel_base::metrics::Metric;
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    put(&db, &table, 0..40_000);
    let read = || {
        let of = |metric| db.store.rt.metrics.get(metric);
        (of(Metric::RunBlockReadBytes), of(Metric::StatisticsBlockReadBytes))
    };
    assert_eq!(read(), (0, 0), "inserts read nothing of runs");
    assert!(beats(&db) > 10);
    let (all, renewals) = read();
    assert!(renewals > 0 && renewals == all, "{renewals} of {all}");
    check_indexes(&mut db.begin(), &table);
    let (all, still) = read();
    assert!(still == renewals && all > still, "{still} of {all}");
}

#[test]
fn a_schema_change_restarts_or_ends_a_statistics_refresh() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    put(&db, &table, 0..3_000);
    assert_eq!(db.store.statistics_beat().unwrap(), Beat::More);
    db.store.drop_index("t", "by_b").unwrap();
    assert!(beats(&db) > 10);
    assert_eq!((table.statistics(Some(1)).map(|known| known.distinct.len())), Some(1), "by_c");
    assert_eq!(renewed(&db), 1);

    // The catalog is locked: as many changes again until the next attempt.
    put(&db, &table, 3_000..6_000);
    let held = table.ddl.lock(&db.store.rt, Cause::Schema);
    assert!(beats(&db) > 10);
    drop(held);
    assert_eq!((renewed(&db), beats(&db), table.changes()), (1, 0, 3_000));
    put(&db, &table, 6_000..8_000);
    assert!(beats(&db) > 10);
    assert_eq!((renewed(&db), table.changes()), (2, 0));

    // An emptied table starts counting anew; a dropped one is forgotten.
    put(&db, &table, 8_000..9_000);
    db.store.truncate_table("t").unwrap();
    assert_eq!((beats(&db), table.changes()), (0, 0));
    put(&db, &table, 0..3_000);
    assert_eq!(db.store.statistics_beat().unwrap(), Beat::More);
    db.store.drop_table("t").unwrap();
    assert_eq!((beats(&db), renewed(&db)), (1, 2));
    assert_eq!(db.store.next_statistics_in(), None);
}

/// A table that changes all the time is refreshed at intervals.
#[test]
fn statistics_refreshes_keep_their_interval() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { refresh_every: MINUTES, ..SMALL });
    let table = db.store.create_table("t", &spec()).unwrap();
    put(&db, &table, 0..2_500);
    assert!(beats(&db) > 10);
    put(&db, &table, 2_500..5_000);
    assert_eq!((beats(&db), table.changes()), (0, 2_500));
    let rest = db.store.next_statistics_in().unwrap();
    assert!(rest > MINUTES / 2 && rest <= MINUTES, "{rest:?}");
    // After writes have stopped, no thread waits for the interval.
    db.store.rt.health.fail(evenkeel_base::Error::internal("stop"));
    assert_eq!((db.store.next_statistics_in(), beats(&db)), (None, 0));
}

/// The cost of a refresh of a table is spread over the time until the next one. The first refresh
/// is not delayed, nor one that others wait for.
#[test]
fn draws_of_a_statistics_refresh_are_spread_over_time() {
    let clock = TickingEnv::new(Arc::new(MemEnv::new()), 1_000_000);
    let db = Db::create(Arc::new(clock), Sizes { refresh_every: Duration::from_secs(60), ..SMALL });
    let table = db.store.create_table("t", &spec()).unwrap();
    put(&db, &table, 0..2_500);
    assert!(beats(&db) > 10, "one after the other");
    put(&db, &table, 2_500..5_000);
    let wait = || while db.store.next_statistics_in() > Some(Duration::ZERO) {};
    wait();
    let mut rests = 0;
    while db.store.next_statistics_in().is_some() {
        wait();
        assert_eq!(db.store.statistics_beat().unwrap(), Beat::More);
        rests += usize::from(db.store.statistics_beat().unwrap() == Beat::Idle);
    }
    assert!(rests >= 30, "{rests}");
    assert_eq!(renewed(&db), 2);

    put(&db, &table, 5_000..8_000);
    let other = db.store.create_table("u", &spec()).unwrap();
    wait();
    assert_eq!(db.store.statistics_beat().unwrap(), Beat::More);
    put(&db, &other, 0..2_500);
    wait();
    assert!(beats(&db) > 60, "both at once");
    assert_eq!(renewed(&db), 4);
}
