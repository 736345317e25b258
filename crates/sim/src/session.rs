//! A session: a simulated thread that runs random transactions and compares every result with the
//! model. `change` has the statements that change rows, `look` those that read, `schema` the schema
//! changes.

use crate::model::{Own, Phase};
use crate::world::{Verdict, World};
use evenkeel::{Access, Durability, Error, Isolation, TableDef, Txn};
use evenkeel_io::Rng;
use std::sync::Arc;

/// An open transaction and its state in the model.
pub struct Open {
    /// The engine's transaction.
    pub txn: Txn,
    /// Its changes.
    pub own: Own,
    /// Its isolation level.
    pub level: Isolation,
    /// Its snapshot, once it has one.
    pub at: Option<u64>,
    savepoints: Vec<(String, usize)>,
    /// Rows that it has tried to change.
    touched: Vec<i64>,
    /// Identifies the transaction in a trace.
    pub number: u64,
}

/// After this many steps a session checks the engine's state in memory.
const CHECK_EVERY: u64 = 40;

/// A session.
pub struct Session {
    /// Shared with the others.
    pub world: Arc<World>,
    /// Its own random number generator.
    pub rng: Rng,
    open: Option<Open>,
}

/// Outcome of a step: continue, or the machine has crashed.
pub type Step = Result<(), Crashed>;

/// The machine has crashed: the session is over.
#[derive(Clone, Copy, Debug)]
pub struct Crashed;

impl Session {
    /// A session with its own seed.
    pub fn new(world: Arc<World>, seed: u64) -> Session {
        Session { world, rng: Rng::new(seed), open: None }
    }

    /// Runs all operations of the session.
    pub fn run(mut self) {
        for n in 1..=self.world.shape.ops {
            if self.world.sim.is_crashed() || self.step().is_err() {
                return;
            }
            if n % CHECK_EVERY == 0 {
                self.world.db.check_invariants();
            }
        }
        let _ = self.end_rollback();
    }

    fn step(&mut self) -> Step {
        let shape = self.world.shape;
        let Some(open) = self.open.take() else {
            if self.rng.one_in(shape.ddl_one_in) {
                return self.change_schema();
            }
            if self.rng.one_in(60) {
                return self.checkpoint();
            }
            if !self.world.model.lock().prepared.is_empty() && self.rng.one_in(6) {
                return self.finish_prepared();
            }
            return self.begin();
        };
        self.open = Some(open);
        if shape.builds {
            return match self.rng.below(2 * shape.statements + 2) {
                0 => self.end(),
                n if n <= shape.statements => self.savepoint_step(),
                _ => self.change(),
            };
        }
        match self.rng.below(2 * shape.statements + 2) {
            0 => self.end(),
            1 if self.rng.one_in(2) => self.savepoint_step(),
            n if n % 2 == 0 => self.change(),
            _ => self.look(),
        }
    }

    /// Runs one of the administrative calls that the owner of an open database may make.
    fn checkpoint(&mut self) -> Step {
        if self.rng.one_in(2) {
            let size = 1 << (20 + self.rng.below(4));
            return match self.world.db.set("log_size", size) {
                Ok(()) => {
                    self.world.events.hit("log size changed");
                    Ok(())
                }
                Err(error) => self.failed("log_size", &error),
            };
        }
        if self.rng.one_in(3) {
            return self.back_up();
        }
        match self.world.db.checkpoint() {
            Ok(()) => {
                self.world.events.hit("checkpoint asked for");
                Ok(())
            }
            Err(error) => self.failed("checkpoint", &error),
        }
    }

    fn begin(&mut self) -> Step {
        let level = match self.rng.below(12) {
            0 => Isolation::ReadUncommitted,
            1..=4 => Isolation::ReadCommitted,
            5 | 6 => Isolation::Serializable,
            _ => Isolation::RepeatableRead,
        };
        match self.world.db.begin(level, Access::ReadWrite) {
            Ok(txn) => {
                let (own, at) = (Own::default(), None);
                let (number, savepoints) = (self.world.next(), Vec::new());
                let touched = Vec::new();
                let open = Open { txn, own, level, at, savepoints, touched, number };
                self.open = Some(open);
                Ok(())
            }
            Err(error) => self.failed("begin", &error),
        }
    }

    /// The open transaction.
    pub fn open(&mut self) -> &mut Open {
        self.open.as_mut().expect("a transaction is open")
    }

    /// True if a transaction is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Notes that a statement is about to change a row.
    pub fn touch(&mut self, id: i64) {
        self.world.unsure.lock().touch(id);
        self.open().touched.push(id);
    }

    /// Handles an error of a statement.
    pub fn failed(&mut self, what: &str, error: &Error) -> Step {
        match self.world.judge(what, error) {
            Verdict::Crashed => Err(Crashed),
            Verdict::Ended => {
                let number = self.open.as_ref().map_or(0, |o| o.number);
                self.world.trace(|| format!("txn {number}: {what} ended it: {error}"));
                self.open = None;
                Ok(())
            }
            Verdict::Statement if self.open.is_some() && self.rng.one_in(2) => self.end_rollback(),
            Verdict::Statement => Ok(()),
        }
    }

    /// Takes the snapshot of a transaction whose level has one, before a plain read.
    pub fn snapshot(&mut self) -> Result<Option<u64>, Error> {
        let newest = self.world.model.lock().last();
        let open = self.open();
        if open.level != Isolation::RepeatableRead {
            return Ok(None);
        }
        let at = open.txn.take_snapshot()?.0;
        match open.at {
            Some(before) => assert!(before == at, "the snapshot moved from {before} to {at}"),
            None => assert!(at >= newest, "a snapshot at {at} misses the commit at {newest}"),
        }
        open.at = Some(at);
        Ok(Some(at))
    }

    /// The definition of a table that exists now, drawn from the model.
    pub fn some_table(&mut self) -> Option<(String, Arc<TableDef>)> {
        let names: Vec<String> = {
            let model = self.world.model.lock();
            model.tables.iter().filter(|(_, t)| t.tree != 0).map(|(n, _)| n.clone()).collect()
        };
        let names = if self.world.shape.builds { &names[..names.len().min(1)] } else { &names[..] };
        let at = self.rng.below(names.len() as u64) as usize;
        let name = names.get(at)?.clone();
        let def = self.world.db.definition(&name).ok()?;
        Some((name, def))
    }

    fn end(&mut self) -> Step {
        let shape = self.world.shape;
        let ends = if shape.builds { 3 } else { 8 };
        match self.rng.below(ends) {
            0 => self.end_rollback(),
            _ if self.rng.one_in(shape.xa_one_in) => self.end_prepare(),
            _ => self.end_commit(),
        }
    }

    /// Draws the durability of a commit or a prepare.
    fn durability(&mut self) -> Durability {
        let lazy = self.rng.one_in(self.world.shape.lazy_one_in);
        let lazy_mode = if self.rng.one_in(2) { Durability::Lazy } else { Durability::Write };
        if lazy { lazy_mode } else { Durability::Sync }
    }

    fn end_commit(&mut self) -> Step {
        let Some(open) = self.open.take() else { return Ok(()) };
        let durability = self.durability();
        let Open { txn, own, number, touched, .. } = open;
        let cts = match txn.commit_ordered() {
            Ok(cts) => cts,
            Err(error) => return self.failed("commit", &error),
        };
        {
            let mut model = self.world.model.lock();
            if cts.0 == 0 {
                let nothing = model.changes_nothing(&own.effects);
                assert!(nothing, "commit says that nothing changed, but rows have");
            } else {
                model.commit(cts.0, own.effects);
            }
            let mut unsure = self.world.unsure.lock();
            touched.iter().for_each(|id| unsure.commit(*id));
        }
        self.world.trace(|| format!("txn {number}: committed at {}", cts.0));
        if cts.0 == 0 {
            return Ok(());
        }
        if let Err(error) = self.world.db.wait_durable(cts, durability) {
            self.world.events.hit("commit in doubt");
            return self.failed("wait for a commit", &error);
        }
        self.world.model.lock().ack_at(cts.0, durability);
        if durability != Durability::Sync {
            self.world.events.hit("commit without waiting for the sync");
        }
        Ok(())
    }

    /// Rolls the open transaction back, if there is one.
    pub fn end_rollback(&mut self) -> Step {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.world.trace(|| format!("txn {}: rolled back", open.number));
        if !open.own.effects.is_empty() {
            self.world.events.hit("transaction rolled back");
        }
        if self.rng.one_in(4) {
            drop(open);
            return Ok(());
        }
        match open.txn.rollback() {
            Ok(()) => Ok(()),
            Err(error) => self.failed("rollback", &error),
        }
    }

    fn end_prepare(&mut self) -> Step {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Open { txn, own, number, .. } = open;
        if own.effects.is_empty() {
            return Ok(());
        }
        let xid = format!("xa-{}", self.world.next()).into_bytes();
        self.world.trace(|| format!("txn {number}: prepares {}", xid.escape_ascii()));
        self.world.model.lock().ask(&xid, own.effects);
        let durability = self.durability();
        match txn.prepare_with(&xid, durability) {
            Ok(_) => {
                self.world.events.hit("transaction prepared");
                if durability != Durability::Sync {
                    self.world.events.hit("prepared without waiting for the sync");
                }
                let here = self.world.db.prepared().contains(&xid);
                let mut model = self.world.model.lock();
                if here {
                    model.asked(&xid, durability);
                } else {
                    let gone = model.prepared.remove(&xid);
                    let nothing = gone.is_some_and(|p| model.changes_nothing(&p.effects));
                    assert!(nothing, "a transaction with changes was prepared and is gone");
                }
                Ok(())
            }
            Err(error) => self.failed("prepare", &error),
        }
    }

    fn finish_prepared(&mut self) -> Step {
        let (xid, prepared) = {
            let mut model = self.world.model.lock();
            let sure = model.prepared.iter_mut().find(|(_, p)| p.phase == Phase::Sure);
            let Some((xid, prepared)) = sure else { return Ok(()) };
            prepared.phase = Phase::Asked;
            (xid.clone(), prepared.clone())
        };
        let set = |phase: Phase| {
            if let Some(p) = self.world.model.lock().prepared.get_mut(&xid) {
                p.phase = phase;
            }
        };
        if self.rng.one_in(2) {
            let db = &self.world.db;
            let rolled_back = db.rollback_prepared_ordered(&xid);
            return match rolled_back.and_then(|lsn| db.wait_durable(lsn, Durability::Sync)) {
                Ok(()) => {
                    self.world.events.hit("prepared transaction rolled back");
                    set(Phase::RolledBack);
                    Ok(())
                }
                Err(error) => self.failed("roll a prepared transaction back", &error),
            };
        }
        let cts = match self.world.db.commit_prepared_ordered(&xid) {
            Ok(cts) => cts,
            Err(error) => return self.failed("commit a prepared transaction", &error),
        };
        set(Phase::Committed(cts.0));
        self.world.model.lock().commit(cts.0, prepared.effects);
        self.world.events.hit("prepared transaction committed");
        match self.world.db.wait_durable(cts, Durability::Sync) {
            Ok(()) => {
                self.world.model.lock().ack(cts.0);
                Ok(())
            }
            Err(error) => self.failed("wait for a prepared commit", &error),
        }
    }

    fn savepoint_step(&mut self) -> Step {
        let names = if self.world.shape.builds { 2 } else { 4 };
        let name = format!("s{}", self.rng.below(names));
        let back = self.rng.one_in(2);
        let world = self.world.clone();
        let open = self.open();
        if !back {
            world.op();
            open.savepoints.retain(|(n, _)| *n != name);
            open.savepoints.push((name.clone(), open.own.mark()));
            return match open.txn.savepoint(&name) {
                Ok(()) => Ok(()),
                Err(error) => self.failed("savepoint", &error),
            };
        }
        let Some(at) = open.savepoints.iter().position(|(n, _)| *n == name) else { return Ok(()) };
        open.savepoints.truncate(at + 1);
        let mark = open.savepoints[at].1;
        world.op();
        match open.txn.rollback_to(&name) {
            Ok(()) => {
                open.own.back_to(mark);
                let number = open.number;
                self.world.trace(|| format!("txn {number}: back to a savepoint"));
                self.world.events.hit("rolled back to a savepoint");
                Ok(())
            }
            Err(error) => self.failed("rollback to a savepoint", &error),
        }
    }
}
