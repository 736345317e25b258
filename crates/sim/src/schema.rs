//! Schema changes by a session: each names the table it works on, so that its outcome can be told
//! after a crash in the midst of it.

use crate::model::Table;
use crate::run::audit;
use crate::session::{Session, Step};
use crate::values::{INDEXES, added_column, index_spec, table_spec};
use crate::world::World;
use evenkeel::{Database, Error, IndexSpec, Kind};
use std::time::Duration;

/// Tables there may be.
pub const TABLES: &[&str] = &["num0", "num1", "text0"];

/// The table as the engine has it.
pub fn describe(db: &Database, name: &str) -> Table {
    let mut table = Table::default();
    if let Ok(def) = db.definition(name) {
        table.tree = u64::from(def.entry.tree.0);
        table.indexes = def.indexes.iter().map(|i| i.name.clone()).collect();
    }
    table
}

/// A build that goes on; counts the crash that ends it.
struct Building<'a>(&'a World);

impl Drop for Building<'_> {
    fn drop(&mut self) {
        if self.0.sim.is_crashed() {
            self.0.events.hit("build cut by crash");
        }
    }
}

impl Session {
    /// Runs one schema change on a table that no other session changes now.
    pub fn change_schema(&mut self) -> Step {
        let tables = if self.world.shape.builds { 1 } else { TABLES.len() as u64 };
        let name = TABLES[self.rng.below(tables) as usize];
        let world = self.world.clone();
        let exists = {
            let mut model = world.model.lock();
            let table = model.tables.entry(name.to_string()).or_default();
            if table.is_busy {
                return Ok(());
            }
            (table.is_busy, table.in_doubt) = (true, true);
            table.tree != 0
        };
        let index = INDEXES[self.rng.below(INDEXES.len() as u64) as usize];
        let default = self.rng.below(50) as i64;
        world.trace(|| format!("schema: {name}: begins, index {index}"));
        let db = &world.db;
        world.op();
        let build = |specs: &[IndexSpec]| {
            let _cut = Building(&world);
            db.add_indexes(name, specs)
        };
        let change = match world.shape.builds {
            true => 3 + 2 * self.rng.below(3),
            false => self.rng.below(10),
        };
        let (what, done) = match change {
            _ if !exists => ("table created", db.create_table(name, &table_spec(name))),
            0 => ("table dropped", db.drop_table(name)),
            1 => ("table truncated", db.truncate(name)),
            2 | 3 => ("index dropped", db.drop_index(name, index)),
            4 => ("column added", db.add_column(name, &added_column(default))),
            5 => {
                let other = INDEXES[self.rng.below(INDEXES.len() as u64) as usize];
                let both = [index_spec(index), index_spec(other)];
                ("two indexes built in one pass", build(&both))
            }
            _ => ("index built", build(&[index_spec(index)])),
        };
        self.schema_changed(name, what, done)
    }

    fn schema_changed(&mut self, name: &str, what: &'static str, done: Result<(), Error>) -> Step {
        let world = self.world.clone();
        world.trace(|| format!("schema: {name}: {what}: {:?}", done.as_ref().err()));
        let failed = match &done {
            Ok(()) => {
                world.events.hit(what);
                false
            }
            Err(error) => match error.kind() {
                Kind::Duplicate => {
                    world.events.hit("build refused for duplicates");
                    false
                }
                Kind::NotFound | Kind::LockTimeout | Kind::Invalid => false,
                _ => true,
            },
        };
        let outcome = match &done {
            Err(error) if failed || error.kind() == Kind::LockTimeout => self.failed(what, error),
            _ => Ok(()),
        };
        let mut model = world.model.lock();
        let table = model.tables.entry(name.to_string()).or_default();
        if world.sim.is_crashed() || failed {
            table.is_busy = false;
            return outcome;
        }
        *table = describe(&world.db, name);
        drop(model);
        if world.shape.builds && done.is_ok() {
            audit(&world, Duration::ZERO);
        }
        outcome
    }
}
