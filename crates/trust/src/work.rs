//! The work of a process that will be killed. Each session owns its rows. The changes of its n-th
//! transaction follow from the kind of work, the session and n alone, so a test can compute the
//! state after n commits without having observed them. It then finds lost commits, partial commits,
//! and changes that were never made.

use evenkeel::ValueRef::{Bytes, Int, Null};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Error, Geometry, IndexSpec, Isolation, Options,
    Result, TableRef, TableSpec, Txn,
};
use evenkeel_io::rng::mix;
use std::collections::BTreeMap;

/// Number of sessions that write.
pub const SESSIONS: i64 = 3;
/// Bytes of a row in addition to its numbers.
const PAD: usize = 120;

/// Parameters of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Number of rows that a session may own, its marker included.
    rows: u64,
    /// One transaction in this many rolls back to a savepoint before it commits.
    pub back_one_in: i64,
    /// After one transaction in this many, another one is rolled back.
    pub abort_one_in: i64,
    /// Bytes of the arena of an index build: at most a tenth of the size of its entries.
    pub build_bytes: u64,
}

/// Many rows.
pub const WIDE: Kind =
    Kind { name: "wide", rows: 400, back_one_in: 7, abort_one_in: 5, build_bytes: 8 << 10 };
/// Few rows, changed many times, with as many rollbacks as commits. Entries of an index under
/// construction are changed and deleted at once.
pub const NARROW: Kind =
    Kind { name: "narrow", rows: 12, back_one_in: 2, abort_one_in: 2, build_bytes: 256 };

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        [WIDE, NARROW].into_iter().find(|kind| kind.name == name)
    }
}

/// A change of one row of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The row exists with this value.
    Put(i64, i64),
    /// The row does not exist.
    Delete(i64),
}

/// The rows of a session: id to (number of the transaction that wrote it, value).
pub type Rows = BTreeMap<i64, (i64, i64)>;

/// The changes of the n-th transaction of a session (from 1); the last one is always that of its
/// marker.
pub fn changes(kind: Kind, session: i64, n: i64) -> Vec<Change> {
    let base = mix(mix(session as u64 + 1) ^ n as u64);
    let count = 1 + base % 9;
    let mut all: Vec<Change> = (0..count)
        .map(|i| {
            let r = mix(base ^ (i + 1));
            let id = (1 + r % (kind.rows - 1)) as i64 * SESSIONS + session;
            if (r >> 32).is_multiple_of(4) {
                Change::Delete(id)
            } else {
                Change::Put(id, ((r >> 20) % 1000) as i64)
            }
        })
        .collect();
    all.push(Change::Put(session, n));
    all
}

/// Applies the n-th transaction of a session to its expected rows.
pub fn foretell(kind: Kind, rows: &mut Rows, session: i64, n: i64) {
    for change in changes(kind, session, n) {
        match change {
            Change::Put(id, value) => rows.insert(id, (n, value)),
            Change::Delete(id) => rows.remove(&id),
        };
    }
}

/// Makes the changes of that transaction in a table.
///
/// # Errors
/// Those of the statements.
pub fn write(kind: Kind, table: &mut TableRef<'_>, session: i64, n: i64) -> Result<()> {
    for change in changes(kind, session, n) {
        match change {
            Change::Put(id, value) => {
                let pad = vec![(mix(value as u64) & 0xff) as u8; (value as usize * 7) % PAD];
                table.put(&[Int(id), Int(session), Int(n), Int(value), Bytes(&pad)])?;
            }
            Change::Delete(id) => {
                table.delete(&[Int(id)])?;
            }
        }
    }
    Ok(())
}

/// The last statement of a session's transaction: replaces the session's row in the second table.
/// Returns the number that the engine gave the new row, which must exceed all earlier numbers.
///
/// # Errors
/// Those of the statements.
pub fn renumber(txn: &mut Txn, session: i64) -> Result<u64> {
    let table = txn.table(NUMBERS)?;
    table.delete(&[Int(session)])?;
    table.insert(&[Int(session), Null])?.ok_or_else(|| Error::internal("no number"))
}

/// The table whose rows the engine numbers.
pub const NUMBERS: &str = "numbers";

fn numbers() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("session", ColumnType::Int64))
        .column(ColumnSpec::new("number", ColumnType::Int64).auto_increment())
        .primary_key(&["session"])
}

/// The table that is created and dropped, with some MiB of rows.
pub const GONE: &str = "gone";
/// Its number of rows when it is filled.
pub const GONE_ROWS: i64 = 2_000;

/// Creates and fills it.
///
/// # Errors
/// Those of the statements.
pub fn make_gone(db: &Database) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 1000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_pad", &["pad"]));
    db.create_table(GONE, &spec)?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    let table = txn.table(GONE)?;
    for id in 0..GONE_ROWS {
        table.insert(&[Int(id), Bytes(&[id as u8; 900])])?;
    }
    txn.commit()?;
    Ok(())
}

/// The table with its first indexes.
pub fn table() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("session", ColumnType::Int32))
        .column(ColumnSpec::new("n", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 1000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value", "n"]))
        .index(IndexSpec::new("by_n", &["session", "n desc", "id"]).unique())
}

/// Indexes that are added and dropped while sessions write.
pub fn extra_indexes() -> Vec<IndexSpec> {
    vec![IndexSpec::new("x_pad", &["pad"]), IndexSpec::new("x_value", &["value desc"])]
}

/// Small sizes, so that flushes, compactions, checkpoints and log rotation are frequent, and an
/// index build writes several runs.
pub fn options(kind: Kind) -> Options {
    Options::default().geometry(Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(1 << 20),
        log_bytes: Some(4 << 20),
        undo_bytes: Some(256 << 10),
        build_bytes: Some(kind.build_bytes),
        ..Geometry::default()
    })
}

/// Space, in KiB, that pages and runs may take in a database without rows: one extent with the map
/// and the catalog, four reserved extents, and the eighth by which the page file grows.
pub fn empty_kib(pages_before: u64) -> u64 {
    (5 << 10) + 64 + (pages_before / 8).clamp(1 << 10, 64 << 10)
}

/// Allocated bytes of a directory's files, KiB.
pub fn allocated_kib(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|e| match e.metadata() {
        Ok(m) if m.is_dir() => allocated_kib(&e.path()),
        Ok(m) => m.blocks() / 2,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Opens the database of a directory with these sizes, and creates the tables that are missing.
///
/// # Errors
/// Those of opening.
pub fn open(dir: &std::path::Path, kind: Kind) -> Result<Database> {
    let db = Database::open_with(dir, options(kind))?;
    for (name, spec) in [(NUMBERS, numbers()), ("t", table())] {
        if db.definition(name).is_err() {
            db.create_table(name, &spec)?;
        }
    }
    Ok(db)
}
