//! `evenkeel dump`: the tables of a closed directory as SQL or CSV. The engine opens the directory
//! read-only over an overlay, so recovery runs in memory and no byte changes. With `force` the rows
//! are read as `salvage` reads them, without the engine. Memory does not grow with a table.

use crate::definition::Definition;
use crate::files::{Files, Format};
use crate::foreign_sql;
use crate::report::Report;
use crate::salvage::salvage_directory;
use crate::target::Target;
use evenkeel::{
    Access, Code, Database, Direction, Error, Isolation, Kind, Options, Range, Result, Row,
};
use std::io::Write;
use std::path::PathBuf;

/// A request.
#[derive(Clone, Debug)]
pub struct Dump {
    /// Directory of the database.
    pub dir: PathBuf,
    /// How to write tables.
    pub format: Format,
    /// Only these tables; all if there is none.
    pub tables: Vec<String>,
    /// A directory for a file for each table, instead of the stream.
    pub to: Option<PathBuf>,
}

/// A table that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// The file, if it has one of its own.
    pub file: Option<PathBuf>,
}

impl Dump {
    fn files<'o>(&self, out: &'o mut dyn Write) -> Result<Files<'o>> {
        match &self.to {
            Some(to) => Files::directory(self.format, to),
            None => Ok(Files::stream(self.format, Box::new(out), "standard output")),
        }
    }

    /// Refuses several tables as CSV on one stream.
    fn check_count(&self, tables: usize) -> Result<()> {
        if self.format == Format::Sql || self.to.is_some() || tables == 1 {
            return Ok(());
        }
        Err(Error::new(Code::DefinitionInvalid).with("tables", tables).with(
            "why",
            "CSV on standard output takes one table: name it with --table, or give --to DIR for a \
             file for each",
        ))
    }

    /// Writes the tables to `out`, or to files if there is a directory for them.
    ///
    /// # Errors
    /// Those of opening and reading the database; `TableMissing` for a table that does not exist;
    /// `ValueRange` for a value that SQL cannot express; those of writing.
    pub fn run(&self, out: &mut dyn Write) -> Result<Vec<Dumped>> {
        let options = Options { read_only: true, create: false, ..Options::default() };
        let db = Database::open_with(&self.dir, options)?;
        let mut names = db.tables();
        if !self.tables.is_empty() {
            if let Some(missing) = self.tables.iter().find(|t| !names.contains(t)) {
                return Err(Error::new(Code::TableMissing).with("table", missing));
            }
            names = self.tables.clone();
        }
        self.check_count(names.len())?;
        let mut files = self.files(out)?;
        let all =
            db.tables().iter().map(|table| db.definition(table)).collect::<Result<Vec<_>>>()?;
        let by_id = |id| all.iter().find(|def| def.id == id).cloned();
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        let (mut dumped, mut defs) = (Vec::new(), Vec::new());
        for table in names {
            let def = Definition::of(&*db.definition(&table)?, &by_id);
            let mut scan = txn.table(&table)?.scan(Range::ALL, Direction::Forward)?;
            let (mut row, mut rows) = (Row::new(), 0);
            let mut lines = files.begin(&def)?;
            while scan.next(&mut row)? {
                lines.push(&row.values()?)?;
                rows += 1;
            }
            lines.finish()?;
            files.flush()?;
            let file = files.file_of(&table);
            dumped.push(Dumped { table, rows, file });
            defs.push(def);
        }
        let written: Vec<_> = defs.iter().map(|def| (def, true)).collect();
        files.end(&foreign_sql::statements(&written))?;
        files.flush()?;
        Ok(dumped)
    }

    /// As `run`, for a damaged directory: the report says what is lost.
    ///
    /// # Errors
    /// As `salvage`; `TableMissing` for a table that the catalog does not name.
    pub fn force(&self, out: &mut dyn Write) -> Result<Report> {
        self.check_count(if self.tables.is_empty() { usize::MAX } else { self.tables.len() })?;
        let target = Target::Text(self.files(out)?);
        salvage_directory(&self.dir, target, self.to.as_deref(), &self.tables)
    }
}

/// The exit code of an error: 1 for damage, 2 if the database could not be examined.
pub fn exit_code(error: &Error) -> u8 {
    let is_damage = error.kind() == Kind::Corrupt || error.code() == Code::FileMissing;
    if is_damage { 1 } else { 2 }
}
