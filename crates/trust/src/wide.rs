//! A table with features that the small table of a store lacks: long values in chains of pages,
//! NULLs, unique, descending and prefix keys, an index built later, added and dropped columns.

use evenkeel::ValueRef::{Bytes, Int, Null, Text};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Error, IndexSpec, Isolation, PartSpec,
    Range, Result, Row, TableSpec, Txn,
};

const NAME: &str = "wide";
const ROWS: i64 = 30;
const DELETED: i64 = 5;
const LATER: i64 = 7;

fn name(id: i64) -> String {
    format!("name {id}")
}

/// NULL, a short value, or one of several pages.
fn note(id: i64) -> Option<Vec<u8>> {
    match id % 5 {
        0 => None,
        2 => Some(vec![id as u8; 6000 + 1000 * id as usize]),
        _ => Some(vec![id as u8; 40]),
    }
}

fn spec() -> TableSpec {
    let column = ColumnSpec::new;
    TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("name", ColumnType::Text { max: 50 }))
        .column(column("gone", ColumnType::Int32))
        .column(column("note", ColumnType::Bytes { max: 100_000 }).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_name", &["name"]).unique())
        .index(IndexSpec::new("dropped", &["gone"]))
}

/// Creates the table and fills it, by all the ways whose results a test must find.
pub fn make(db: &Database) {
    db.create_table(NAME, &spec()).expect("creates");
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let txn = begin();
    for id in 0..ROWS {
        let (name, note) = (name(id), note(id + 1));
        let note = note.as_deref().map_or(Null, Bytes);
        txn.table(NAME)
            .expect("there")
            .insert(&[Int(id), Text(&name), Int(id), note])
            .expect("fits");
    }
    txn.commit().expect("commits");
    let txn = begin();
    for id in 0..ROWS {
        let note = note(id);
        let note = note.as_deref().map_or(Null, Bytes);
        txn.table(NAME).expect("there").update(&[Int(id)], &[(3, note)]).expect("updates");
    }
    txn.table(NAME).expect("there").delete(&[Int(DELETED)]).expect("deletes");
    txn.commit().expect("commits");
    db.drop_index(NAME, "dropped").expect("drops");
    db.drop_column(NAME, "gone").expect("drops");
    let later = ColumnSpec::new("later", ColumnType::Int64).default_value(LATER);
    db.add_column(NAME, &later).expect("adds");
    let prefix = PartSpec { prefix: 3, ..PartSpec::from("note") };
    let parts = vec![prefix, PartSpec::from("id desc")];
    let built = IndexSpec { parts, ..IndexSpec::new("by_note", &[]) };
    db.add_indexes(NAME, &[built]).expect("builds");
}

/// Reads the whole table, if it exists.
///
/// # Errors
/// The first error; `Internal` if the content differs from that made.
pub fn read(db: &Database, txn: &mut Txn) -> Result<()> {
    if !db.tables().iter().any(|table| table == NAME) {
        return Ok(());
    }
    let wrong = |what: String| Err(Error::internal(format!("table {NAME}: {what}")));
    let mut row = Row::new();
    let (mut ids, mut next) = ((0..ROWS).filter(|id| *id != DELETED), 0);
    let mut scan = txn.table(NAME)?.scan(Range::ALL, Direction::Forward)?;
    while scan.next(&mut row)? {
        let Some(id) = ids.next() else { return wrong("too many rows".into()) };
        let (name, note) = (name(id), note(id));
        let wanted = [Int(id), Text(&name), note.as_deref().map_or(Null, Bytes), Int(LATER)];
        for (at, wanted) in wanted.into_iter().enumerate() {
            if row.value(at)? != wanted {
                return wrong(format!("row {id}, column {at}"));
            }
        }
        next += 1;
    }
    if next != ROWS - 1 {
        return wrong(format!("{next} rows"));
    }
    for index in ["by_name", "by_note"] {
        let index = txn.table(NAME)?.index(index)?;
        let mut scan = index.scan(Range::ALL, Direction::Backward)?;
        let mut entries = 0;
        while scan.next(&mut row)? {
            entries += 1;
        }
        if entries != next {
            return wrong(format!("{entries} entries of an index"));
        }
    }
    Ok(())
}
