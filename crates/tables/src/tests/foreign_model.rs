//! Foreign keys against a model: random changes of two tables that refer to each other's rows and
//! their own; and sessions that insert children while others delete parents, judged by a scan of
//! all rows.

use super::*;
use evenkeel_base::Code;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

const KEYS: u64 = 12;

/// A parent by its id: (code, parent among themselves); a child: (parent id, parent code).
type Rows = BTreeMap<i64, [Option<i64>; 2]>;

#[derive(Clone, Debug, Default)]
struct Model {
    parents: Rows,
    children: Rows,
}

impl Model {
    /// No code twice; each reference is to a row that is there.
    fn is_sound(&self) -> bool {
        let mut codes: Vec<_> = self.parents.values().filter_map(|row| row[0]).collect();
        codes.sort_unstable();
        let unique = codes.windows(2).all(|pair| pair[0] != pair[1]);
        let there = |id: &Option<i64>| id.is_none_or(|id| self.parents.contains_key(&id));
        let coded = |code: &Option<i64>| code.is_none_or(|code| codes.contains(&code));
        unique
            && self.parents.values().all(|row| there(&row[1]))
            && self.children.values().all(|row| there(&row[0]) && coded(&row[1]))
    }
}

fn spec(keys: impl IntoIterator<Item = ForeignKeySpec>) -> TableSpec {
    let column = |name: &str| ColumnSpec::new(name, ColumnType::Int32);
    let spec = TableSpec::new()
        .column(column("id"))
        .column(column("a").nullable())
        .column(column("b").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_b", &["b", "a"]));
    keys.into_iter().fold(spec, TableSpec::foreign_key)
}

fn tables(db: &Db) -> [Arc<Table>; 2] {
    let own = ForeignKeySpec::new("own", &["b"], "p", &["id"]);
    let parents = spec([own]).index(IndexSpec::new("by_a", &["a"]).unique());
    let to_id = ForeignKeySpec::new("to_id", &["a"], "p", &["id"]);
    let to_code = ForeignKeySpec::new("to_code", &["b"], "p", &["a"]);
    let children = spec([to_id, to_code]).index(IndexSpec::new("by_a", &["a"]));
    let parents = db.store.create_table("p", &parents).unwrap();
    [parents, db.store.create_table("c", &children).unwrap()]
}

fn value(of: Option<i64>) -> ValueRef<'static> {
    of.map_or(ValueRef::Null, ValueRef::Int)
}

/// What happened: (rows written, refused for a parent, for a child, for a duplicate).
#[derive(Debug, Default)]
struct Counts {
    written: u64,
    missing: u64,
    referenced: u64,
    duplicate: u64,
}

/// One random change in both; the store refuses exactly what would leave the model unsound.
fn step(rng: &mut Rng, txn: &mut TableTxn, tables: &[Arc<Table>; 2], model: &mut Model) -> Code {
    let which = rng.below(2) as usize;
    let id = rng.below(KEYS) as i64;
    let mut random = || (rng.below(4) > 0).then(|| rng.below(KEYS) as i64);
    let row = [random(), random()];
    let (table, mut next) = (&tables[which], model.clone());
    let rows = if which == 0 { &mut next.parents } else { &mut next.children };
    let there = rows.contains_key(&id);
    let done = match rng.below(5) {
        0 | 1 => {
            let inserted =
                txn.insert(table, &[ValueRef::Int(id), value(row[0]), value(row[1])]).map(|_| ());
            if there {
                assert_eq!(inserted.unwrap_err().code(), Code::DuplicateKey);
                return Code::DuplicateKey;
            }
            rows.insert(id, row);
            inserted
        }
        2 => {
            let deleted = txn.delete(table, &[id.into()]).map(|found| assert_eq!(found, there));
            rows.remove(&id);
            deleted
        }
        3 => {
            let to = rng.below(KEYS) as i64;
            let changes = [(0, ValueRef::Int(to)), (2, value(row[1]))];
            let updated = txn.update(table, &[id.into()], &changes);
            if !there {
                assert!(!updated.unwrap());
                return Code::TableMissing;
            }
            if to != id && rows.contains_key(&to) {
                let code = updated.unwrap_err().code();
                assert!(code == Code::DuplicateKey || code == Code::RowReferenced, "{code:?}");
                return code;
            }
            let mut changed = rows.remove(&id).unwrap();
            changed[1] = row[1];
            rows.insert(to, changed);
            updated.map(|_| ())
        }
        _ => {
            let updated = txn.update(table, &[id.into()], &[(1, value(row[0]))]);
            if let Some(changed) = rows.get_mut(&id) {
                changed[0] = row[0];
            }
            updated.map(|found| assert_eq!(found, there))
        }
    };
    match (done, next.is_sound()) {
        (Ok(()), true) => {
            *model = next;
            Code::Internal
        }
        (Err(error), false) => error.code(),
        (done, sound) => panic!("{done:?}, sound {sound}: {next:?}"),
    }
}

#[test]
fn random_changes_equal_the_model() {
    let mut counts = Counts::default();
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let db = Db::create(Arc::new(MemEnv::new()), SMALL);
        let tables = tables(&db);
        let mut committed = Model::default();
        for _ in 0..60 {
            let (mut txn, mut model) = (db.begin(), committed.clone());
            for _ in 0..rng.below(30) {
                match step(&mut rng, &mut txn, &tables, &mut model) {
                    Code::Internal => counts.written += 1,
                    Code::ParentRowMissing => counts.missing += 1,
                    Code::RowReferenced => counts.referenced += 1,
                    _ => counts.duplicate += 1,
                }
            }
            for (table, rows) in tables.iter().zip([&model.parents, &model.children]) {
                let found = all_rows(&mut txn, table, Direction::Forward);
                let row = |(id, row): (&i64, &[Option<i64>; 2])| {
                    vec![Value::Int(*id), value(row[0]).to_owned(), value(row[1]).to_owned()]
                };
                assert_eq!(found, rows.iter().map(row).collect::<Vec<_>>());
                check_indexes(&mut txn, table);
            }
            match rng.below(4) {
                0 => txn.rollback().unwrap(),
                _ => {
                    commit(txn);
                    committed = model;
                }
            }
        }
    }
    println!("{counts:?}");
    let Counts { written, missing, referenced, duplicate } = counts;
    assert!(written.min(missing).min(referenced).min(duplicate) > 100);
}

/// Rows of the child that refer to no row, by a scan of both tables.
fn orphans(txn: &mut TableTxn, tables: &[Arc<Table>; 2]) -> usize {
    let [parents, children] = tables.each_ref().map(|t| all_rows(txn, t, Direction::Forward));
    let refers = |value: &Value, at: usize| {
        *value == Value::Null || parents.iter().any(|parent| parent[at] == *value)
    };
    let own = parents.iter().filter(|row| !refers(&row[2], 0)).count();
    own + children.iter().filter(|row| !(refers(&row[1], 0) && refers(&row[2], 1))).count()
}

/// Threads insert, change and delete rows of both tables at once, at every isolation level.
#[test]
fn no_interleaving_leaves_a_row_without_its_parent() {
    use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
    let db = Db::create(
        Arc::new(MemEnv::new()),
        Sizes { lock_wait: Duration::from_millis(50), ..SMALL },
    );
    let tables = tables(&db);
    let ended = Mutex::new(BTreeMap::<String, u64>::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, tables, ended) = (&db, &tables, &ended);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for n in 0..200 {
                    let levels = [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable];
                    let level = levels[rng.below(4) as usize];
                    let mut txn = db.store.begin(level, Access::ReadWrite);
                    let mut said = "committed".to_string();
                    for _ in 0..=rng.below(4) {
                        if let Err(error) = random_change(&mut rng, &mut txn, tables) {
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
                    if n % 50 == 0 {
                        let mut txn = db.begin();
                        assert_eq!(orphans(&mut txn, tables), 0);
                    }
                }
            });
        }
    });
    println!("{:?}", ended.lock());
    let mut txn = db.begin();
    assert_eq!(orphans(&mut txn, &tables), 0);
    tables.iter().for_each(|table| check_indexes(&mut txn, table));
    let ended = ended.lock();
    for code in ["committed", "RowReferenced", "ParentRowMissing"] {
        assert!(ended.get(code).is_some_and(|count| *count > 10), "{code}");
    }
}

fn random_change(rng: &mut Rng, txn: &mut TableTxn, tables: &[Arc<Table>; 2]) -> Result<()> {
    let table = &tables[rng.below(2) as usize];
    let id = ValueRef::Int(rng.below(KEYS) as i64);
    let mut random = || value((rng.below(3) > 0).then(|| rng.below(KEYS) as i64));
    let (a, b) = (random(), random());
    match rng.below(4) {
        0 => txn.insert_or_ignore(table, &[id, a, b]).map(|_| ()),
        1 => txn.update(table, &[id], &[(1, a), (2, b)]).map(|_| ()),
        2 => txn.update(table, &[id], &[(0, ValueRef::Int(rng.below(KEYS) as i64))]).map(|_| ()),
        _ => txn.delete(table, &[id]).map(|_| ()),
    }
}
