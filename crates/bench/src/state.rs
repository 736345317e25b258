//! The state of a load in a kept directory, so that a later run can continue it: a small JSON file
//! next to the engine's files. Row numbers are reserved before a step writes them, so that a row
//! number is never used twice, even if a run was killed.

use crate::error::BenchError;
use crate::options::Options;
use crate::sql::without_password;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "bench-state.json";

/// One client's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// The number of the next row.
    pub next: u64,
    /// Rows deleted from the low end.
    pub deleted: u64,
}

/// The state of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The engine that wrote it.
    pub engine: String,
    /// Insert patterns.
    pub patterns: String,
    /// Whether the secondary indexes exist.
    pub indexed: bool,
    /// The clients' tables.
    pub clients: Vec<Loaded>,
}

impl State {
    /// The state of an empty directory.
    pub fn new(options: &Options) -> State {
        State {
            engine: without_password(&options.engine),
            patterns: options.patterns.to_string(),
            indexed: false,
            clients: vec![Loaded::default(); options.clients],
        }
    }

    /// Reads the state of a directory that a run continues.
    ///
    /// # Errors
    /// `Usage` if there is no state or the flags do not fit it.
    pub fn read(options: &Options) -> Result<State, BenchError> {
        let path = path(&options.dir);
        let usage = |text: String| BenchError::Usage(format!("{}: {text}", options.dir.display()));
        let text = fs::read_to_string(&path)
            .map_err(|_| usage("holds no loaded tables: begin with step l.i0".into()))?;
        let state: State = serde_json::from_str(&text).map_err(|e| BenchError::file(&path, e))?;
        let fresh = State::new(options);
        if state.engine != fresh.engine {
            return Err(usage(format!("was loaded by engine {}", state.engine)));
        }
        if state.clients.len() != fresh.clients.len() {
            return Err(usage(format!("was loaded with --clients {}", state.clients.len())));
        }
        if state.patterns != fresh.patterns {
            return Err(usage(format!("was loaded with patterns {}", state.patterns)));
        }
        Ok(state)
    }

    /// Writes the state.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), BenchError> {
        let path = path(dir);
        let new = path.with_extension("new");
        let text = serde_json::to_string(self).map_err(|e| BenchError::file(&path, e))?;
        fs::write(&new, text).map_err(|e| BenchError::file(&new, e))?;
        fs::rename(&new, &path).map_err(|e| BenchError::file(&path, e))
    }

    /// The state with the row numbers of a step reserved.
    #[must_use]
    pub fn reserved(&self, rows: u64) -> State {
        let mut state = self.clone();
        for client in &mut state.clients {
            client.next += rows;
        }
        state
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// True if a directory is missing, empty, or holds a load of this benchmark.
pub fn is_ours_or_empty(dir: &Path) -> bool {
    path(dir).exists() || fs::read_dir(dir).is_ok_and(|mut d| d.next().is_none()) || !dir.exists()
}
