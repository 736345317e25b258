//! The background refreshes statistics, in virtual time: soon after a tenth of the rows has
//! changed, at most every ten seconds, and without a wake-up while no row changes.

use evenkeel::ValueRef::Int;
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Metric, Options, TableSpec,
};
use evenkeel_io::sim::SimEnv;
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::time::Duration;

/// Passes virtual time.
fn pass(rt: &Runtime, time: Duration) {
    let event = Arc::new(Event::new());
    rt.wait(&event, event.now(), Some(time), evenkeel_base::Cause::Idle);
}

fn put(db: &Database, rows: std::ops::Range<i64>) {
    for from in rows.step_by(100) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("table");
        for id in from..from + 100 {
            table.insert(&[Int(id), Int(id % 7)]).expect("inserts");
        }
        txn.commit().expect("commits");
    }
}

#[test]
fn statistics_are_refreshed_in_the_background_at_intervals() {
    let sim = SimEnv::new(11);
    let env = sim.env();
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let rt = Runtime::new(env.clone());
        let db = Database::open_with("simulated", Options::new().env(env)).expect("opens");
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("value", ColumnType::Int64))
            .primary_key(&["id"])
            .index(IndexSpec::new("by_value", &["value"]));
        db.create_table("t", &spec).expect("creates");
        let renewed = || db.stats().get(Metric::StatisticsRefreshed);
        let of = || db.table_stats().expect("figures").remove(0);
        put(&db, 0..1_000);
        pass(&rt, Duration::from_secs(30));
        assert_eq!((renewed(), of().changed_rows, of().analyzed_ms_ago), (0, 1_000, None));
        put(&db, 1_000..5_000);
        pass(&rt, Duration::from_secs(1));
        let known = db.key_statistics("t", "by_value").expect("index").expect("was looked at");
        assert!((1_500..8_000).contains(&known.rows), "{known:?}");
        assert!((5..=9).contains(&known.distinct[0]), "{known:?}");
        assert!(of().analyzed_ms_ago.is_some_and(|ms| ms <= 2_000), "{:?}", of());
        // Changes after its start may be worth another refresh ten seconds later.
        pass(&rt, Duration::from_secs(20));
        let first = renewed();
        assert!((1..=2).contains(&first), "{first}");
        put(&db, 5_000..10_000);
        pass(&rt, Duration::from_secs(1));
        put(&db, 10_000..20_000);
        pass(&rt, Duration::from_secs(1));
        let second = renewed();
        assert!(second <= first + 1, "{second}");
        pass(&rt, Duration::from_secs(15));
        let third = renewed();
        assert!(third > second, "the rest is looked at when it is time");
        let known = db.key_statistics("t", "").expect("table").expect("was looked at");
        assert!((15_000..28_000).contains(&known.rows), "{known:?}");
        pass(&rt, Duration::from_secs(1_000));
        assert_eq!(renewed(), third, "nothing has changed since");
        let left = of();
        assert!(left.changed_rows < 2_000, "{left:?}");
        assert!(left.analyzed_ms_ago.is_some_and(|ms| ms > 900_000), "{left:?}");
        db.close().expect("closes");
        let _ = done.send(());
    })]);
    over.try_recv().expect("the body ran to its end");
}
