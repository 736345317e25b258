//! `evenkeel salvage`: saves what is left of a damaged directory, into a new database or as SQL.
//!
//! The damaged directory is only read, and never opened with the engine: every fact comes from the
//! bytes of its files (docs/format). The engine only writes the new database.

use crate::catalog::{Catalog, Known, TREE, range_text};
use crate::definition::{Decoder, Kept};
use crate::files::{Files, Format};
use crate::foreign;
use crate::leaves::KeyRange;
use crate::picture;
use crate::picture::{Found, Picture, Reason, Stored};
use crate::report::{LostRange, Report, TableReport};
use crate::source::Source;
use crate::target::{LostAndFound, Rows, Target};
use evenkeel::Value;
use evenkeel_base::{Code, Error, Result, TreeId};
use evenkeel_format::text::plain;
use evenkeel_io::{Env, OpenMode, RealEnv};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where to save to.
#[derive(Clone, Debug)]
pub enum To {
    /// A new database in this directory.
    New(PathBuf),
    /// SQL statements in this file.
    Sql(PathBuf),
}

/// Salvages a directory that no process has open.
///
/// # Errors
/// `NotADatabase` if nothing tells the database id and the page size; `DefinitionInvalid` if the
/// output exists already or lies in the directory; those of reading it at all and of writing.
pub fn salvage(dir: &Path, to: &To) -> Result<Report> {
    let (output, made) = match to {
        To::New(path) => (path, None),
        To::Sql(path) => (path, Some(path)),
    };
    let source = open(dir, Some(output))?;
    let target = match made {
        None => Target::new(output, source.geometry.page_size() as u32)?,
        Some(path) => Target::Text(Files::file(Format::Sql, path)?),
    };
    salvage_from(source, &dir.display().to_string(), target, &[])
}

/// Salvages some tables of a directory, or all if none is named, into a target, whose files lie in
/// `output`.
///
/// # Errors
/// As `salvage`; `TableMissing` for a table that the catalog does not name.
pub fn salvage_directory(
    dir: &Path,
    target: Target<'_>,
    output: Option<&Path>,
    tables: &[String],
) -> Result<Report> {
    salvage_from(open(dir, output)?, &dir.display().to_string(), target, tables)
}

/// Opens a directory for reading, unless the output would change it.
fn open(dir: &Path, output: Option<&Path>) -> Result<Source> {
    if let Some(output) = output.filter(|output| is_inside(output, dir)) {
        return Err(Error::new(Code::DefinitionInvalid)
            .with("output", output.display())
            .with("why", "it lies in the damaged directory, which salvage does not change"));
    }
    let env: Arc<dyn Env> = Arc::new(RealEnv::new(dir));
    let mode = OpenMode { lock: true, ..OpenMode::READ };
    // A directory may have lost the file of its lock.
    let lock = match env.open("evenkeel.lock", mode) {
        Err(error) if error.code() == Code::DirectoryBusy => return Err(error),
        opened => opened.ok(),
    };
    Ok(Source::open(env)?.locked_by(lock))
}

/// As `salvage`, for files of any environment.
#[cfg(test)]
pub(crate) fn salvage_into(
    env: Arc<dyn Env>,
    directory: &str,
    target: Target<'_>,
) -> Result<Report> {
    salvage_from(Source::open(env)?, directory, target, &[])
}

fn salvage_from(
    source: Source,
    directory: &str,
    mut target: Target<'_>,
    only: &[String],
) -> Result<Report> {
    let picture = Picture::read(source)?;
    let catalog = Catalog::read(&picture)?;
    let has = |name: &String| catalog.tables.iter().any(|table| table.def.name == *name);
    if let Some(missing) = only.iter().find(|name| !has(name)) {
        return Err(Error::new(Code::TableMissing).with("table", missing));
    }
    let mut report = Report::of(directory.to_string(), &picture);
    report.catalog = catalog.lost.iter().map(|lost| format!("lost {lost}")).collect();
    report.catalog.extend(catalog.problems.iter().cloned());
    if catalog.aside > 0 {
        report.catalog.push(format!("{} entries are not decided", catalog.aside));
    }
    let names: HashSet<String> = catalog.tables.iter().map(|t| t.def.name.clone()).collect();
    let mut aside = LostAndFound::of(&target, &|name| names.contains(name));
    let mut trees = BTreeSet::from([TREE]);
    for table in &catalog.tables {
        trees.extend(table.trees());
        if !only.is_empty() && !only.contains(&table.def.name) {
            continue;
        }
        let saved = save(&picture, table, &mut target, &mut aside);
        report.tables.push(saved.map_err(|e| e.with("salvaged_table", &table.def.name))?);
    }
    for tree in picture.leaves.trees() {
        if trees.contains(&tree) || !only.is_empty() {
            continue;
        }
        let mut rows = 0;
        picture.walk_unknown(tree, &mut |stored| {
            rows += 1;
            aside.push((tree.0, None), &stored, Reason::UnknownTree, None)
        })?;
        if rows > 0 {
            report.unknown.insert(tree.0, rows);
        }
    }
    report.aside_in = aside.finish()?;
    match &mut target {
        Target::New(db, _) => foreign::carry_over(db, &catalog.tables, &mut report)?,
        Target::Text(files) => files.end(&foreign::as_sql(&catalog.tables, &report))?,
    }
    target.finish()?;
    Ok(report)
}

/// True if a path lies in a directory, as far as both exist.
fn is_inside(path: &Path, dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else { return false };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let found = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    found.is_some_and(|found| found.starts_with(&dir))
}

/// One table on its way.
struct Saving<'a> {
    picture: &'a Picture,
    table: &'a Known,
    /// The tree of the table or of a chunk.
    tree: TreeId,
    decoder: Decoder,
    report: TableReport,
}

fn save(
    picture: &Picture,
    table: &Known,
    target: &mut Target<'_>,
    aside: &mut LostAndFound,
) -> Result<TableReport> {
    let def = &table.def;
    let mut report = TableReport { name: def.name.clone(), ..TableReport::default() };
    let decoder = match Decoder::new(def) {
        Ok(decoder) => decoder,
        Err(error) => {
            report.notes.push(format!("it is not made: {error}"));
            return undecodable(picture, table, report, aside);
        }
    };
    let mut rows = target.begin(def, &mut report.notes)?;
    report.is_made = true;
    let mut saving = Saving { picture, table, tree: def.entry.tree, decoder, report };
    if !table.chunks.is_empty() {
        let chunks = table.chunks.len();
        saving.report.notes.push(format!("it was cut into {chunks} chunks, and is not any more"));
    }
    for tree in table.trees() {
        saving.tree = tree;
        saving.rows(&mut rows, aside)?;
    }
    let mut report = saving.report;
    rows.finish(table.counter, &mut report.notes)?;
    Ok(report)
}

/// Sets all rows of a table aside whose definition is incomplete.
fn undecodable(
    picture: &Picture,
    table: &Known,
    mut report: TableReport,
    aside: &mut LostAndFound,
) -> Result<TableReport> {
    for tree in table.trees() {
        picture.walk(tree, &mut |found| {
            match found {
                Found::Row(stored) | Found::SetAside(stored, _) => {
                    *report.aside.entry(Reason::DefinitionLost).or_default() += 1;
                    let name = Some(table.def.name.as_str());
                    aside.push((tree.0, name), &stored, Reason::DefinitionLost, None)?;
                }
                Found::Lost(_) | Found::Superseded => {}
            }
            Ok(())
        })?;
    }
    let all = KeyRange { low: Vec::new(), high: None };
    report.lost.push(LostRange { text: "all keys".to_string(), low: all.low, high: all.high });
    Ok(report)
}

impl Known {
    /// The trees that hold its rows.
    fn trees(&self) -> Vec<TreeId> {
        std::iter::once(self.def.entry.tree).chain(self.chunks.iter().copied()).collect()
    }
}

impl Saving<'_> {
    /// The values of a row, and the weights in its key.
    fn row(&self, stored: &Stored<'_>) -> Result<(Vec<Value>, Vec<Kept>)> {
        let values = self.values(stored)?;
        let kept = self.decoder.weights(stored.key, &values)?;
        Ok((values, kept))
    }

    /// Saves the rows of the present tree.
    fn rows(&mut self, rows: &mut Rows<'_>, aside: &mut LostAndFound) -> Result<()> {
        let (picture, tree) = (self.picture, self.tree);
        picture.walk(tree, &mut |found| {
            match found {
                Found::Row(stored) => match self.row(&stored) {
                    Ok((values, kept)) => match rows.push(&values, kept)? {
                        true => self.report.rows += 1,
                        false => self.missing(&stored, Reason::Inexpressible, aside)?,
                    },
                    Err(error) if error.code() == Code::OverflowDamaged => {
                        self.missing(&stored, Reason::LongValue, aside)?;
                    }
                    Err(_) => self.missing(&stored, Reason::Undecodable, aside)?,
                },
                Found::SetAside(stored, reason) => self.aside(&stored, reason, aside)?,
                Found::Lost(keys) => self.lost(keys),
                Found::Superseded => self.report.superseded += 1,
            }
            Ok(())
        })
    }

    fn values(&self, stored: &Stored<'_>) -> Result<Vec<Value>> {
        let mut chain = |reference| self.picture.chain(self.tree, reference);
        self.decoder.values(stored.key, stored.row, &mut chain)
    }

    fn lost(&mut self, keys: KeyRange) {
        let text = range_text(&self.decoder, &keys);
        let KeyRange { low, high } = keys;
        self.report.lost.push(LostRange { text, low, high });
    }

    /// A row that belongs into the table but cannot be put there.
    fn missing(
        &mut self,
        stored: &Stored<'_>,
        reason: Reason,
        aside: &mut LostAndFound,
    ) -> Result<()> {
        self.lost(picture::only(stored.key));
        self.aside(stored, reason, aside)
    }

    fn aside(
        &mut self,
        stored: &Stored<'_>,
        reason: Reason,
        aside: &mut LostAndFound,
    ) -> Result<()> {
        *self.report.aside.entry(reason).or_default() += 1;
        let def = &self.table.def;
        let text = self.values(stored).ok().map(|values| {
            let columns = def.live();
            let pairs = columns.iter().zip(&values);
            let pairs = pairs.map(|(column, value)| format!("{} = {}", column.name, plain(value)));
            pairs.collect::<Vec<_>>().join(", ")
        });
        let place = (self.tree.0, Some(def.name.as_str()));
        aside.push(place, stored, reason, text.as_deref())
    }
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod chunks_tests;
#[cfg(test)]
#[path = "foreign_tests.rs"]
mod foreign_tests;
#[cfg(test)]
#[path = "power_loss_tests.rs"]
mod power_loss_tests;
#[cfg(test)]
#[path = "salvage_tests.rs"]
mod salvage_tests;
#[cfg(test)]
#[path = "weights_tests.rs"]
mod weights_tests;
