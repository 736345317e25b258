//! Tables whose catalog rows name other rows: a child with foreign keys, its parent and a parent
//! that does not exist, and a chunked table.

use evenkeel::ValueRef::{Int, Null};
use evenkeel::{
    Access, Chunking, ColumnSpec, ColumnType, Database, Direction, Error, ForeignKeySpec,
    IndexSpec, Isolation, Range, ReferenceAction, Result, Row, TableSpec, TimeUnit, Txn, Value,
};
use std::time::Duration;

const PARENT: &str = "parent";
const CHILD: &str = "child";
const CHUNKED: &str = "chunked";
const PARENTS: i64 = 6;
/// This parent is deleted, and its children with it.
const DELETED: i64 = 2;
/// Rows of the chunked table, one for each minute, of which a chunk has ten.
const MINUTES: i64 = 40;
const SLOTS: i64 = 2;

fn parent() -> TableSpec {
    TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64)).primary_key(&["id"])
}

fn child() -> TableSpec {
    let cascade = ForeignKeySpec {
        on_delete: ReferenceAction::Cascade,
        ..ForeignKeySpec::new("to_parent", &["parent"], PARENT, &["id"])
    };
    let waits = ForeignKeySpec {
        may_await: true,
        ..ForeignKeySpec::new("to_stranger", &["stranger"], "stranger", &["id"])
    };
    let column = ColumnSpec::new;
    TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("parent", ColumnType::Int64))
        .column(column("stranger", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .index(IndexSpec::new("by_stranger", &["stranger"]))
        .foreign_key(cascade)
        .foreign_key(waits)
}

fn chunked() -> TableSpec {
    let chunking = Chunking::by("at", Duration::from_secs(600)).unit(TimeUnit::Seconds);
    TableSpec::new()
        .column(ColumnSpec::new("device", ColumnType::Int32))
        .column(ColumnSpec::new("at", ColumnType::Int64))
        .primary_key(&["device", "at"])
        .index(IndexSpec::new("by_at", &["at"]))
        .chunked(chunking.between(0, 3600).space("device", SLOTS as u32))
}

/// Minutes -5 to 34 and, as they go, devices 0 to 4; so the early chunk has rows too.
fn minute(n: i64) -> [i64; 2] {
    [n % 5, (n - 5) * 60]
}

fn parent_rows() -> Vec<Vec<Value>> {
    let ids = (0..PARENTS).filter(|id| *id != DELETED);
    ids.map(|id| vec![Value::Int(id)]).collect()
}

fn child_rows() -> Vec<Vec<Value>> {
    let ids = (0..3 * PARENTS).filter(|id| id % PARENTS != DELETED);
    ids.map(|id| vec![Value::Int(id), Value::Int(id % PARENTS), Value::Null]).collect()
}

fn chunked_rows() -> Vec<Vec<Value>> {
    let mut rows: Vec<_> = (0..MINUTES).map(minute).collect();
    rows.sort_unstable();
    rows.into_iter().map(|row| row.map(Value::Int).to_vec()).collect()
}

/// Creates the tables and fills them; a delete of a parent cascades.
pub fn make(db: &Database) {
    db.create_table(PARENT, &parent()).expect("creates");
    db.create_table(CHILD, &child()).expect("creates");
    db.create_table(CHUNKED, &chunked()).expect("creates");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let insert = |table: &str, row: &[evenkeel::ValueRef<'_>]| {
        txn.table(table).expect("there").insert(row).expect("fits");
    };
    (0..PARENTS).for_each(|id| insert(PARENT, &[Int(id)]));
    (0..3 * PARENTS).for_each(|id| insert(CHILD, &[Int(id), Int(id % PARENTS), Null]));
    (0..MINUTES).for_each(|n| insert(CHUNKED, &minute(n).map(Int)));
    txn.table(PARENT).expect("there").delete(&[Int(DELETED)]).expect("deletes");
    txn.commit().expect("commits");
}

/// Reads those of the tables that exist, forwards and by their indexes.
///
/// # Errors
/// The first error; `Internal` if the content differs from that made.
pub fn read(db: &Database, txn: &mut Txn) -> Result<()> {
    let there = db.tables();
    let of = |table: &str| there.iter().any(|name| name == table);
    let tables: [(&str, &[&str], _); 3] = [
        (PARENT, &[], parent_rows()),
        (CHILD, &["by_parent", "by_stranger"], child_rows()),
        (CHUNKED, &["by_at"], chunked_rows()),
    ];
    for (table, indexes, wanted) in tables.into_iter().filter(|(table, ..)| of(table)) {
        let mut found = Vec::new();
        let mut row = Row::new();
        let mut scan = txn.table(table)?.scan(Range::ALL, Direction::Forward)?;
        while scan.next(&mut row)? {
            found.push(row.values()?);
        }
        if found != wanted {
            return Err(Error::internal(format!("table {table}: {} rows, or others", found.len())));
        }
        for index in indexes {
            let mut scan = txn.table(table)?.index(index)?.scan(Range::ALL, Direction::Backward)?;
            let mut entries = 0;
            while scan.next(&mut row)? {
                entries += 1;
            }
            if entries != wanted.len() {
                return Err(Error::internal(format!("{entries} entries of {index}")));
            }
        }
    }
    Ok(())
}

/// Writes that follow foreign keys and choose chunks: each in a transaction of its own, committed
/// or rolled back; then drops tables. Any result but a panic is correct on a damaged directory.
/// Returns how many of the statements were committed, and how many tables dropped.
pub fn write(db: &Database) -> (usize, usize) {
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite);
    let statements: [fn(&Txn) -> Result<()>; 6] = [
        |txn| txn.table(CHILD)?.insert(&[Int(1000), Int(1), Null]).map(|_| ()),
        |txn| txn.table(CHILD)?.insert(&[Int(1001), Int(1), Int(1)]).map(|_| ()),
        |txn| txn.table(PARENT)?.delete(&[Int(3)]).map(|_| ()),
        |txn| txn.table(CHUNKED)?.insert(&[Int(1), Int(3001)]).map(|_| ()),
        |txn| txn.table(CHUNKED)?.insert(&[Int(1), Int(1 << 40)]).map(|_| ()),
        |txn| txn.table(CHUNKED)?.delete(&minute(7).map(Int)).map(|_| ()),
    ];
    let run = |statement: &fn(&Txn) -> Result<()>| -> Result<()> {
        let txn = begin()?;
        match statement(&txn) {
            Ok(()) => txn.commit().map(|_| ()),
            Err(error) => txn.rollback().and(Err(error)),
        }
    };
    let committed = statements.iter().filter(|statement| run(statement).is_ok()).count();
    let dropped = [CHUNKED, CHILD].into_iter().filter(|table| db.drop_table(table).is_ok()).count();
    (committed, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores;

    /// Only the child of a parent that does not exist is refused.
    #[test]
    fn an_undamaged_store_reads_right_and_takes_the_writes() {
        for closed in [true, false] {
            let env = stores::store(0, closed).files;
            let db = Database::open_with("dir", stores::small_options(env)).expect("opens");
            let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
            read(&db, &mut txn).expect("what was made");
            drop(txn);
            assert_eq!(write(&db), (5, 2));
            db.close().expect("closes");
        }
    }
}
