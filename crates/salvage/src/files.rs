//! Tables as text: SQL statements or CSV, on one stream or in a file for each table.
//!
//! A new file is never an existing one. Rows are written as they come.

use crate::definition::{Column, Definition};
use crate::sql;
use evenkeel::{Code, Error, Result, Value};
use evenkeel_format::text::plain;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of one INSERT statement, about: below MariaDB's smallest `max_allowed_packet` in use.
const STATEMENT_BYTES: usize = 512 << 10;
/// The file of foreign keys beside files of tables; no table has it (`file_name`).
const KEYS_FILE: &str = "foreign.keys.sql";

/// How to write tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CREATE TABLE and INSERT statements for MariaDB.
    Sql,
    /// A head line with the names of the columns, then one line for each row.
    Csv,
}

impl Format {
    /// The end of a file's name.
    fn ending(self) -> &'static str {
        match self {
            Format::Sql => "sql",
            Format::Csv => "csv",
        }
    }
}

/// The result of writing to a file, with its name in an error.
pub fn wrote<T>(path: &Path, done: std::io::Result<T>) -> Result<T> {
    done.map_err(|error| {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let code = if full { Code::DiskFull } else { Code::WriteFailed };
        Error::new(code).with("file", path.display()).with("why", error)
    })
}

fn csv_wrote<T>(path: &Path, done: csv::Result<T>) -> Result<T> {
    wrote(path, done.map_err(std::io::Error::from))
}

/// A new file.
///
/// # Errors
/// `WriteFailed` if it exists or cannot be made.
pub fn new_file(path: &Path) -> Result<File> {
    wrote(path, File::options().write(true).create_new(true).open(path))
}

/// The name of a table's file: its name with every character that is neither letter, digit, `_`
/// nor `-` as `%` and two hexadecimal digits for each of its bytes.
pub fn file_name(table: &str, ending: &str) -> String {
    let mut name = String::new();
    for byte in table.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    format!("{name}.{ending}")
}

/// Where tables are written.
pub struct Files<'o> {
    format: Format,
    /// The directory for a file for each table.
    to: Option<PathBuf>,
    /// The stream of all tables, or the file of the present one.
    out: Box<dyn Write + 'o>,
    /// What `out` is.
    path: PathBuf,
    /// The stream has the statements that stand before all tables.
    begun: bool,
    /// The stream is no file.
    is_unnamed: bool,
}

impl<'o> Files<'o> {
    /// All tables on one stream that is no file; `name` is for errors.
    pub fn stream(format: Format, out: Box<dyn Write + 'o>, name: &str) -> Files<'o> {
        let path = PathBuf::from(name);
        Files { format, to: None, out, path, begun: false, is_unnamed: true }
    }

    /// All tables in one new file.
    ///
    /// # Errors
    /// `WriteFailed` if it exists or cannot be made.
    pub fn file(format: Format, path: &Path) -> Result<Files<'o>> {
        let out = Box::new(BufWriter::new(new_file(path)?));
        let path = path.to_path_buf();
        Ok(Files { format, to: None, out, path, begun: false, is_unnamed: false })
    }

    /// A file for each table in a directory, which is made.
    ///
    /// # Errors
    /// Those of making it.
    pub fn directory(format: Format, to: &Path) -> Result<Files<'o>> {
        wrote(to, std::fs::create_dir_all(to))?;
        let (to, path) = (Some(to.to_path_buf()), to.to_path_buf());
        let out = Box::new(std::io::sink());
        Ok(Files { format, to, out, path, begun: false, is_unnamed: false })
    }

    /// The place of a table's rows, if it is a file of its own.
    pub fn file_of(&self, table: &str) -> Option<PathBuf> {
        self.to.as_ref().map(|to| to.join(file_name(table, self.format.ending())))
    }

    /// Where rows that were set aside go; nowhere beside a stream without a name.
    pub fn aside(&self) -> Option<PathBuf> {
        match &self.to {
            Some(to) => Some(to.join("lost_and_found.csv")),
            None => {
                let named = !self.is_unnamed;
                let mut name = self.path.file_name().filter(|_| named)?.to_os_string();
                name.push(".lost_and_found.csv");
                Some(self.path.with_file_name(name))
            }
        }
    }

    /// Begins a table.
    ///
    /// # Errors
    /// `WriteFailed` if its file exists; `ValueRange` for a default that MariaDB cannot hold; those
    /// of writing.
    pub fn begin<'f>(&'f mut self, def: &'f Definition) -> Result<Lines<'f>> {
        if let Some(path) = self.file_of(&def.name) {
            self.out = Box::new(BufWriter::new(new_file(&path)?));
            (self.path, self.begun) = (path, false);
        }
        let out: &'f mut (dyn Write + 'f) = &mut *self.out;
        let path = self.path.as_path();
        if !self.begun && self.format == Format::Sql {
            wrote(path, out.write_all(sql::BEGIN.as_bytes()))?;
        }
        self.begun = true;
        match self.format {
            Format::Sql => Inserts::begin(def, out, path).map(Lines::Sql),
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(out);
                csv_wrote(path, csv.write_record(def.live().iter().map(|c| &c.name)))?;
                Ok(Lines::Csv(Box::new(csv), path))
            }
        }
    }

    /// Writes the statements behind all tables; beside files of tables into one of their own.
    ///
    /// # Errors
    /// `WriteFailed` if that file exists; those of writing.
    pub fn end(&mut self, statements: &str) -> Result<()> {
        if self.format != Format::Sql || statements.is_empty() {
            return Ok(());
        }
        if let Some(to) = &self.to {
            let path = to.join(KEYS_FILE);
            self.out = Box::new(BufWriter::new(new_file(&path)?));
            self.path = path;
            wrote(&self.path, self.out.write_all(sql::BEGIN.as_bytes()))?;
        }
        wrote(&self.path, self.out.write_all(statements.as_bytes()))
    }

    /// Completes what was written so far.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> Result<()> {
        wrote(&self.path, self.out.flush())
    }
}

/// The rows of a table.
pub enum Lines<'f> {
    /// INSERT statements.
    Sql(Inserts<'f>),
    /// CSV.
    Csv(Box<csv::Writer<&'f mut (dyn Write + 'f)>>, &'f Path),
}

impl Lines<'_> {
    /// Adds a row.
    ///
    /// # Errors
    /// `ValueRange` for a value that the format cannot express: the row is then left out. Those of
    /// writing.
    pub fn push(&mut self, values: &[Value]) -> Result<()> {
        match self {
            Lines::Sql(inserts) => inserts.push(values),
            Lines::Csv(csv, path) => csv_wrote(path, csv.write_record(values.iter().map(field))),
        }
    }

    /// Completes the table.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(self) -> Result<()> {
        match self {
            Lines::Sql(inserts) => inserts.finish(),
            Lines::Csv(mut csv, path) => wrote(path, csv.flush()),
        }
    }
}

/// A field of CSV. NULL is `\N`, as in MariaDB's LOAD DATA; text that begins with a backslash has
/// one more.
fn field(value: &Value) -> String {
    match value {
        Value::Null => "\\N".to_string(),
        Value::Text(text) if text.starts_with('\\') => format!("\\{text}"),
        other => plain(other),
    }
}

/// The statements of one table: CREATE TABLE, then INSERTs of many rows each.
pub struct Inserts<'f> {
    columns: Vec<&'f Column>,
    begin: String,
    statement: String,
    table: &'f str,
    out: &'f mut (dyn Write + 'f),
    path: &'f Path,
}

impl<'f> Inserts<'f> {
    fn begin(
        def: &'f Definition,
        out: &'f mut (dyn Write + 'f),
        path: &'f Path,
    ) -> Result<Inserts<'f>> {
        wrote(path, out.write_all(sql::create(def)?.as_bytes()))?;
        let columns = def.live();
        let names: Vec<String> = columns.iter().map(|c| sql::quoted(&c.name)).collect();
        let (name, names) = (sql::table_name(&def.name), names.join(", "));
        let begin = format!("INSERT INTO {name} ({names}) VALUES\n");
        Ok(Inserts { columns, begin, statement: String::new(), table: &def.name, out, path })
    }

    fn push(&mut self, values: &[Value]) -> Result<()> {
        let before = self.statement.len();
        self.statement.push_str(if before == 0 { &self.begin } else { ",\n" });
        if let Err(error) = sql::row(&self.columns, values, &mut self.statement) {
            self.statement.truncate(before);
            return Err(error.with("table", self.table));
        }
        if self.statement.len() >= STATEMENT_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if self.statement.is_empty() {
            return Ok(());
        }
        self.statement.push_str(";\n");
        wrote(self.path, self.out.write_all(self.statement.as_bytes()))?;
        self.statement.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.write()
    }
}
