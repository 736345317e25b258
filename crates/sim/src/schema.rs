//! Schema changes by a session. Each marks its table in the model, so that the check after a crash
//! knows which change was interrupted.

use crate::model::{Table, describe};
use crate::run::audit;
use crate::session::{Session, Step};
use crate::values::{INDEXES, added_column, index_spec, table_spec};
use crate::world::World;
use evenkeel::{Code, Error, IndexSpec, Kind};
use std::time::Duration;

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
    /// Runs one schema change on a table that no other session is changing.
    pub fn change_schema(&mut self) -> Step {
        let world = self.world.clone();
        let names = world.shape.tables();
        let name = names[self.rng.below(names.len() as u64) as usize];
        let twin = twin_of(name);
        // A renamed table has the other name of the pair.
        let name = if world.exists(&twin) { twin } else { name.to_string() };
        if !world.begin_change(&name) {
            return Ok(());
        }
        world.op();
        let index = self.some_index_name();
        world.trace(|| format!("schema: {name}: begins, index {index}"));
        let build = |specs: &[IndexSpec]| {
            let _cut = Building(&world);
            world.db.add_indexes(&name, specs)
        };
        let db = &world.db;
        let change = match world.shape.builds {
            true => [3, 9, 10][self.rng.below(3) as usize],
            false => self.rng.below(14),
        };
        let (what, done) = match change {
            _ if !world.exists(&name) => {
                ("table created", db.create_table(&name, &table_spec(&name)))
            }
            0 => ("table dropped", db.drop_table(&name)),
            1 => ("table truncated", db.truncate(&name)),
            2 | 3 => ("index dropped", db.drop_index(&name, index)),
            4 | 5 => {
                let column = added_column(world.next(), self.rng.below(50) as i64);
                ("column added", db.add_column(&name, &column))
            }
            6 => ("column dropped", self.with_column(&name, |c| db.drop_column(&name, c))),
            7 => {
                let to = format!("y{}", world.next());
                let rename = |c: &str| db.rename_column(&name, c, &to);
                ("column renamed", self.with_column(&name, rename))
            }
            8 => return self.rename_table(&name),
            9 => {
                let both = [index_spec(index), index_spec(self.some_index_name())];
                ("two indexes built in one pass", build(&both))
            }
            _ => ("index built", build(&[index_spec(index)])),
        };
        self.schema_changed(&name, what, done)
    }

    fn some_index_name(&mut self) -> &'static str {
        // Long texts exceed the size of an index entry.
        let n = INDEXES.len() - usize::from(self.world.shape.sizes.large_one_in > 0);
        INDEXES[self.rng.below(n as u64) as usize]
    }

    /// Applies `f` to a column that was added, if there is one.
    fn with_column(
        &mut self,
        name: &str,
        f: impl FnOnce(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let columns = describe(&self.world.db, name).columns;
        let added: Vec<_> = columns.iter().filter(|c| c.1.starts_with(['x', 'y'])).collect();
        let at = self.rng.below(added.len() as u64) as usize;
        added.get(at).map_or(Err(Error::new(Code::ColumnMissing)), |c| f(&c.1))
    }

    fn rename_table(&mut self, name: &str) -> Step {
        let world = self.world.clone();
        let to = twin_of(name);
        if !world.begin_change(&to) {
            world.end_change(name);
            return Ok(());
        }
        let done = world.db.rename_table(name, &to);
        let renamed = done.is_ok();
        self.schema_changed(&to, "table renamed", done.clone())?;
        self.schema_changed(name, "table renamed away", if renamed { Ok(()) } else { done })
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
        // The log may hold an earlier change that failed, and a restart may apply it.
        let in_doubt = table.was_in_doubt && done.is_err();
        *table = Table { in_doubt, ..describe(&world.db, name) };
        drop(model);
        if world.shape.builds && done.is_ok() {
            audit(&world, Duration::ZERO);
        }
        outcome
    }
}

/// The other name of a table.
fn twin_of(name: &str) -> String {
    let (stem, number) = name.split_at(name.len() - 1);
    format!("{stem}{}", if number == "0" { "1" } else { "0" })
}
