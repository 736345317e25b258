//! Prints the cost of row operations: run with `--ignored --nocapture` in a release build.

use super::*;
use evenkeel_io::Rng;

/// CPU time of this thread: other work on the machine does not count.
struct Cpu(u64);

impl Cpu {
    fn ns() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }
    fn now() -> Cpu {
        Cpu(Cpu::ns())
    }
    fn secs(&self) -> f64 {
        (Cpu::ns() - self.0) as f64 / 1e9
    }
}

const ROWS: i64 = 400_000;
const BATCH: i64 = 50;

fn sales() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("transactionid", ColumnType::Int64).auto_increment())
        .column(ColumnSpec::new("dateandtime", ColumnType::DateTime))
        .column(ColumnSpec::new("cashregisterid", ColumnType::Int32))
        .column(ColumnSpec::new("customerid", ColumnType::Int32))
        .column(ColumnSpec::new("productid", ColumnType::Int32))
        .column(ColumnSpec::new("price", ColumnType::Int32))
        .column(ColumnSpec::new("data", ColumnType::Text { max: 4000 }))
        .primary_key(&["transactionid"])
}

fn sales_indexes() -> [IndexSpec; 3] {
    [
        IndexSpec::new("marketsegment", &["productid", "customerid", "price"]),
        IndexSpec::new("registersegment", &["cashregisterid", "customerid", "price"]),
        IndexSpec::new("pdc", &["price", "dateandtime", "customerid"]),
    ]
}

fn load(db: &Db, table: &Arc<Table>, rows: i64, rng: &mut Rng) -> f64 {
    let start = Cpu::now();
    for batch in 0..rows / BATCH {
        let values: Vec<[ValueRef<'_>; 7]> = (0..BATCH)
            .map(|_| {
                let mut number = |below: u64| ValueRef::Int(rng.below(below) as i64);
                let (register, customer) = (number(1_000), number(100_000));
                let (product, price) = (number(10_000), number(500));
                let time = ValueRef::DateTime(1_700_000_000_000_000 + batch * 1_000_000);
                let data = ValueRef::Text("0123456789abcde");
                [ValueRef::Null, time, register, customer, product, price, data]
            })
            .collect();
        let mut txn = db.begin();
        txn.insert_many(table, values.iter().map(|v| &v[..])).unwrap();
        txn.commit(Durability::Lazy).unwrap();
    }
    start.secs() * 1e6 / rows as f64
}

#[test]
#[ignore = "measures"]
fn figures() {
    let sizes = Sizes {
        frames: 60_000,
        log_bytes: 1 << 30,
        generation_bytes: 64 << 20,
        build_arena_bytes: 64 << 20,
        ..SMALL
    };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let mut rng = Rng::new(1);
    let table = db.store.create_table("sales", &sales()).unwrap();
    println!("insert without indexes: {:.2} us of CPU per row", load(&db, &table, ROWS, &mut rng));
    let start = Cpu::now();
    db.store.add_indexes("sales", &sales_indexes(), &BuildProgress::default()).unwrap();
    let rate = ROWS as f64 / start.secs();
    println!("3 indexes built: {rate:.0} rows per second of CPU");
    println!("insert with 3 indexes: {:.2} us of CPU per row", load(&db, &table, ROWS, &mut rng));
    let mut row = Row::new();
    let reads = 1_000_000u32;
    let mut txn = db.begin();
    let start = Cpu::now();
    for _ in 0..reads {
        let id = [ValueRef::Int(1 + rng.below(ROWS as u64) as i64)];
        assert!(txn.get(&table, &id, &mut row).unwrap());
        assert!(!row.value(5).unwrap().is_null());
    }
    println!("get: {:.3} us", start.secs() * 1e6 / f64::from(reads));
    let start = Cpu::now();
    for _ in 0..reads {
        let id = [ValueRef::Int(1 + rng.below(ROWS as u64) as i64)];
        let mut txn = db.begin();
        assert!(txn.get(&table, &id, &mut row).unwrap());
        txn.commit(Durability::Sync).unwrap();
    }
    println!("begin, get, commit: {:.3} us", start.secs() * 1e6 / f64::from(reads));
    let queries = 100_000u32;
    let start = Cpu::now();
    for _ in 0..queries {
        let product = [ValueRef::Int(rng.below(10_000) as i64)];
        let mut txn = db.begin();
        let range = Range::from(&product);
        let mut scan = txn.index_scan(&table, 0, range, Direction::Forward, true).unwrap();
        for _ in 0..10 {
            scan.next(&mut row).unwrap();
        }
    }
    println!("query of 10: {:.2} us", start.secs() * 1e6 / f64::from(queries));
}
