//! Mothers and children in the stores of the model: a foreign key that cascades. After a salvage
//! the key is there if every saved child has its mother, and else the report names each orphan.

use super::{Content, Model, World, content, insert, rows_of, spec};
use crate::report::Report;
use evenkeel::ValueRef::Int;
use evenkeel::{Access, Database, ForeignKeySpec, Isolation, ReferenceAction, Txn};
use evenkeel_io::SharedRng as Rng;
use std::collections::BTreeMap;

/// The parent and the child; the child's `n` is the id of its mother.
pub const FAMILY: [&str; 2] = ["mother", "child"];
const KEY: &str = "of_mother";

/// The child comes first in the catalog, so its key cannot be added with its table.
fn make(db: &Database, world: &mut World) {
    for name in ["child", "mother"] {
        db.create_table(name, &spec(name)).expect("creates");
        world.tables.insert(name, Model::default());
    }
    let key = ForeignKeySpec::new(KEY, &["n"], "mother", &["id"]);
    db.add_foreign_key("child", &key.on_delete(ReferenceAction::Cascade)).expect("adds");
}

fn any(rng: &Rng, of: &Model) -> Option<i64> {
    of.rows.keys().nth(rng.below(of.rows.len().max(1) as u64) as usize).copied()
}

fn add(txn: &mut Txn, name: &'static str, to: &mut Model, (key, row): (i64, Content)) {
    insert(txn, name, key, &row, 0);
    to.rows.insert(key, row);
}

/// One transaction on both tables.
pub fn step(rng: &Rng, db: &Database, world: &mut World, next: &mut i64) {
    if !world.tables.contains_key("mother") {
        make(db, world);
    }
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let (mut mothers, mut children) =
        (world.tables["mother"].clone(), world.tables["child"].clone());
    for _ in 0..1 + rng.below(200) {
        *next += 1;
        let key = if rng.below(2) == 0 { *next } else { -*next };
        match (rng.below(20), any(rng, &mothers)) {
            (0, Some(id)) => {
                assert!(txn.table("mother").expect("there").delete(&[Int(id)]).expect("deletes"));
                mothers.rows.remove(&id);
                children.rows.retain(|_, child| child.0 != id);
            }
            (1, Some(id)) => {
                let Some(child) = any(rng, &children) else { continue };
                let table = txn.table("child").expect("there");
                assert!(table.update(&[Int(child)], &[(1, Int(id))]).expect("updates"));
                children.rows.get_mut(&child).expect("there").0 = id;
            }
            (2..=10, Some(id)) => {
                let (_, note, body) = content(rng, "child");
                add(&mut txn, "child", &mut children, (key, (id, note, body)));
            }
            _ => add(&mut txn, "mother", &mut mothers, (key, content(rng, "mother"))),
        }
    }
    if rng.below(6) == 0 {
        txn.rollback().expect("rolls back");
        return;
    }
    world.may_become("mother", &mothers);
    world.may_become("child", &children);
    txn.commit().expect("commits");
    world.commit("mother", mothers);
    world.commit("child", children);
}

/// True if the child has its key.
pub fn has_key(db: &Database) -> bool {
    let def = db.definition("child");
    let key = def.as_ref().map(|def| def.foreign_keys.iter().find(|key| key.name == KEY));
    let Ok(Some(key)) = key else { return false };
    let actions = (key.on_delete, key.on_update);
    assert_eq!(actions, (ReferenceAction::Cascade, ReferenceAction::Restrict));
    true
}

/// Judges the key of a new database, and returns how many orphans there are. `exact`: the key was
/// lost only if the catalog is damaged.
pub fn judge(report: &Report, db: &Database, exact: bool, told: &str) -> u64 {
    let is_made = |name: &str| db.tables().iter().any(|table| table == name);
    let Some(table) = report.tables.iter().find(|t| t.name == "child" && t.is_made) else {
        return 0;
    };
    let mothers = match is_made("mother") {
        true => rows_of(db, "mother"),
        false => BTreeMap::new(),
    };
    let mut children = rows_of(db, "child");
    children.retain(|_, child| !mothers.contains_key(&child.0));
    let named = children
        .iter()
        .map(|(key, child)| format!("(id = {key}) refers to (id = {}) of mother", child.0));
    let named: Vec<String> = named.collect();
    let reported = table.orphans.iter().find(|orphans| orphans.key == KEY);
    match (has_key(db), reported) {
        (true, reported) => assert!(named.is_empty() && reported.is_none(), "{named:?}: {told}"),
        (false, Some(orphans)) => {
            assert!(orphans.count > 0 && orphans.count == named.len() as u64, "{told}");
            assert_eq!(orphans.rows, named, "{told}");
            let is_noted = |note: &String| note.contains("foreign key of_mother is left out");
            assert!(table.notes.iter().any(is_noted), "{told}");
        }
        (false, None) => assert!(!exact || !report.catalog.is_empty(), "no key: {told}"),
    }
    named.len() as u64
}
