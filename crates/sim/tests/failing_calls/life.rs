//! One life in which one call of the disk fails, or the disk is full from that call on. Checks the
//! error that the script gets, what can be read meanwhile, whether writes continue, and what the
//! next life finds.

use evenkeel::{Access, Code, Database, Error, Isolation, Kind};
use evenkeel_base::sync::Mutex;
use evenkeel_io::errno::{self, Fate, OsCall};
use evenkeel_io::sim::{CrashPolicy, Fault, FaultKind, SimOptions, When, catch_crash};
use evenkeel_io::{SimDisk, SimEnv};
use evenkeel_sim::actor::{Actor, open};
use evenkeel_sim::model::Model;
use evenkeel_sim::model::describe;
use evenkeel_sim::scripts::{Script, T, check_next_number, rest, verify};
use evenkeel_sim::verify::{Trouble, check_at, check_recovered};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long users' writes may be refused after there is space again, in steps of `STEP_MS`.
const STEPS: u64 = 5;
const STEP_MS: u64 = 500;
/// The greatest number of statements of a script that are refused in sequence.
const REFUSED: u64 = 60;

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failing {
    /// This call finds no space.
    Space,
    /// No block is free from this call on, until some statements have been refused.
    Full,
    /// This sync finds no space.
    Sync,
    /// This call fails with EIO.
    Error,
    /// This call fails with this error number; `errno` has the required outcome.
    Errno(i32),
}

impl Seen {
    pub fn name(self) -> &'static str {
        match self {
            Seen::OpenRefused => "open refused",
            Seen::Repeated => "repeated",
            Seen::Told => "told",
            Seen::Stopped => "stopped",
            Seen::Unnoticed => "unnoticed",
            Seen::CloseRefused => "close refused",
        }
    }
}

impl Failing {
    pub const ALL: [Failing; 5] = [
        Failing::Space,
        Failing::Full,
        Failing::Sync,
        Failing::Error,
        Failing::Errno(libc::EMFILE),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Failing::Errno(number) => {
                let row = errno::TABLE.iter().find(|(_, of, _)| *of == number);
                row.map_or("errno", |(name, ..)| name)
            }
            Failing::Space => "space",
            Failing::Full => "full",
            Failing::Sync => "sync",
            Failing::Error => "error",
        }
    }
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Calls of the script and of the close after it.
    Script,
    /// Calls of an open after a crash at the end of the script.
    Open,
    /// No call fails; a crash at this change of the disk ends the script.
    Cut,
}

/// One failing call.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub seed: u64,
    pub part: Part,
    /// `None`: nothing fails.
    pub failing: Option<Failing>,
    pub call: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.part == Part::Open { "open" } else { "script" };
        write!(f, "{part} {} {}", self.failing.map_or("nothing", Failing::name), self.call)
    }
}

/// The outcome of a failing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// The open failed with the error.
    OpenRefused,
    /// A statement was refused, and the script repeated it in its transaction when there was space.
    Repeated,
    /// The script got the error and ended; writes continued.
    Told,
    /// Writes have stopped.
    Stopped,
    /// No caller got an error, and writes continued.
    Unnoticed,
    /// The close returned the error.
    CloseRefused,
}

/// The results of a life.
pub struct Lived {
    pub seen: Option<Seen>,
    /// The disk at the end of the life, and the model of what it must hold.
    pub disk: SimDisk,
    pub model: Model,
    /// The numbers of calls when the database was open, and when the life ended.
    pub opened_at: u64,
    pub ended_at: u64,
    /// Changes of the disk.
    pub changes: u64,
    pub noted: Vec<evenkeel_io::sim::Noted>,
    /// The error that the script got.
    pub told: Option<Error>,
}

type Done<R> = Result<R, String>;

fn text(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn arm(disk: &SimDisk, case: Case) {
    use FaultKind::*;
    let kinds: &[FaultKind] = match case.failing {
        None => &[],
        Some(Failing::Full) => {
            // On some file systems names need blocks too.
            if case.call.is_multiple_of(2) {
                disk.inject(Fault::new(NoSpaceForName, When::FromCall(case.call)));
            }
            return disk.full_at(case.call);
        }
        Some(Failing::Sync) => &[NoSpaceForSync],
        Some(Failing::Space) => &[NoSpace, NoSpaceForName],
        Some(Failing::Error) => &[ReadError, WriteError, SyncError, NameError, LookError],
        Some(Failing::Errno(number)) => &OsCall::ALL.map(|call| Os(call, number)),
    };
    // The start of a thread is not a numbered call: it would fail together with the call before it.
    let kinds = kinds.iter().filter(|kind| !matches!(kind, Os(OsCall::Thread, _)));
    kinds.for_each(|kind| disk.inject(Fault::new(*kind, When::Call(case.call))));
}

fn end_of_fault(sim: &SimEnv) {
    sim.disk().clear_faults();
    sim.disk().set_capacity(None);
}

/// Runs a life of a script. The model describes the disk at its beginning.
pub fn live(script: &Script, start: &(SimDisk, Model), case: Case) -> Done<Lived> {
    let disk = start.0.crash(CrashPolicy::Killed, case.seed);
    disk.note_calls();
    arm(&disk, case);
    let sim = SimEnv::on(disk, SimOptions::new(case.seed));
    let model = Mutex::new(start.1.clone());
    if let Part::Cut = case.part {
        sim.disk().crash_at_change(case.call);
    }
    let mut life = Life { sim: &sim, script, case, model: &model, opened_at: 0, told: None };
    let run = catch_unwind(AssertUnwindSafe(|| catch_crash(|| life.live())));
    let (opened_at, told) = (life.opened_at, life.told.take());
    let ended_at = sim.disk().calls();
    let panics = sim.panics();
    end_of_fault(&sim);
    sim.disk().crash_now();
    sim.stop();
    let seen = match run {
        Err(payload) => return Err(panic_text(&*payload)),
        Ok(_) if case.part == Part::Cut => None,
        Ok(None) => return Err("the simulation ended".into()),
        Ok(Some(seen)) => seen?,
    };
    if let Some(panic) = panics.first() {
        return Err(format!("a thread panicked: {panic}"));
    }
    let (disk, noted) = (sim.disk().clone(), sim.disk().noted());
    let model = model.lock().clone();
    let changes = disk.changes();
    Ok(Lived { seen, disk, model, opened_at, ended_at, changes, noted, told })
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Runs the next life, without failures, on the files that survive a crash.
pub fn next_life(script: &Script, lived: &Lived, case: Case) -> Done<()> {
    let policies = CrashPolicy::ALL;
    let policy = policies[(case.call % policies.len() as u64) as usize];
    let disk = lived.disk.crash(policy, case.call);
    let sim = SimEnv::on(disk, SimOptions::new(case.seed));
    let mut model = lived.model.clone();
    let run = || -> Done<()> {
        let db = open(&sim, script.geometry).map_err(text("opening"))?;
        verify(&sim, script, &db, &mut model, None)?;
        check_clean(&db)?;
        check_next_number(db, model.clone()).map_err(text("numbers"))
    };
    let done = catch_unwind(AssertUnwindSafe(|| catch_crash(run)));
    sim.stop();
    let done = match done {
        Err(payload) => Err(panic_text(&*payload)),
        Ok(None) => Err("the simulation ended".into()),
        Ok(Some(done)) => done,
    };
    done.map_err(|why| format!("the next life, {policy:?}: {why}"))
}

fn check_clean(db: &Database) -> Done<()> {
    let problems = db.check().map_err(text("check"))?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("check: {problems:?}")) }
}

struct Life<'a> {
    sim: &'a SimEnv,
    script: &'a Script,
    case: Case,
    model: &'a Mutex<Model>,
    opened_at: u64,
    told: Option<Error>,
}

impl Life<'_> {
    /// Runs the life. Returns the outcome if a call failed.
    fn live(&mut self) -> Done<Option<Seen>> {
        let opened = open(self.sim, self.script.geometry);
        self.opened_at = self.sim.disk().calls();
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                self.judge("open", &error)?;
                self.told = Some(error);
                return Ok(Some(Seen::OpenRefused));
            }
        };
        if self.case.part == Part::Open || self.script.name == "killed" {
            self.recovered(&db)?;
        }
        let repeated = Cell::new(0u64);
        let when_full = |_: &Error| {
            repeated.set(repeated.get() + 1);
            if repeated.get().is_multiple_of(3) {
                end_of_fault(self.sim);
                rest(self.sim, 1_500);
            }
            repeated.get() < REFUSED
        };
        let mut actor = Actor::new(db, self.model);
        if !self.script.is_scheduled && !self.case.call.is_multiple_of(3) {
            actor.when_full = Some(&when_full);
        }
        let done = match self.case.part {
            Part::Script | Part::Cut => (self.script.body)(self.sim, &mut actor),
            Part::Open => Ok(()),
        };
        if self.case.part == Part::Cut {
            // At the latest.
            self.sim.disk().crash_now();
            return Ok(None);
        }
        if let Err(error) = &done {
            self.judge("the script", error)?;
            self.told = Some(error.clone());
        }
        actor.when_full = None;
        let seen = self.afterwards(&mut actor).map_err(|why| match &done {
            Ok(()) => why,
            Err(error) => format!("the script: {error}; then: {why}"),
        })?;
        Ok(seen.map(|seen| match seen {
            Seen::Unnoticed if repeated.get() > 0 => Seen::Repeated,
            Seen::Unnoticed if done.is_err() => Seen::Told,
            other => other,
        }))
    }

    /// Checks that an error is of the kind that belongs to the failure.
    fn judge(&self, what: &str, error: &Error) -> Done<()> {
        let fits = match self.case.failing {
            None => false,
            Some(Failing::Errno(number)) => match self.of().map(|of| errno::code(of, number)) {
                // Once writes have stopped the error says so, and never names a shortage that ends
                // by itself.
                Some(_) if matches!(error.kind(), Kind::Io | Kind::ReadOnly) => {
                    !self.is_waited_out()
                }
                code => code == Some(error.code()),
            },
            Some(Failing::Error) => matches!(error.kind(), Kind::Io | Kind::ReadOnly),
            // The error of a file that nothing depends on yet, which the engine makes again;
            // otherwise writes stop.
            Some(Failing::Sync) => {
                matches!(error.code(), Code::DiskFull | Code::WriteFailed | Code::WritesStopped)
            }
            Some(_) => error.code() == Code::DiskFull,
        };
        match fits && self.is_struck() {
            true => Ok(()),
            false => Err(format!("{what}: {error}")),
        }
    }

    /// If the changes of a statement could not be rolled back, the transaction has ended.
    fn roll_back(&self, actor: &mut Actor<'_>) -> Done<()> {
        match actor.rollback() {
            Err(error) if error.code() == Code::TransactionEnded => Ok(()),
            Err(error) => self.judge("rollback", &error),
            Ok(()) => Ok(()),
        }
    }

    /// The call that fails.
    fn of(&self) -> Option<OsCall> {
        let noted = self.sim.disk().noted();
        noted.iter().find(|noted| noted.call == self.case.call).map(|noted| noted.of)
    }

    /// True if nothing is lost and writes continue. Of a sync, only its caller knows.
    fn is_waited_out(&self) -> bool {
        match (self.case.failing, self.of()) {
            (Some(Failing::Errno(number)), Some(of)) => {
                of != OsCall::Sync && errno::fate(of, number) == Fate::WaitedOut
            }
            (failing, _) => !matches!(failing, Some(Failing::Error | Failing::Sync)),
        }
    }

    fn is_struck(&self) -> bool {
        self.sim.disk().is_disturbed()
    }

    fn recovered(&self, db: &Database) -> Done<()> {
        let mut model = self.model.lock().clone();
        // One read may fail.
        let first = check_recovered(db, &mut model);
        let again = match first {
            Err(Trouble::Error(error)) if self.judge("read", &error).is_ok() => {
                model = self.model.lock().clone();
                check_recovered(db, &mut model)
            }
            other => other,
        };
        again.map_err(|t| format!("after the open: {t:?}"))?;
        *self.model.lock() = model;
        Ok(())
    }

    fn check_rows(&self, db: &Database, when: &str) -> Done<()> {
        let read = || {
            let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
            let at = txn.take_snapshot()?.0;
            let model = self.model.lock().clone();
            check_at(&mut txn, db, &model, at.max(model.last()), false)
        };
        read().map_err(|t| format!("reads {when}: {t:?}"))
    }

    /// Checks reads, writes and the close after the script.
    fn afterwards(&self, actor: &mut Actor<'_>) -> Done<Option<Seen>> {
        let db = actor.db.clone();
        let begun = db.begin(Isolation::RepeatableRead, Access::ReadOnly);
        if begun.is_err_and(|error| error.code() == Code::DatabaseClosed) {
            return self.closed_by_script();
        }
        if !self.is_struck() {
            return self.close(&db, false);
        }
        self.check_rows(&db, "amid it")?;
        if !self.is_waited_out() {
            if db.writes_stopped() {
                let full = self.told.as_ref().filter(|error| error.code().is_shortage());
                return match full {
                    Some(error) => Err(format!("writes have stopped, and it was told: {error}")),
                    None => self.stopped(actor).map(Some),
                };
            }
            self.roll_back(actor)?;
        } else {
            // Commit and rollback succeed without space.
            match self.case.call % 2 {
                0 => actor.commit().map_err(text("commit on a full disk"))?,
                _ => actor.rollback().map_err(text("rollback on a full disk"))?,
            }
        }
        end_of_fault(self.sim);
        if self.script.is_scheduled {
            // Index builds end.
            rest(self.sim, 3_000);
        }
        self.resume(actor)?;
        self.check_rows(&db, "after it")?;
        check_clean(&db)?;
        self.close(&db, true)
    }

    /// Checks that writes continue without another open.
    fn resume(&self, actor: &mut Actor<'_>) -> Done<()> {
        let db = actor.db.clone();
        let mut last = None;
        for _ in 0..STEPS {
            match self.write(actor) {
                Ok(()) => {
                    if !self.script.is_scheduled {
                        self.settle(&db);
                    }
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
            rest(self.sim, STEP_MS);
        }
        Err(last.map_or(String::new(), |error| format!("writes do not go on: {error}")))
    }

    fn write(&self, actor: &mut Actor<'_>) -> Result<(), Error> {
        if actor.db.definition(T).is_err() {
            actor.create(T)?;
        }
        for id in 900..905 {
            if let Err(error) = actor.put(T, id, 1, 200, None) {
                actor.rollback()?;
                return Err(error);
            }
        }
        actor.commit()
    }

    /// What a refused schema change has left stays in the model from now on.
    fn settle(&self, db: &Database) {
        let mut model = self.model.lock();
        for (name, table) in model.tables.iter_mut() {
            *table = describe(db, name);
        }
    }

    /// Checks that writes have stopped: each write fails with `WritesStopped`, and none waits.
    fn stopped(&self, actor: &mut Actor<'_>) -> Done<Seen> {
        let stopped = |what: &str, done: Result<(), Error>| match done {
            Err(error) if error.code() == Code::WritesStopped => Ok(()),
            Err(error) if matches!(error.kind(), Kind::Io) => Ok(()),
            Err(error) => Err(format!("{what} after writes stopped: {error}")),
            Ok(()) => Err(format!("{what} after writes stopped")),
        };
        self.roll_back(actor)?;
        stopped("a row", actor.put(T, 900, 1, 200, None))?;
        stopped("a checkpoint", actor.db.checkpoint())?;
        self.roll_back(actor)?;
        self.check_rows(&actor.db, "when writes have stopped")?;
        stopped("a close", actor.db.clone().close())?;
        Ok(Seen::Stopped)
    }

    /// For a script that ends with the close: checks the result of that close.
    fn closed_by_script(&self) -> Done<Option<Seen>> {
        if self.told.is_some() {
            return Ok(Some(Seen::CloseRefused));
        }
        let mut model = self.model.lock();
        let last = model.last();
        model.ack(last);
        Ok(self.is_struck().then_some(Seen::Unnoticed))
    }

    fn close(&self, db: &Database, was_noticed: bool) -> Done<Option<Seen>> {
        match db.clone().close() {
            Ok(()) => {
                let mut model = self.model.lock();
                let last = model.last();
                model.ack(last);
                drop(model);
                Ok(self.is_struck().then_some(Seen::Unnoticed))
            }
            Err(error) if !was_noticed => {
                self.judge("close", &error)?;
                Ok(Some(Seen::CloseRefused))
            }
            Err(error) => Err(format!("close: {error}")),
        }
    }
}
