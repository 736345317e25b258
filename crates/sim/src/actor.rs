//! A session that executes a script and keeps the model up to date. Crash scripts and scripts of
//! planted faults use it. On a full disk it may repeat a statement, once it has checked that the
//! failed statement left nothing behind.

use crate::kind::Kind;
use crate::model::{Effects, Model, Own, Phase, describe};
use crate::values::{B, N, Row, V, table_spec, whole};
use crate::verify::{Trouble, check_table, key_of, modelled};
use evenkeel::{
    Access, Database, Durability, Error, Geometry, Isolation, Kind as ErrorKind, Options, Result,
    Txn, Value, ValueRef,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::SimEnv;
use std::collections::BTreeMap;

/// Small sizes, so that rare paths are taken often.
pub const SMALL: Geometry = Geometry {
    generation_bytes: Some(64 << 10),
    pool_bytes: Some(64 * 4096),
    log_bytes: Some(1 << 20),
    undo_bytes: Some(64 << 10),
    cache_bytes: None,
    resident_bytes: None,
    logged_value_bytes: None,
    listed_chains: None,
    build_bytes: None,
    commit_segment_ids: Some(16),
    machine_bytes: None,
    available_bytes: None,
    shared_threads: false,
};

/// Opens the database of a simulation.
///
/// # Errors
/// Those of opening.
pub fn open(sim: &SimEnv, geometry: Geometry) -> Result<Database> {
    Database::open_with("db", Options::new().env(sim.env()).geometry(geometry))
}

/// Decides about a statement that failed on a full disk: true if it is to be repeated.
pub type WhenFull<'a> = &'a dyn Fn(&Error) -> bool;

/// A row that a statement changes: the table, the row's number, and the new row.
pub type Effect = (String, i64, Option<Row>);

/// A session with its model.
pub struct Actor<'a> {
    /// The database under test.
    pub db: Database,
    /// What the database must hold.
    pub model: &'a Mutex<Model>,
    /// Called when a statement finds the disk full. `None`: that error is handled like any other.
    pub when_full: Option<WhenFull<'a>>,
    open: Option<(Txn, Own)>,
    marks: Vec<usize>,
}

impl<'a> Actor<'a> {
    /// Opens a session of this database.
    pub fn new(db: Database, model: &'a Mutex<Model>) -> Actor<'a> {
        Actor { db, model, when_full: None, open: None, marks: Vec::new() }
    }

    /// Opens another session of the same database.
    pub fn beside(&self) -> Actor<'a> {
        Actor { when_full: self.when_full, ..Actor::new(self.db.clone(), self.model) }
    }

    /// Executes a statement; repeats it while the disk is full and `when_full` says so.
    fn statement<R>(&mut self, mut f: impl FnMut(&mut Self) -> Result<R>) -> Result<R> {
        loop {
            let done = f(self);
            let full = done.as_ref().err().filter(|error| error.kind() == ErrorKind::Full);
            let (Some(error), Some(when_full)) = (full, self.when_full) else { return done };
            if let Err(trouble) = self.check_own() {
                panic!("read in the transaction after {error}: {trouble:?}");
            }
            if !when_full(error) {
                return done;
            }
        }
    }

    /// Compares all tables with what the open transaction must see.
    ///
    /// # Errors
    /// As those of `check_table`.
    pub fn check_own(&mut self) -> std::result::Result<(), Trouble> {
        let (db, model) = (self.db.clone(), self.model.lock().clone());
        let (txn, own) = self.txn()?;
        for name in modelled(&db) {
            let def = db.definition(&name)?;
            let tree = u64::from(def.entry.tree.0);
            let mut expected = model.table_at(tree, model.last());
            for (key, row) in own.effects.iter().filter(|(key, _)| key.0 == tree) {
                match row {
                    Some(row) => expected.insert(key.1, row),
                    None => expected.remove(&key.1),
                };
            }
            check_table(txn, &def, &expected, false)?;
        }
        Ok(())
    }

    /// The rows of a table as the open transaction must see them.
    ///
    /// # Errors
    /// Those of beginning one.
    pub fn rows(&mut self, name: &str) -> Result<BTreeMap<i64, Row>> {
        let tree = key_of(&*self.db.definition(name)?, 0).0;
        let mut rows: BTreeMap<i64, Row> = {
            let model = self.model.lock();
            let committed = model.table_at(tree, model.last());
            committed.into_iter().map(|(id, row)| (id, row.clone())).collect()
        };
        let (_, own) = self.txn()?;
        for (key, row) in own.effects.iter().filter(|(key, _)| key.0 == tree) {
            match row {
                Some(row) => rows.insert(key.1, row.clone()),
                None => rows.remove(&key.1),
            };
        }
        Ok(rows)
    }

    /// Executes a statement that changes these rows, of several tables.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn cascade(
        &mut self,
        mut f: impl FnMut(&mut Txn) -> Result<()>,
        effects: &[Effect],
    ) -> Result<()> {
        self.statement(|actor| {
            let keys =
                effects.iter().map(|(name, id, _)| Ok(key_of(&*actor.db.definition(name)?, *id)));
            let keys = keys.collect::<Result<Vec<_>>>()?;
            let (txn, own) = actor.txn()?;
            f(txn)?;
            for (key, (.., row)) in keys.into_iter().zip(effects) {
                own.set(key, row.clone());
            }
            Ok(())
        })
    }

    /// Creates a table.
    ///
    /// # Errors
    /// Those of the engine, as for all methods below.
    pub fn create(&mut self, name: &str) -> Result<()> {
        self.schema(name, |db| db.create_table(name, &table_spec(name)))
    }

    /// Runs a schema change of a table.
    pub fn schema(&mut self, name: &str, f: impl FnOnce(&Database) -> Result<()>) -> Result<()> {
        self.model.lock().tables.entry(name.to_string()).or_default().in_doubt = true;
        f(&self.db)?;
        let table = describe(&self.db, name);
        self.model.lock().tables.insert(name.to_string(), table);
        Ok(())
    }

    fn txn(&mut self) -> Result<&mut (Txn, Own)> {
        if self.open.is_none() {
            let txn = self.db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
            self.open = Some((txn, Own::default()));
        }
        self.open.as_mut().ok_or_else(|| Error::internal("no transaction"))
    }

    /// Does something in the open transaction that the model does not record.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn in_same(&mut self, f: impl FnOnce(&mut Txn) -> Result<()>) -> Result<()> {
        f(&mut self.txn()?.0)
    }

    /// Writes a whole row: its number, a, a text of this length, u.
    pub fn put(&mut self, name: &str, id: i64, a: i64, len: usize, u: Option<i64>) -> Result<()> {
        self.statement(|actor| actor.put_once(name, id, a, len, u))
    }

    fn put_once(&mut self, name: &str, id: i64, a: i64, len: usize, u: Option<i64>) -> Result<()> {
        let text = V::Text("x".repeat(len));
        let row = vec![V::Int(a), text, u.map_or(V::Null, V::Int)];
        let key = Kind::of(name).key(id);
        let def = self.db.definition(name)?;
        let model_key = key_of(&def, id);
        let (txn, own) = self.txn()?;
        txn.table(name)?.put(&whole(&def, &key, &row))?;
        own.set(model_key, Some(row));
        Ok(())
    }

    /// Inserts a row into a table whose rows the engine numbers: the number must exceed all earlier
    /// ones.
    pub fn insert(&mut self, name: &str, id: i64) -> Result<()> {
        self.statement(|actor| actor.insert_once(name, id))
    }

    fn insert_once(&mut self, name: &str, id: i64) -> Result<()> {
        let (def, model) = (self.db.definition(name)?, self.model);
        let mut row = vec![V::Int(id), V::Null, V::Int(id), V::Null];
        let (key, model_key) = (Kind::of(name).key(id), key_of(&def, id));
        let (txn, own) = self.txn()?;
        let number = txn.table(name)?.insert(&whole(&def, &key, &row))?;
        let number = number.ok_or_else(|| Error::internal("no number"))?;
        let mut model = model.lock();
        let given = model.given(model_key.0);
        assert!(number > given, "{name} gives the number {number}, behind {given}");
        model.give(model_key.0, number);
        row[N] = V::Int(number as i64);
        own.set(model_key, Some(row));
        Ok(())
    }

    /// Bulk loads new rows in key order.
    pub fn load(&mut self, name: &str, ids: std::ops::Range<i64>, len: usize) -> Result<()> {
        self.statement(|actor| actor.load_once(name, ids.clone(), len))
    }

    fn load_once(&mut self, name: &str, ids: std::ops::Range<i64>, len: usize) -> Result<()> {
        let def = self.db.definition(name)?;
        let row = |id: i64| vec![V::Int(id), V::Text("l".repeat(len)), V::Int(id)];
        let owned = |id: i64| -> Vec<Value> {
            let (key, row) = (Kind::of(name).key(id), row(id));
            whole(&def, &key, &row).into_iter().map(ValueRef::to_owned).collect()
        };
        let (txn, own) = self.txn()?;
        txn.table(name)?.bulk_load(ids.clone().map(owned))?;
        ids.for_each(|id| own.set(key_of(&def, id), Some(row(id))));
        Ok(())
    }

    /// Replaces the text of a row with one that is written as a stream.
    pub fn stream(&mut self, name: &str, id: i64, len: usize) -> Result<()> {
        self.statement(|actor| actor.stream_once(name, id, len))
    }

    fn stream_once(&mut self, name: &str, id: i64, len: usize) -> Result<()> {
        let def = self.db.definition(name)?;
        let key = Kind::of(name).key(id);
        let key: Vec<ValueRef<'_>> = key.iter().map(V::value).collect();
        let model_key = key_of(&def, id);
        let known = {
            let model = self.model.lock();
            model.row_at(model_key, model.last()).cloned()
        };
        let (txn, own) = self.txn()?;
        let table = txn.table(name)?;
        let mut stream = table.large_value()?;
        let text = "s".repeat(len);
        for piece in text.as_bytes().chunks(5_000) {
            stream.append(piece)?;
        }
        let large = vec![(key.len() + B, stream.finish()?)];
        let row = own.effects.get(&model_key).cloned().flatten().or(known);
        if table.update_large(&key, (), large)?
            && let Some(mut row) = row
        {
            row[B] = V::Text(text);
            own.set(model_key, Some(row));
        }
        Ok(())
    }

    /// Deletes a row.
    pub fn delete(&mut self, name: &str, id: i64) -> Result<()> {
        self.statement(|actor| actor.delete_once(name, id))
    }

    fn delete_once(&mut self, name: &str, id: i64) -> Result<()> {
        let key = Kind::of(name).key(id);
        let key: Vec<ValueRef<'_>> = key.iter().map(V::value).collect();
        let model_key = key_of(&*self.db.definition(name)?, id);
        let (txn, own) = self.txn()?;
        if txn.table(name)?.delete(&key)? {
            own.set(model_key, None);
        }
        Ok(())
    }

    /// Sets the savepoint "s".
    pub fn savepoint(&mut self) -> Result<()> {
        let (txn, own) = self.txn()?;
        txn.savepoint("s")?;
        let mark = own.mark();
        self.marks.push(mark);
        Ok(())
    }

    /// Rolls back to the savepoint "s".
    pub fn back(&mut self) -> Result<()> {
        let mark = self.marks.pop().unwrap_or(0);
        let (txn, own) = self.txn()?;
        txn.rollback_to("s")?;
        own.back_to(mark);
        Ok(())
    }

    /// Commits durably.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(Durability::Sync)
    }

    /// Commits with this durability.
    pub fn commit_with(&mut self, durability: Durability) -> Result<()> {
        let Some((txn, own)) = self.open.take() else { return Ok(()) };
        let cts = txn.commit_ordered()?;
        if cts.0 != 0 {
            self.model.lock().commit(cts.0, own.effects);
        }
        self.db.wait_durable(cts, durability)?;
        self.model.lock().ack_at(cts.0, durability);
        Ok(())
    }

    /// Rolls back.
    pub fn rollback(&mut self) -> Result<()> {
        match self.open.take() {
            Some((txn, _)) => txn.rollback(),
            None => Ok(()),
        }
    }

    /// Prepares for two-phase commit, durably.
    pub fn prepare(&mut self, xid: &str) -> Result<()> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// Prepares with this durability.
    pub fn prepare_with(&mut self, xid: &str, durability: Durability) -> Result<()> {
        let Some((txn, own)) = self.open.take() else { return Ok(()) };
        self.model.lock().ask(xid.as_bytes(), own.effects);
        txn.prepare_with(xid.as_bytes(), durability)?;
        self.model.lock().asked(xid.as_bytes(), durability);
        Ok(())
    }

    fn phase(&self, xid: &str, phase: Phase) -> Effects {
        let mut model = self.model.lock();
        let Some(p) = model.prepared.get_mut(xid.as_bytes()) else { return Effects::new() };
        p.phase = phase;
        p.effects.clone()
    }

    /// Commits or rolls back a prepared transaction.
    pub fn decide(&mut self, xid: &str, commit: bool) -> Result<()> {
        self.phase(xid, Phase::Asked);
        if !commit {
            let lsn = self.db.rollback_prepared_ordered(xid.as_bytes())?;
            self.db.wait_durable(lsn, Durability::Sync)?;
            self.phase(xid, Phase::RolledBack);
            return Ok(());
        }
        let cts = self.db.commit_prepared_ordered(xid.as_bytes())?;
        let effects = self.phase(xid, Phase::Committed(cts.0));
        self.model.lock().commit(cts.0, effects);
        self.db.wait_durable(cts, Durability::Sync)?;
        self.model.lock().ack(cts.0);
        Ok(())
    }
}
