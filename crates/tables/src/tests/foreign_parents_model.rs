//! Foreign keys to parents that are not unique, beside a model: random changes of parents and
//! children, with each action.

use super::foreign_parents::{SHAPES, Shape, children, key};
use super::*;
use crate::ReferenceAction::{self, Cascade, Restrict, SetNull};
use ValueRef::{Int, Null};
use evenkeel_base::Code;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

/// Parents by id: v, w. Children by id: up.
struct Model {
    rng: Rng,
    shape: Shape,
    on_delete: ReferenceAction,
    on_update: ReferenceAction,
    parents: BTreeMap<i64, (i64, i64)>,
    children: BTreeMap<i64, Option<i64>>,
}

impl Model {
    /// A parent leaves the value `v`; false if rows refer to it and may not be changed.
    fn leave(&mut self, v: i64, to: Option<i64>) -> bool {
        let action = if to.is_some() { self.on_update } else { self.on_delete };
        let refer: Vec<i64> =
            self.children.iter().filter(|(_, up)| **up == Some(v)).map(|(id, _)| *id).collect();
        for id in refer {
            match (action, to) {
                (Cascade, None) => drop(self.children.remove(&id)),
                (Cascade, to) => drop(self.children.insert(id, to)),
                (SetNull, _) => drop(self.children.insert(id, None)),
                _ => return false,
            }
        }
        true
    }

    fn is_there(&self, up: Option<i64>) -> bool {
        up.is_none_or(|up| self.parents.values().any(|(v, _)| *v == up))
    }

    /// Makes one change in both; returns what became of it, by the counts of the test.
    fn step(&mut self, txn: &mut TableTxn, p: &Arc<Table>, c: &Arc<Table>) -> usize {
        let mut below = |n| self.rng.below(n) as i64;
        let (kind, id, child, v, w) = (below(8), below(9), below(9), below(5), below(3));
        let up = (below(5) > 0).then(|| below(5));
        match (kind, self.parents.get(&id).copied()) {
            (0 | 1, None) => {
                txn.insert(p, &[Int(id), Int(v), Int(w)]).unwrap();
                self.parents.insert(id, (v, w));
                0
            }
            (2 | 3, Some((was, _))) => {
                let done = txn.delete(p, &self.shape.at(id, was));
                if !self.leave(was, None) {
                    return refused_by(done, Code::RowReferenced, 2);
                }
                assert!(done.unwrap());
                self.parents.remove(&id);
                0
            }
            (4 | 5, Some((was, _))) => {
                let done = txn.update(p, &self.shape.at(id, was), &[(1, Int(v)), (2, Int(w))]);
                if was != v && !self.leave(was, Some(v)) {
                    return refused_by(done, Code::RowReferenced, 2);
                }
                assert!(done.unwrap());
                self.parents.insert(id, (v, w));
                0
            }
            (6.., _) => {
                let value = up.map_or(Null, Int);
                let done = match self.children.contains_key(&child) {
                    true => txn.update(c, &[Int(child)], &[(1, value)]),
                    false => txn.insert(c, &[Int(child), value]).map(|_| true),
                };
                if !self.is_there(up) {
                    return refused_by(done, Code::ParentRowMissing, 1);
                }
                assert!(done.unwrap());
                self.children.insert(child, up);
                0
            }
            _ => 3,
        }
    }

    fn check(&self, txn: &mut TableTxn, p: &Arc<Table>, c: &Arc<Table>) {
        let int = |value: i64| Value::Int(value);
        let mut rows = all_rows(txn, p, Direction::Forward);
        rows.sort_by_key(|row| match row[0] {
            Value::Int(id) => id,
            _ => panic!("{row:?}"),
        });
        let parents = self.parents.iter();
        let wanted: Vec<_> = parents.map(|(id, (v, w))| vec![int(*id), int(*v), int(*w)]).collect();
        assert_eq!(rows, wanted);
        let children = self.children.iter();
        let wanted: Vec<_> =
            children.map(|(id, up)| vec![int(*id), up.map_or(Value::Null, int)]).collect();
        assert_eq!(all_rows(txn, c, Direction::Forward), wanted);
        check_indexes(txn, p);
        check_indexes(txn, c);
    }
}

fn refused_by<T: std::fmt::Debug>(done: Result<T>, code: Code, at: usize) -> usize {
    assert_eq!(done.unwrap_err().code(), code);
    at
}

#[test]
fn random_changes_of_equal_parents_equal_the_model() {
    let mut counts = [0u64; 4];
    for seed in 0..32 {
        let shape = SHAPES[seed as usize % 4];
        let [on_delete, on_update] = match seed / 4 % 4 {
            0 => [Restrict, Restrict],
            1 => [Cascade, Cascade],
            2 => [SetNull, Cascade],
            _ => [Restrict, SetNull],
        };
        let db = Db::new();
        let key = key().on_delete(on_delete).on_update(on_update);
        let p = db.store.create_table("p", &shape.parents()).unwrap();
        let c = db.store.create_table("c", &children(key)).unwrap();
        let (rng, parents, children) = (Rng::new(seed), BTreeMap::new(), BTreeMap::new());
        let mut model = Model { rng, shape, on_delete, on_update, parents, children };
        for _ in 0..20 {
            let before = (model.parents.clone(), model.children.clone());
            let mut txn = db.begin();
            for _ in 0..40 {
                counts[model.step(&mut txn, &p, &c)] += 1;
            }
            model.check(&mut txn, &p, &c);
            match model.rng.below(3) {
                0 => {
                    txn.rollback().unwrap();
                    (model.parents, model.children) = before;
                }
                _ => drop(commit(txn)),
            }
            let report = db.store.check_table("c").unwrap();
            assert!(report.problems.is_empty(), "seed {seed}: {:?}", report.problems);
        }
    }
    println!("done, parent missing, row referenced, nothing to do: {counts:?}");
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}
