//! Where salvaged rows go: a new database, or text; and the rows that are set aside, into the table
//! `lost_and_found` of the new database, or into a CSV file beside the text.

use crate::definition::{Definition, Kept};
use crate::files::{Files, Lines, new_file, wrote};
use crate::picture::{Reason, Stored};
use crate::weights::KeptWeights;
use evenkeel::{
    Access, BuildProgress, Code, ColumnSpec, ColumnType, Database, Error, IndexSpec, Isolation,
    Options, Result, TableCopy, TableSpec, Txn, Value, ValueRef,
};
use evenkeel_format::text::hex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows set aside in one transaction.
const ASIDE_ROWS: u64 = 1_000;
/// Longest text of values in `lost_and_found`, and longest key or row.
const ASIDE_BYTES: u32 = 1 << 20;

/// Where tables go.
pub enum Target<'o> {
    /// A new database.
    New(Arc<Database>, &'static KeptWeights),
    /// Text.
    Text(Files<'o>),
}

/// A table that is being written.
pub enum Rows<'a> {
    /// Into a new database.
    New {
        /// The database.
        db: Arc<Database>,
        /// Its name there.
        name: String,
        /// The rows.
        copy: Box<TableCopy>,
        /// The indexes to build behind the rows.
        indexes: Vec<IndexSpec>,
        /// Weights of the row that is written.
        weights: &'static KeptWeights,
    },
    /// As text.
    Text(Lines<'a>),
}

impl<'o> Target<'o> {
    /// A new database in a directory that does not exist or is empty.
    ///
    /// # Errors
    /// `DefinitionInvalid` if the directory is not empty; those of the database.
    pub fn new(dir: &Path, page_size: u32) -> Result<Target<'o>> {
        let mut entries = std::fs::read_dir(dir).into_iter().flatten();
        if entries.next().is_some() {
            return Err(Error::new(Code::DefinitionInvalid)
                .with("directory", dir.display())
                .with("why", "the new database needs an empty directory"));
        }
        Target::open(dir, Options { page_size: Some(page_size), ..Options::default() })
    }

    /// A new database with these options.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(dir: &Path, options: Options) -> Result<Target<'o>> {
        let weights = KeptWeights::new();
        let options = Options { collations: Some(weights), ..options };
        Ok(Target::New(Arc::new(Database::open_with(dir, options)?), weights))
    }

    /// Begins a table; notes say what differs from the original.
    ///
    /// # Errors
    /// Those of making the table.
    pub fn begin<'a>(
        &'a mut self,
        def: &'a Definition,
        notes: &mut Vec<String>,
    ) -> Result<Rows<'a>> {
        match self {
            Target::Text(files) => files.begin(def).map(Rows::Text),
            Target::New(db, weights) => {
                let weights = *weights;
                def.collations().for_each(|collation| weights.know(collation));
                let mut rebuilt = def.rebuilt();
                notes.append(&mut rebuilt.notes);
                let indexes = std::mem::take(&mut rebuilt.spec.indexes);
                db.create_table(&def.name, &rebuilt.spec)?;
                let copy = db.copy_into(&def.name, false, &BuildProgress::default())?;
                let (db, name, copy) = (db.clone(), def.name.clone(), Box::new(copy));
                Ok(Rows::New { db, name, copy, indexes, weights })
            }
        }
    }

    /// Completes the output.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(self) -> Result<()> {
        match self {
            Target::Text(mut files) => files.flush(),
            Target::New(db, _) => match Arc::try_unwrap(db) {
                Ok(db) => db.close(),
                Err(_) => Err(Error::new(Code::Internal).with("what", "the database is in use")),
            },
        }
    }
}

impl Rows<'_> {
    /// Adds a row; false if the output cannot express it. `kept`: the weights in its stored key.
    ///
    /// # Errors
    /// Those of the database and of writing.
    pub fn push(&mut self, values: &[Value], kept: Vec<Kept>) -> Result<bool> {
        match self {
            Rows::New { copy, weights, .. } => {
                weights.keep(kept);
                let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
                match copy.push(&values) {
                    Err(error) if error.code() == Code::DuplicateKey => Ok(false),
                    pushed => pushed.map(|()| true),
                }
            }
            Rows::Text(lines) => match lines.push(values) {
                Err(error) if error.code() == Code::ValueRange => Ok(false),
                pushed => pushed.map(|()| true),
            },
        }
    }

    /// Completes the table and builds its indexes; `counter` is the next auto-increment number.
    ///
    /// # Errors
    /// Those of the database and of writing.
    pub fn finish(self, counter: u64, notes: &mut Vec<String>) -> Result<()> {
        match self {
            Rows::Text(lines) => lines.finish(),
            Rows::New { db, name, mut copy, indexes, .. } => {
                match copy.finish() {
                    // Both rows are in the table.
                    Err(error) if error.code() == Code::DuplicateKey => {
                        notes.push(error.to_string());
                    }
                    finished => finished?,
                }
                drop(copy);
                for index in indexes {
                    if let Err(error) = db.add_indexes(&name, std::slice::from_ref(&index)) {
                        if error.code() != Code::DuplicateInBuild {
                            return Err(error);
                        }
                        notes.push(format!("index {} is left out: {error}", index.name));
                    }
                }
                if counter > 1 && db.definition(&name)?.entry.auto_increment.is_some() {
                    db.pass_number(&name, counter - 1)?;
                }
                Ok(())
            }
        }
    }
}

/// Where rows that were set aside go; made when the first one comes.
pub struct LostAndFound {
    place: Place,
    rows: u64,
}

enum Place {
    New {
        db: Arc<Database>,
        name: String,
        txn: Option<Txn>,
        made: bool,
    },
    Csv {
        path: PathBuf,
        file: Option<csv::Writer<File>>,
    },
    /// They are only counted.
    Nowhere,
}

/// Columns of `lost_and_found` behind its id.
const COLUMNS: [&str; 8] = ["table", "tree", "page", "lsn", "why", "values", "key", "row"];

impl LostAndFound {
    /// For a target; `is_used` tells whether a table has a name.
    pub fn of(target: &Target<'_>, is_used: &dyn Fn(&str) -> bool) -> LostAndFound {
        let place = match target {
            Target::New(db, _) => {
                let mut name = "lost_and_found".to_string();
                while is_used(&name) {
                    name.push('_');
                }
                Place::New { db: db.clone(), name, txn: None, made: false }
            }
            Target::Text(files) => match files.aside() {
                Some(path) => Place::Csv { path, file: None },
                None => Place::Nowhere,
            },
        };
        LostAndFound { place, rows: 0 }
    }

    /// Adds a row; `values` are its decoded values as text, if they decode.
    ///
    /// # Errors
    /// Those of the database and of writing.
    pub fn push(
        &mut self,
        (tree, table): (u32, Option<&str>),
        stored: &Stored<'_>,
        reason: Reason,
        values: Option<&str>,
    ) -> Result<()> {
        self.rows += 1;
        match &mut self.place {
            Place::New { db, name, txn, made } => {
                if !*made {
                    db.create_table(name, &spec())?;
                    *made = true;
                }
                let open = match txn {
                    Some(txn) => txn,
                    None => txn.insert(db.begin(Isolation::ReadCommitted, Access::ReadWrite)?),
                };
                let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
                let row = [
                    Value::Int(self.rows as i64),
                    text(table),
                    Value::UInt(u64::from(tree)),
                    Value::UInt(stored.page.0),
                    Value::UInt(stored.lsn.0),
                    text(Some(reason.text())),
                    text(values),
                    Value::Bytes(stored.key.to_vec()),
                    Value::Bytes(stored.row.to_vec()),
                ];
                let row: Vec<ValueRef<'_>> = row.iter().map(Value::as_ref).collect();
                open.table(name)?.insert(&row)?;
                if self.rows.is_multiple_of(ASIDE_ROWS)
                    && let Some(txn) = txn.take()
                {
                    txn.commit()?;
                }
            }
            Place::Csv { path, file } => {
                let told = |done: csv::Result<()>| {
                    done.map_err(|e| Error::new(Code::WriteFailed).with("why", e))
                };
                let file = match file {
                    Some(file) => file,
                    None => {
                        let writer = csv::Writer::from_writer(new_file(path)?);
                        let writer = file.insert(writer);
                        told(writer.write_record(COLUMNS))?;
                        writer
                    }
                };
                let (page, lsn) = (stored.page.0.to_string(), stored.lsn.0.to_string());
                let (tree, key, row) = (tree.to_string(), hex(stored.key), hex(stored.row));
                let (table, values) = (table.unwrap_or(""), values.unwrap_or(""));
                let record = [table, &tree, &page, &lsn, reason.text(), values, &key, &row];
                told(file.write_record(record))?;
            }
            Place::Nowhere => {}
        }
        Ok(())
    }

    /// Completes the output; says where the rows are, if there are any.
    ///
    /// # Errors
    /// Those of the database and of writing.
    pub fn finish(self) -> Result<Option<String>> {
        match self.place {
            Place::New { name, txn, made, .. } => {
                if let Some(txn) = txn {
                    txn.commit()?;
                }
                Ok(made.then(|| format!("table {name}")))
            }
            Place::Csv { path, file } => {
                let Some(mut file) = file else { return Ok(None) };
                wrote(&path, file.flush())?;
                Ok(Some(path.display().to_string()))
            }
            Place::Nowhere => Ok(None),
        }
    }
}

/// The table of rows that were set aside.
fn spec() -> TableSpec {
    let bytes = ColumnType::Bytes { max: ASIDE_BYTES };
    let text = ColumnType::Text { max: ASIDE_BYTES };
    let column = |name: &str, ty: ColumnType| ColumnSpec::new(name, ty);
    TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("table", text).nullable())
        .column(column("tree", ColumnType::UInt32))
        .column(column("page", ColumnType::UInt64))
        .column(column("lsn", ColumnType::UInt64))
        .column(column("why", text))
        .column(column("values", text).nullable())
        .column(column("key", bytes))
        .column(column("row", bytes))
        .primary_key(&["id"])
}
