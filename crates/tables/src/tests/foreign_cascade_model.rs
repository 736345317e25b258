//! Cascades of foreign keys against a model: random changes of five tables whose keys have random
//! actions; and sessions that change them at once, judged by a scan of all rows.

use super::*;
use crate::ReferenceAction;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

/// So few that most rows refer to others, and are referred to.
const KEYS: u64 = 4;

/// Id, a, b.
type Line = [Option<i64>; 3];

/// A key of table `child`, by the positions of tables and columns. The keys that refer to one table
/// are checked in this order.
#[derive(Clone, Copy, Debug)]
struct Key {
    child: usize,
    column: usize,
    parent: usize,
    of: usize,
    on_delete: ReferenceAction,
    on_update: ReferenceAction,
}

const NAMES: [&str; 4] = ["p", "c", "d", "e"];
/// (child, its column, parent, its column). Table `d` refers by its primary key.
const KEYS_OF: [(usize, usize, usize, usize); 7] = [
    (0, 2, 0, 0),
    (1, 1, 0, 0),
    (1, 2, 0, 1),
    (2, 0, 0, 0),
    (2, 1, 1, 0),
    (3, 1, 2, 0),
    (3, 2, 1, 0),
];

fn random_keys(rng: &mut Rng) -> Vec<Key> {
    use ReferenceAction::{Cascade, NoAction, Restrict, SetNull};
    let mut random = |column: usize| {
        // An action that refuses ends most cascades at once.
        let all = [Cascade, SetNull, Cascade, SetNull, Restrict, NoAction];
        match all[rng.below(6) as usize] {
            SetNull if column == 0 => Cascade,
            action => action,
        }
    };
    let key = |(child, column, parent, of)| {
        let (on_delete, on_update) = (random(column), random(column));
        Key { child, column, parent, of, on_delete, on_update }
    };
    KEYS_OF.into_iter().map(key).collect()
}

fn create(db: &Db, keys: &[Key]) -> [Arc<Table>; 4] {
    let columns = ["id", "a", "b"];
    std::array::from_fn(|table| {
        let column = |name: &str| ColumnSpec::new(name, ColumnType::Int32);
        let mut spec = TableSpec::new()
            .column(column("id"))
            .column(column("a").nullable())
            .column(column("b").nullable())
            .primary_key(&["id"])
            .index(IndexSpec::new("by_b", &["b"]));
        let by_a = IndexSpec::new("by_a", &["a"]);
        spec = spec.index(if table == 0 { by_a.unique() } else { by_a });
        for (n, key) in keys.iter().enumerate().filter(|(_, key)| key.child == table) {
            let (own, of) = ([columns[key.column]], [columns[key.of]]);
            let wanted = ForeignKeySpec::new(&format!("k{n}"), &own, NAMES[key.parent], &of);
            let wanted = wanted.on_delete(key.on_delete).on_update(key.on_update);
            spec = spec.foreign_key(wanted);
        }
        db.store.create_table(NAMES[table], &spec).unwrap()
    })
}

/// Why the model refuses a change.
struct Refused;
type Maybe = std::result::Result<(), Refused>;

/// An operation above the present one: its table, and whether it updates.
type Chain = Vec<(usize, bool)>;

#[derive(Clone, Debug)]
struct Model {
    keys: Vec<Key>,
    tables: [BTreeMap<i64, Line>; 4],
    /// Rows changed by cascades.
    cascaded: u64,
}

impl Model {
    fn has(&self, table: usize, column: usize, value: i64) -> bool {
        match column {
            0 => self.tables[table].contains_key(&value),
            _ => self.tables[table].values().any(|row| row[column] == Some(value)),
        }
    }

    /// Writes a row, in the place of `old` if it is given, which is gone already. References that
    /// stay as they are in a row that stays are not looked up.
    fn put(&mut self, table: usize, row: Line, old: Option<Line>, skips: Option<usize>) -> Maybe {
        let stays =
            |column: usize| old.is_some_and(|old| old[0] == row[0] && old[column] == row[column]);
        let id = row[0].unwrap();
        if self.tables[table].contains_key(&id)
            || (table == 0 && row[1].is_some_and(|a| self.has(0, 1, a)))
        {
            return Err(Refused);
        }
        self.tables[table].insert(id, row);
        for (_, key) in self.keys.iter().enumerate().filter(|(n, _)| Some(*n) != skips) {
            if key.child == table
                && !stays(key.column)
                && let Some(value) = row[key.column]
                && !self.has(key.parent, key.of, value)
            {
                return Err(Refused);
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        table: usize,
        (old, new): (Line, Line),
        chain: &mut Chain,
        skips: Option<usize>,
    ) -> Maybe {
        self.tables[table].remove(&old[0].unwrap());
        self.put(table, new, Some(old), skips)?;
        self.left(table, old, Some(new), chain)
    }

    fn delete(&mut self, table: usize, id: i64, chain: &mut Chain) -> Maybe {
        match self.tables[table].remove(&id) {
            Some(old) => self.left(table, old, None, chain),
            None => Ok(()),
        }
    }

    fn left(&mut self, table: usize, old: Line, new: Option<Line>, chain: &mut Chain) -> Maybe {
        for n in 0..self.keys.len() {
            let key = self.keys[n];
            let Some(value) = old[key.of].filter(|_| key.parent == table) else { continue };
            if new.is_some_and(|new| new[key.of] == Some(value)) {
                continue;
            }
            chain.push((table, new.is_some()));
            let ids: Vec<i64> = self.tables[key.child].keys().copied().collect();
            for id in ids {
                // A cascade further down may have changed it.
                let row = self.tables[key.child].get(&id).copied();
                if let Some(row) = row.filter(|row| row[key.column] == Some(value)) {
                    self.child(n, row, new, chain)?;
                }
            }
            chain.pop();
        }
        Ok(())
    }

    fn child(&mut self, n: usize, row: Line, new: Option<Line>, chain: &mut Chain) -> Maybe {
        use ReferenceAction::{Cascade, SetNull};
        let key = self.keys[n];
        let action = if new.is_some() { key.on_update } else { key.on_delete };
        if !matches!(action, Cascade | SetNull) {
            return Err(Refused);
        }
        let updates = new.is_some() || action == SetNull;
        if updates && chain.contains(&(key.child, true)) {
            return Err(Refused);
        }
        self.cascaded += 1;
        if !updates {
            return self.delete(key.child, row[0].unwrap(), chain);
        }
        let mut changed = row;
        changed[key.column] = new.filter(|_| action == Cascade).and_then(|new| new[key.of]);
        match changed[0] {
            // A primary key takes no NULL.
            None => Err(Refused),
            Some(_) => self.update(key.child, (row, changed), chain, Some(n)),
        }
    }
}

fn value(of: Option<i64>) -> ValueRef<'static> {
    of.map_or(ValueRef::Null, ValueRef::Int)
}

/// A random statement: the table, the id, and the row that it gets; none for a delete.
struct Change {
    table: usize,
    id: i64,
    insert: bool,
    to: Option<Line>,
}

impl Change {
    fn random(rng: &mut Rng) -> Change {
        let id = rng.below(KEYS) as i64;
        // Parents are changed most often.
        let table = [0, 0, 0, 1, 1, 1, 2, 2, 3, 3][rng.below(10) as usize];
        let mut random = || (rng.below(5) > 0).then(|| rng.below(KEYS) as i64);
        let (a, b) = (random(), random());
        let to = rng.below(KEYS) as i64;
        match rng.below(7) {
            0..=2 => Change { table, id, insert: true, to: Some([Some(id), a, b]) },
            3 | 4 => Change { table, id, insert: false, to: Some([Some(to), a, b]) },
            5 => Change { table, id, insert: false, to: Some([Some(id), a, b]) },
            _ => Change { table, id, insert: false, to: None },
        }
    }

    fn store(&self, txn: &mut TableTxn, tables: &[Arc<Table>; 4]) -> Result<()> {
        let (table, id) = (&tables[self.table], ValueRef::Int(self.id));
        match self.to {
            Some(row) if self.insert => txn.insert(table, &row.map(value)).map(|_| ()),
            Some(row) => {
                let changes = [0, 1, 2].map(|at| (at, value(row[at])));
                txn.update(table, &[id], &changes).map(|_| ())
            }
            None => txn.delete(table, &[id]).map(|_| ()),
        }
    }

    fn model(&self, model: &mut Model) -> Maybe {
        let mut chain = Chain::new();
        let old = model.tables[self.table].get(&self.id).copied();
        match (self.to, old) {
            (Some(row), _) if self.insert => model.put(self.table, row, None, None),
            (Some(row), Some(old)) => model.update(self.table, (old, row), &mut chain, None),
            (None, Some(_)) => model.delete(self.table, self.id, &mut chain),
            (_, None) => Ok(()),
        }
    }
}

fn check(txn: &mut TableTxn, tables: &[Arc<Table>; 4], model: &Model) {
    for (table, rows) in tables.iter().zip(&model.tables) {
        let found = all_rows(txn, table, Direction::Forward);
        let row = |row: &Line| row.map(|of| value(of).to_owned()).to_vec();
        assert_eq!(found, rows.values().map(row).collect::<Vec<_>>());
        check_indexes(txn, table);
    }
}

#[test]
fn random_cascades_equal_the_model() {
    let (mut written, mut refused, mut cascaded) = (0, BTreeMap::<&str, u64>::new(), 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let db = Db::create(Arc::new(MemEnv::new()), SMALL);
        let keys = random_keys(&mut rng);
        let tables = create(&db, &keys);
        let mut committed = Model { keys, tables: Default::default(), cascaded: 0 };
        for _ in 0..20 {
            let (mut txn, mut model) = (db.begin(), committed.clone());
            for _ in 0..rng.below(60) {
                let (change, mut next) = (Change::random(&mut rng), model.clone());
                match (change.store(&mut txn, &tables), change.model(&mut next)) {
                    (Ok(()), Ok(())) => {
                        (written, model) = (written + 1, next);
                    }
                    (Err(error), Err(Refused)) => {
                        *refused.entry(error.code().name()).or_default() += 1;
                    }
                    (done, expected) => {
                        let keys = &model.keys;
                        panic!(
                            "seed {seed}: table {}, id {}, insert {}, {:?}: {done:?}, expected {}: \
                             {:?} {keys:?}",
                            change.table,
                            change.id,
                            change.insert,
                            change.to,
                            expected.is_ok(),
                            model.tables
                        );
                    }
                }
            }
            check(&mut txn, &tables, &model);
            match rng.below(4) {
                0 => txn.rollback().unwrap(),
                _ => {
                    commit(txn);
                    committed = model;
                }
            }
        }
        let metric = evenkeel_base::metrics::Metric::RowsCascaded;
        assert!(db.store.rt.metrics.get(metric) >= committed.cascaded);
        cascaded += committed.cascaded;
    }
    println!("{written} written, {cascaded} rows cascaded, refused: {refused:?}");
    assert!(written > 3000 && cascaded > 300);
    for code in ["RowReferenced", "ParentRowMissing", "DuplicateKey"] {
        assert!(refused[code] > 100, "{code}");
    }
}

/// References of rows to rows that do not exist, by a scan of all tables.
fn orphans(txn: &mut TableTxn, tables: &[Arc<Table>; 4]) -> usize {
    let rows = tables.each_ref().map(|table| all_rows(txn, table, Direction::Forward));
    let missing = |(child, column, parent, of): (usize, usize, usize, usize)| {
        let there = |value: &Value| rows[parent].iter().any(|row| row[of] == *value);
        let refers = rows[child].iter().map(|row| &row[column]).filter(|v| **v != Value::Null);
        refers.filter(|value| !there(value)).count()
    };
    KEYS_OF.into_iter().map(missing).sum()
}

/// Threads insert, change and delete rows of all tables at once, at every isolation level.
#[test]
fn no_interleaving_of_cascades_leaves_a_row_without_its_parent() {
    use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
    let ended = Mutex::new(BTreeMap::<String, u64>::new());
    for seed in 0..6 {
        let sizes = Sizes { lock_wait: Duration::from_millis(50), ..SMALL };
        let db = Db::create(Arc::new(MemEnv::new()), sizes);
        let tables = create(&db, &random_keys(&mut Rng::new(100 + seed)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, tables, ended) = (&db, &tables, &ended);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + thread);
                    for n in 0..60 {
                        let levels = [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable];
                        let level = levels[rng.below(4) as usize];
                        let mut txn = db.store.begin(level, Access::ReadWrite);
                        let mut said = "committed".to_string();
                        for _ in 0..=rng.below(4) {
                            if let Err(error) = Change::random(&mut rng).store(&mut txn, tables) {
                                said = error.code().name().to_string();
                                if txn.is_ended() {
                                    break;
                                }
                            }
                        }
                        if !txn.is_ended() {
                            txn.commit(Durability::Lazy).unwrap();
                        }
                        *ended.lock().entry(said).or_default() += 1;
                        if n % 20 == 0 {
                            assert_eq!(orphans(&mut db.begin(), tables), 0);
                        }
                    }
                });
            }
        });
        let mut txn = db.begin();
        assert_eq!(orphans(&mut txn, &tables), 0, "seed {seed}");
        tables.iter().for_each(|table| check_indexes(&mut txn, table));
    }
    println!("{:?}", ended.lock());
    let ended = ended.lock();
    for code in ["committed", "RowReferenced", "ParentRowMissing"] {
        assert!(ended.get(code).is_some_and(|count| *count > 10), "{code}");
    }
}
