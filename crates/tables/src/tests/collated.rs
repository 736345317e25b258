//! Indexes whose keys are weights of a collation, or prefixes.

use super::*;
use evenkeel_base::{Code, Result};
use evenkeel_format::Collations;
use evenkeel_format::catalog::PartCollation;
use evenkeel_io::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Treats small letters and capitals as equal and ignores trailing spaces.
pub(super) struct Folded;

pub(super) static FOLDED: Folded = Folded;

type Act = Box<dyn FnOnce()>;

thread_local! {
    static AT_WEIGHTS: RefCell<Option<(usize, Act)>> = const { RefCell::new(None) };
}

/// Calls `act` when this thread has computed weights `after` times; the returned closure tells
/// whether that happened.
pub(super) fn at_weights(after: usize, act: impl FnOnce() + 'static) -> impl Fn() -> bool {
    let called = Rc::new(RefCell::new(false));
    let same = called.clone();
    let act = move || {
        act();
        *called.borrow_mut() = true;
    };
    AT_WEIGHTS.set(Some((after, Box::new(act))));
    move || *same.borrow()
}

fn act_now() {
    let due = AT_WEIGHTS.with_borrow_mut(|act| match act {
        Some((0, _)) => act.take(),
        Some((after, _)) => {
            *after -= 1;
            None
        }
        None => None,
    });
    if let Some((_, act)) = due {
        act();
    }
}

impl Collations for Folded {
    fn weights(&self, _collation: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        act_now();
        let chars = if chars == 0 { bytes.len() } else { bytes.len().min(chars as usize) };
        out.extend(bytes[..chars].trim_ascii_end().iter().map(u8::to_ascii_lowercase));
        Ok(())
    }

    fn bytes_max(&self, _collation: u16, chars: u32, bytes: u32) -> usize {
        2 * if chars == 0 { bytes } else { bytes.min(chars) } as usize
    }

    fn checksum(&self, collation: u16) -> Option<u32> {
        (collation < 100).then_some(u32::from(collation))
    }
}

/// (id, name) with unique (name folded), (first two bytes of name folded desc), (three bytes).
fn table_spec() -> TableSpec {
    let folded =
        |prefix: u32, desc: bool| PartSpec { column: "name".into(), desc, prefix, collation: 8 };
    let index = |name: &str, part: PartSpec, unique: bool| IndexSpec {
        name: name.into(),
        parts: vec![part],
        unique,
    };
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 60 }).nullable())
        .primary_key(&["id"])
        .index(index("folded", folded(0, false), true))
        .index(index("short", folded(2, true), false))
        .index(index("bytes", PartSpec { prefix: 3, collation: 0, ..folded(0, false) }, false))
}

type State = BTreeMap<i64, Option<Vec<u8>>>;

fn fold(name: &[u8]) -> Vec<u8> {
    name.trim_ascii_end().to_ascii_lowercase()
}

fn random_name(rng: &mut Rng) -> Option<Vec<u8>> {
    if rng.below(8) == 0 {
        return None;
    }
    Some((0..rng.below(4)).map(|_| b"aAbB "[rng.below(5) as usize]).collect())
}

/// One random change; a name that another row has in any spelling is a duplicate.
fn step(rng: &mut Rng, txn: &mut TableTxn, table: &Arc<Table>, state: &mut State) {
    let (id, name) = (rng.below(12) as i64, random_name(rng));
    let value = name.as_deref().map_or(ValueRef::Null, ValueRef::Bytes);
    let folded = name.as_deref().map(fold);
    let same = |other: &Option<Vec<u8>>| folded.is_some() && other.as_deref().map(fold) == folded;
    let taken = state.iter().any(|(other, n)| *other != id && same(n));
    let there = state.contains_key(&id);
    match rng.below(4) {
        0 => {
            assert_eq!(txn.delete(table, &[id.into()]).unwrap(), there);
            state.remove(&id);
        }
        1 if there => match txn.update(table, &[id.into()], &[(1, value)]) {
            Ok(found) => {
                assert!(found && !taken);
                state.insert(id, name);
            }
            Err(e) => assert!(taken && e.code() == Code::DuplicateKey, "{e}"),
        },
        _ => match txn.insert(table, &[id.into(), value]) {
            Ok(_) => {
                assert!(!taken && !there);
                state.insert(id, name);
            }
            Err(e) => assert!((taken || there) && e.code() == Code::DuplicateKey, "{e}"),
        },
    }
}

/// The index returns the spelling of the row without reading the table, in folded order.
fn check(txn: &mut TableTxn, table: &Arc<Table>, state: &State) {
    check_indexes(txn, table);
    let folded = |name: &Option<Vec<u8>>| name.as_deref().map(fold);
    let mut want: Vec<_> = state.iter().map(|(id, n)| (folded(n), *id, n.clone())).collect();
    want.sort();
    let index = table.layout().index("folded").unwrap();
    let mut scan = txn.index_scan(table, index, Range::ALL, Direction::Forward, true).unwrap();
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        found.push(row.values().unwrap());
    }
    let want: Vec<Vec<Value>> = want
        .into_iter()
        .map(|(_, id, name)| vec![Value::Int(id), name.map_or(Value::Null, Value::Bytes)])
        .collect();
    assert_eq!(found, want);
}

#[test]
fn random_changes_under_a_collation() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let db = Db::new();
        let table = db.store.create_table("t", &table_spec()).unwrap();
        let mut committed = State::new();
        let mut kept: Option<(TableTxn, State)> = None;
        for round in 0..40 {
            let (mut txn, mut state) = (db.begin(), committed.clone());
            for _ in 0..rng.below(12) {
                step(&mut rng, &mut txn, &table, &mut state);
            }
            check(&mut txn, &table, &state);
            if rng.below(3) == 0 {
                txn.rollback().unwrap();
            } else {
                commit(txn);
                committed = state;
            }
            if round == 20 {
                let mut reader = db.begin();
                reader.take_snapshot().unwrap();
                kept = Some((reader, committed.clone()));
            }
        }
        let (mut reader, state) = kept.unwrap();
        check(&mut reader, &table, &state);
        reader.rollback().unwrap();
        db.store.add_indexes("t", &[later()], &BuildProgress::default()).unwrap();
        check_indexes(&mut db.begin(), &table);
        let report = db.store.check_table("t").unwrap();
        assert_eq!((report.problems, report.notes), (vec![], vec![]));
    }
}

fn later() -> IndexSpec {
    let part = PartSpec { column: "name".into(), desc: true, prefix: 0, collation: 9 };
    IndexSpec { name: "later".into(), parts: vec![part], unique: false }
}

#[test]
fn wrong_collation_definitions_are_refused() {
    let db = Db::new();
    let mut unknown = table_spec();
    unknown.indexes[0].parts[0].collation = 100;
    let error = db.store.create_table("t", &unknown).err().unwrap();
    assert_eq!(error.code(), Code::CollationMissing);
    let mut number = table_spec();
    number.indexes[0].parts[0].column = "id".into();
    let error = db.store.create_table("t", &number).err().unwrap();
    assert_eq!(error.code(), Code::DefinitionInvalid);
}

#[test]
fn without_its_collation_a_key_cannot_be_made() {
    let db = Db::new();
    let table = db.store.create_table("t", &table_spec()).unwrap();
    let mut def = (*table.layout().def).clone();
    let bare = Layout::new(Arc::new(def.clone()), 2, PAGE).unwrap();
    assert!(bare.indexes[0].is_opaque() && bare.indexes[1].is_opaque());
    assert!(!bare.indexes[2].is_opaque());
    assert!(bare.needs_rebuild() && !table.layout().needs_rebuild());
    let name = |_: usize| Ok(ValueRef::Bytes(b"x"));
    let error = bare.indexes[0].encode(&name, 0, &mut Vec::new()).unwrap_err();
    assert_eq!(error.code(), Code::CollationMissing);
    // Another version of the collation than the one that made the keys.
    for part in def.indexes.iter_mut().flat_map(|i| &mut i.entry.parts) {
        part.collation = part.collation.map(|c| PartCollation { checksum: c.checksum + 1, ..c });
    }
    let rules = rules::KeyRules::new(PAGE, Some(&FOLDED));
    let changed = Layout::new(Arc::new(def), 2, rules).unwrap();
    assert!(changed.needs_rebuild());
    let error = changed.indexes[0].encode(&name, 0, &mut Vec::new()).unwrap_err();
    assert_eq!(error.code(), Code::CollationChanged);
}

/// The length of an entry includes the bytes that it stores in addition to its key, both when a row
/// is written and when the index is built.
#[test]
fn stored_bytes_count_for_the_length_of_an_entry() {
    let db = Db::new();
    let folded = PartSpec { column: "name".into(), desc: false, prefix: 0, collation: 8 };
    let index =
        |name: &str| IndexSpec { name: name.into(), parts: vec![folded.clone()], unique: false };
    let plain = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 1 << 20 }))
        .primary_key(&["id"]);
    let table = db.store.create_table("t", &plain.clone().index(index("folded"))).unwrap();
    let unindexed = db.store.create_table("u", &plain).unwrap();
    // The key is "a" and a terminator of two bytes, then the clustered key; the entry also stores
    // three bytes: the length and the value.
    let other = 3 + 8 + 3;
    let name = |len: usize| [&b"a"[..], &vec![b' '; len - 1]].concat();
    let at = name(evenkeel_format::limits::INDEX_ENTRY_BYTES_MAX - other);
    let beyond = name(evenkeel_format::limits::INDEX_ENTRY_BYTES_MAX - other + 1);
    let mut txn = db.begin();
    txn.insert(&table, &[1i64.into(), at[..].into()]).unwrap();
    let long = txn.insert(&table, &[2i64.into(), beyond[..].into()]).unwrap_err();
    assert_eq!(long.code(), Code::EntryTooLong);
    let long = txn.update(&table, &[1i64.into()], &[(1, beyond[..].into())]).unwrap_err();
    assert_eq!(long.code(), Code::EntryTooLong);
    txn.insert(&unindexed, &[2i64.into(), beyond[..].into()]).unwrap();
    commit(txn);
    let built = db.store.add_indexes("u", &[index("late")], &BuildProgress::default());
    let built = built.unwrap_err();
    assert_eq!(built.code(), Code::EntryTooLong);
    check_indexes(&mut db.begin(), &table);
}

/// A build of an index over whole numbers stores the columns that the clustered key cannot give
/// back.
#[test]
fn a_build_over_numbers_keeps_the_values_of_the_clustered_key() {
    let db = Db::new();
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 60 }))
        .column(ColumnSpec::new("n", ColumnType::Int32))
        .primary_key(&["name"]);
    spec.primary[0].collation = 8;
    let table = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    for n in 0..100i64 {
        txn.insert(&table, &[format!("Name {n}").as_bytes().into(), (n % 7).into()]).unwrap();
    }
    commit(txn);
    let index = [IndexSpec::new("by_n", &["n desc"])];
    db.store.add_indexes("t", &index, &BuildProgress::default()).unwrap();
    let mut txn = db.begin();
    let mut scan = txn.index_scan(&table, 0, Range::ALL, Direction::Forward, true).unwrap();
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        found.push(format!("{:?}", row.values().unwrap()));
    }
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    assert_eq!(rows.len(), 100);
    found.sort_unstable();
    rows.sort_unstable();
    assert_eq!(found, rows);
    assert_eq!(db.store.check_table("t").unwrap().problems, [""; 0]);
}
