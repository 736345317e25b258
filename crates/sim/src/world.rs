//! The state that the sessions of one run share: the database, the model, event counts, and the
//! errors that are expected. The model is locked only between calls of the engine.

use crate::events::Events;
use crate::kind::NAMES;
use crate::model::{Model, Table, describe};
use crate::values::Sizes;
use evenkeel::{Database, Error, Kind};
use evenkeel_base::{Cause, sync::Mutex};
use evenkeel_io::{Event, SimEnv};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Long enough for a flush.
const IDLE: Duration = Duration::from_millis(20);

/// Parameters of a seed's workload. They are drawn from the seed, so that many seeds cover many
/// kinds of workloads.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of sessions.
    pub sessions: usize,
    /// Operations of each session between two opens.
    pub ops: u64,
    /// Row numbers are below this.
    pub keys: u64,
    /// Parameters for drawing values.
    pub sizes: Sizes,
    /// One step in this many is a schema change (0: none).
    pub ddl_one_in: u64,
    /// One end of a transaction in this many is a two-phase commit (0: none).
    pub xa_one_in: u64,
    /// One commit in this many does not wait for the sync (0: none).
    pub lazy_one_in: u64,
    /// About the number of statements of a transaction.
    pub statements: u64,
    /// Weight of deletes among statements.
    pub deletes: u64,
    /// Only builds, savepoints and rollbacks: one table, many partial rollbacks, no reads in
    /// transactions, and a comparison of everything after each build.
    pub builds: bool,
    /// The kinds of tables, as bits.
    pub tables: u8,
}

impl Shape {
    /// The names of its tables.
    pub fn tables(&self) -> Vec<&'static str> {
        let first = NAMES.iter().filter(|name| name.ends_with('0')).enumerate();
        first.filter(|(i, _)| self.tables >> i & 1 == 1).map(|(_, name)| *name).collect()
    }
}

/// Rows that a transaction has changed or tried to change without having committed. A READ
/// UNCOMMITTED transaction may see any value in them. Rows are identified by number, in all tables
/// together.
#[derive(Debug, Default)]
pub struct Unsure {
    /// By row, the number of open changes, and the moment of the last change or commit.
    rows: BTreeMap<i64, (u64, u64)>,
    moment: u64,
}

impl Unsure {
    /// The present moment, for later comparison.
    pub fn now(&self) -> u64 {
        self.moment
    }

    /// A transaction begins to change a row.
    pub fn touch(&mut self, id: i64) {
        self.moment += 1;
        let row = self.rows.entry(id).or_default();
        *row = (row.0 + 1, self.moment);
    }

    /// The transaction that changed this row has committed.
    pub fn commit(&mut self, id: i64) {
        self.moment += 1;
        let row = self.rows.entry(id).or_default();
        *row = (row.0.saturating_sub(1), self.moment);
    }

    /// True if a read that began at this moment may have seen any value in the row.
    pub fn since(&self, id: i64, moment: u64) -> bool {
        self.rows.get(&id).is_some_and(|row| row.0 > 0 || row.1 > moment)
    }
}

/// The state that the sessions of a run share.
pub struct World {
    /// The database; closing it takes it out.
    pub db: Database,
    /// The model.
    pub model: Arc<Mutex<Model>>,
    /// The backups of this history: a full one, and then those that each build on the one before.
    pub copies: Arc<Mutex<Vec<Arc<dyn evenkeel_io::Env>>>>,
    /// Event counts.
    pub events: Arc<Events>,
    /// The simulation.
    pub sim: SimEnv,
    /// The parameters of the workload.
    pub shape: Shape,
    /// I/O errors are being injected: the engine may stop writing.
    pub faulty: AtomicBool,
    /// The injected error is a failed sync.
    pub syncs_fail: AtomicBool,
    /// The disk is full at times.
    pub may_be_full: AtomicBool,
    /// The event to count when the engine detects the damage that the disk does in this life.
    pub damage: Option<&'static str>,
    /// Counter for the names of savepoints, XIDs and columns.
    pub counter: AtomicU64,
    /// Number of operations begun.
    pub ops: AtomicU64,
    /// Rows with uncommitted changes.
    pub unsure: Mutex<Unsure>,
}

/// The meaning of an error for the session that got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The machine has crashed.
    Crashed,
    /// The statement failed; the transaction continues.
    Statement,
    /// The transaction has ended.
    Ended,
}

impl World {
    /// Prints the text if `EVENKEEL_SIM_TRACE` is set.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        static ON: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        if *ON.get_or_init(|| std::env::var_os("EVENKEEL_SIM_TRACE").is_some()) {
            eprintln!("{}", what());
        }
    }

    /// True if the model has a table of this name.
    pub fn exists(&self, name: &str) -> bool {
        self.model.lock().tables.get(name).is_some_and(|t| t.tree != 0)
    }

    /// Records that a schema change of this table begins; false if another one is in progress.
    pub fn begin_change(&self, name: &str) -> bool {
        let mut model = self.model.lock();
        let table = model.tables.entry(name.to_string()).or_default();
        if table.is_busy {
            return false;
        }
        table.was_in_doubt = table.in_doubt;
        (table.is_busy, table.in_doubt) = (true, true);
        true
    }

    /// The schema change had no effect.
    pub fn end_change(&self, name: &str) {
        let found = describe(&self.db, name);
        let mut model = self.model.lock();
        let table = model.tables.entry(name.to_string()).or_default();
        let in_doubt = table.was_in_doubt;
        *table = Table { in_doubt, ..found };
    }

    /// Counts an operation: a statement that reads or changes, a savepoint, or a schema change; not
    /// the begin and end of a transaction.
    pub fn op(&self) {
        self.ops.fetch_add(1, Ordering::Relaxed);
    }

    /// A client that does nothing for a while in the middle of an index scan.
    pub fn idle(&self) {
        let never = Arc::new(Event::new());
        let seen = never.now();
        self.sim.env().wait(&never, seen, Some(IDLE), Cause::Idle);
        self.events.hit("index scan stopped in its middle");
    }

    /// A number that this run has not used before.
    pub fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// True if the error reports damaged files and the disk has damaged them; counts the event.
    pub fn is_damage(&self, error: &Error) -> bool {
        let struck = self.sim.disk().faults_struck() > 0;
        let Some(found) = self.damage.filter(|_| struck && error.kind() == Kind::Corrupt) else {
            return false;
        };
        self.events.hit(found);
        true
    }

    /// Judges an error that other sessions or injected faults may cause.
    ///
    /// # Panics
    /// If nothing explains the error.
    pub fn judge(&self, what: &str, error: &Error) -> Verdict {
        if self.sim.is_crashed() {
            return Verdict::Crashed;
        }
        let events = &self.events;
        let code = error.code().name();
        match error.kind() {
            Kind::Corrupt if self.is_damage(error) => Verdict::Ended,
            Kind::Deadlock => {
                events.hit("deadlock found");
                Verdict::Ended
            }
            Kind::Conflict => {
                if code == "TableTooNew" {
                    events.hit("table too young for a snapshot");
                }
                Verdict::Statement
            }
            Kind::LockTimeout => {
                events.hit(match code {
                    "TableBusy" => "table busy",
                    "LockNotAvailable" => "lock not available at once",
                    _ => "lock wait timed out",
                });
                Verdict::Statement
            }
            Kind::Full if self.may_be_full.load(Ordering::Relaxed) => {
                events.hit("write refused for want of space");
                Verdict::Statement
            }
            Kind::ReadOnly | Kind::Io if self.faulty.load(Ordering::Relaxed) => {
                events.hit(match code {
                    "WritesStopped" if self.syncs_fail.load(Ordering::Relaxed) => {
                        "failed sync latched"
                    }
                    "WritesStopped" => "writes stopped after an I/O error",
                    "ReadFailed" => "read error returned",
                    _ => "I/O error returned",
                });
                Verdict::Ended
            }
            // The undo failed, as it may on a device that fails. No event is counted: a full disk
            // alone no longer causes this.
            _ if matches!(code, "TransactionEnded" | "TxnEnded") => Verdict::Ended,
            _ if self.shape.ddl_one_in > 0
                && matches!(
                    code,
                    "TableMissing"
                        | "IndexMissing"
                        | "ColumnMissing"
                        | "WrongValueCount"
                        | "ValueType"
                        | "TreeGone"
                ) =>
            {
                events.hit("schema changed under a statement");
                Verdict::Statement
            }
            _ => panic!("{what}: {error}"),
        }
    }
}
