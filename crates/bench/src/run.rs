//! Executes a run: opens the engine, runs the steps, writes the requested files, cleans up.

use crate::engine::Engine;
use crate::error::BenchError;
use crate::live::{HEADER, Live};
use crate::machine::Meter;
use crate::options::{Options, Step, StepKind};
use crate::pattern::NAMES;
use crate::result::{FORMAT, RunResult, StepResult};
use crate::sql::{mariadb::MariaDb, postgres::Postgres, without_password};
use crate::state::{self, Loaded, State};
use crate::step::Stage;
use crate::worker::{Pace, Progress};
use crate::{embedded, machine, null, report};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;
/// Row numbers reserved for a timed step.
const TIMED_ROWS: u64 = 1 << 36;

/// Opens an engine in the options' directory.
pub type Opener = dyn Fn(&Options) -> Result<Box<dyn Engine>, BenchError>;

/// Opens the engine that the options name.
///
/// # Errors
/// `Usage` for an unknown name, `Missing` for a server that does not answer.
pub fn open_engine(options: &Options) -> Result<Box<dyn Engine>, BenchError> {
    match options.engine.as_str() {
        "evenkeel" => embedded::open(options),
        "null" => Ok(Box::new(null::NullEngine::open(options)?)),
        url if url.starts_with("mariadb://") => Ok(Box::new(MariaDb::open(options)?)),
        url if url.starts_with("postgres://") => Ok(Box::new(Postgres::open(options)?)),
        other => Err(BenchError::Usage(format!(
            "--engine: '{other}': evenkeel, null, mariadb://... or postgres://..."
        ))),
    }
}

/// Runs the command: steps, JSON, report, exit code.
pub fn main_with(options: &Options, open: &Opener) -> ExitCode {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once.
        let shut = Arc::clone(&interrupted);
        let done = signal_hook::flag::register_conditional_shutdown(signal, 130, shut)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
        if let Err(error) = done {
            eprintln!("no clean end by Ctrl-C: {error}");
        }
    }
    let done = check_writable(options).and_then(|()| run(options, open, &interrupted));
    match done.and_then(|result| write(options, &result)) {
        Ok(()) if interrupted.load(Relaxed) => ExitCode::from(INTERRUPTED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Checks that the requested files can be written, so that an error is reported before hours of
/// work. Does not change existing files, and leaves no new ones.
fn check_writable(options: &Options) -> Result<(), BenchError> {
    for path in options.json.iter().chain(&options.report) {
        let is_new = !path.exists();
        let opened = fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|e| BenchError::file(path, e))?;
        if is_new {
            fs::remove_file(path).map_err(|e| BenchError::file(path, e))?;
        }
    }
    Ok(())
}

fn write(options: &Options, result: &RunResult) -> Result<(), BenchError> {
    if let Some(path) = &options.json {
        let text = serde_json::to_string(result).map_err(|e| BenchError::file(path, e))?;
        fs::write(path, text + "\n").map_err(|e| BenchError::file(path, e))?;
    }
    if let Some(path) = &options.report {
        fs::write(path, report::page(result)).map_err(|e| BenchError::file(path, e))?;
    }
    Ok(())
}

/// Runs the steps and returns their figures. Ends early, without error, once `interrupted` is set.
///
/// # Errors
/// `Usage` if the directory does not fit the steps, else the first error of the engine.
pub fn run(
    options: &Options,
    open: &Opener,
    interrupted: &AtomicBool,
) -> Result<RunResult, BenchError> {
    let loads = options.steps.iter().any(|step| step.kind == StepKind::Load);
    let state = if loads { fresh(options)? } else { State::read(options)? };
    let result = steps(options, open, interrupted, state);
    if options.temporary {
        let removed = fs::remove_dir_all(&options.dir);
        removed.map_err(|e| BenchError::file(&options.dir, e)).or_else(|e| match &result {
            Ok(_) => Err(e),
            Err(_) => Ok(()),
        })?;
    }
    result
}

/// Prepares an empty directory. Removes an earlier load from the default directory, but nothing
/// else.
fn fresh(options: &Options) -> Result<State, BenchError> {
    let dir = &options.dir;
    let empty = !dir.exists() || fs::read_dir(dir).is_ok_and(|mut d| d.next().is_none());
    if !empty {
        if !(options.temporary && state::is_ours_or_empty(dir)) {
            return Err(BenchError::Usage(format!(
                "{}: not empty: name another directory, or leave out step l.i0 to go on from it",
                dir.display()
            )));
        }
        fs::remove_dir_all(dir).map_err(|e| BenchError::file(dir, e))?;
    }
    fs::create_dir_all(dir).map_err(|e| BenchError::file(dir, e))?;
    Ok(State::new(options))
}

fn steps(
    options: &Options,
    open: &Opener,
    interrupted: &AtomicBool,
    mut state: State,
) -> Result<RunResult, BenchError> {
    let machine = machine::describe(&options.dir, options.direct_io)?;
    let mut live = Live::default();
    let begun = Instant::now();
    let engine = open(options)?;
    let open_ms = begun.elapsed().as_secs_f64() * 1e3;
    // Only now: an engine may require an empty directory. The file marks a directory that may be
    // removed.
    state.write(&options.dir)?;
    let version = engine.version();
    let meter = Meter::new(engine.server(), &options.dir);
    let shown = without_password(&options.engine);
    live.line(&format!("# engine {shown} {version}"));
    live.line(&format!("# patterns {}", options.patterns));
    live.line(HEADER);
    let done = all_steps(options, &*engine, &meter, interrupted, &mut state, &mut live)?;
    let engine_details = engine.details();
    let closing = Instant::now();
    engine.close()?;
    let close_ms = closing.elapsed().as_secs_f64() * 1e3;
    let mut waits = BTreeMap::new();
    for (cause, us) in done.iter().flat_map(|step| &step.waits) {
        *waits.entry(cause.clone()).or_insert(0) += us;
    }
    let patterns = NAMES.iter().zip(options.patterns.0);
    Ok(RunResult {
        format: FORMAT,
        engine: shown,
        version,
        interrupted: interrupted.load(Relaxed),
        machine,
        settings: options.settings.clone(),
        engine_details,
        patterns: patterns.map(|(name, p)| (name.to_string(), p.to_string())).collect(),
        steps: done,
        space_bytes: meter.space_bytes(),
        peak_memory_bytes: meter.peak_memory_bytes(),
        open_ms,
        close_ms,
        waits,
    })
}

fn all_steps(
    options: &Options,
    engine: &dyn Engine,
    meter: &Meter,
    interrupted: &AtomicBool,
    state: &mut State,
    live: &mut Live,
) -> Result<Vec<StepResult>, BenchError> {
    let clients: Vec<Progress> = state
        .clients
        .iter()
        .map(|c| Progress { next: AtomicU64::new(c.next), deleted: AtomicU64::new(c.deleted) })
        .collect();
    let mut done: Vec<StepResult> = Vec::new();
    for (i, step) in options.steps.iter().enumerate() {
        if interrupted.load(Relaxed) {
            break;
        }
        let steps_after = options.steps.len() - i - 1;
        let stage = Stage { engine, meter, options, clients: &clients, interrupted, steps_after };
        prepare(step, engine, options, state)?;
        let rows = if step.seconds.is_some() { TIMED_ROWS } else { step.rows };
        let mut one = |step: &Step, pace| {
            state.reserved(rows).write(&options.dir)?;
            live.line(&format!("# step {}", step.name));
            let result = stage.run(step, pace, live)?;
            live.step(&result);
            remember(state, &clients, &options.dir)?;
            Ok::<StepResult, BenchError>(result)
        };
        let result = one(step, step_pace(step))?;
        let rate = result.rows_per_s / options.clients as f64;
        done.push(result);
        if let (Some(share), false) = (step.open_loop, interrupted.load(Relaxed)) {
            let name = format!("{}@{:.0}", step.name, share * 100.0);
            let again = Step { name, ..step.clone() };
            let mut result = one(&again, Pace::Random(rate * share))?;
            result.rate_target = Some(rate * share);
            result.rate_met = result.rows_per_s >= 0.95 * rate * share * options.clients as f64;
            done.push(result);
        }
    }
    Ok(done)
}

fn prepare(
    step: &Step,
    engine: &dyn Engine,
    options: &Options,
    state: &mut State,
) -> Result<(), BenchError> {
    match step.kind {
        StepKind::Load => (0..options.clients).try_for_each(|client| engine.create_table(client)),
        StepKind::Index if state.indexed => {
            Err(BenchError::Usage("step l.x: the indexes are there already".into()))
        }
        StepKind::Index => {
            state.indexed = true;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn step_pace(step: &Step) -> Pace {
    match step.kind {
        StepKind::Query { rate } if rate > 0 => Pace::Steady(rate as f64),
        _ => Pace::Free,
    }
}

fn remember(state: &mut State, clients: &[Progress], dir: &Path) -> Result<(), BenchError> {
    for (loaded, client) in state.clients.iter_mut().zip(clients) {
        let (next, deleted) = (client.next.load(Relaxed), client.deleted.load(Relaxed));
        *loaded = Loaded { next, deleted };
    }
    state.write(dir)
}
