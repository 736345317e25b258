//! Changes of tables, of all partitions of a table as one: indexes are built while others write,
//! and then one change applies columns and names.

use crate::database::{
    EK_NULLABLE, EkColumn, EkDatabase, EkIndex, EkPart, EkSchemaWait, milliseconds, waiting,
};
use crate::value::{EkBytes, EkError, EkValue, catch, fence, slice};
use evenkeel::{
    BuildPhase, BuildProgress, Code, ColumnSpec, Database, Error, IndexSpec, PROVISIONAL, PartSpec,
    Result, TableChange, TableDef, TableRename, Value, ValueRef,
};
use std::ffi::c_void;
use std::time::Duration;

/// Progress of an index build, and a handle to cancel it.
pub struct EkBuild(BuildProgress);

impl EkBuild {
    /// The progress record of the build.
    pub(crate) fn progress(&self) -> &BuildProgress {
        &self.0
    }
}

/// Makes the record of a build, which waits `wait_ms` for each transaction in its way; free it with
/// `ek_build_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ek_build_new(wait_ms: u64) -> *mut EkBuild {
    catch(std::ptr::null_mut(), || {
        let progress = BuildProgress::default();
        progress.set_lock_wait(Duration::from_millis(wait_ms));
        Box::into_raw(Box::new(EkBuild(progress)))
    })
}

/// Frees the record of a build that has ended.
///
/// # Safety
/// `build` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_build_free(build: *mut EkBuild) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(build) }));
}

/// Cancels a build, from any thread.
///
/// # Safety
/// `build` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_build_cancel(build: *const EkBuild) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*build).0.cancel() });
}

/// The progress of a build.
#[repr(C)]
pub struct EkBuildFigures {
    /// 0 not begun, 1 waiting for transactions, 2 reading the table, 3 writing runs, 4 proving
    /// uniqueness, 5 done.
    pub phase: i32,
    /// Millionths of the work that are done; never decreases.
    pub done_ppm: u32,
    /// Rows read.
    pub rows_done: u64,
    /// Rows whose entries are written.
    pub rows_written: u64,
    /// Rows of the tables, estimated.
    pub rows_total: u64,
    /// Estimated seconds left, `EK_UNKNOWN_S` if unknown.
    pub left_s: u64,
}

/// The time left is unknown.
pub const EK_UNKNOWN_S: u64 = u64::MAX;

/// Reads the progress of a build. From any thread.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_build_progress(build: *const EkBuild, to: *mut EkBuildFigures) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        let progress = &(*build).0;
        *to = EkBuildFigures {
            phase: progress.phase() as i32,
            done_ppm: (progress.share() * 1e6) as u32,
            rows_done: progress.rows_done(),
            rows_written: progress.rows_written(),
            rows_total: progress.rows_total(),
            left_s: progress.time_left().map_or(EK_UNKNOWN_S, |left| left.as_secs()),
        };
    });
}

/// Waits at most `ms` until a build is in a phase other than `known`; returns the phase.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_build_wait(
    db: *const EkDatabase,
    build: *const EkBuild,
    known: i32,
    ms: u64,
) -> i32 {
    // SAFETY: by contract of the caller.
    catch(BuildPhase::Done as i32, || unsafe {
        let progress = &(*build).0;
        let phase = match progress.phase() {
            phase if phase as i32 == known => (*db).0.wait_build(progress, phase, milliseconds(ms)),
            phase => phase,
        };
        phase as i32
    })
}

/// A table and the clustered key of a row of it.
pub type EkEachRow = unsafe extern "C" fn(*mut c_void, EkBytes, EkBytes);

/// Calls `each` with the table and the clustered key of a row that has the unique key of another
/// row, if the build failed for that reason.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_build_duplicate(
    build: *const EkBuild,
    context: *mut c_void,
    each: EkEachRow,
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        let (table, key) = ((*build).0.duplicate_in(), (*build).0.duplicate());
        if !key.is_empty() {
            each(context, EkBytes::of(table.as_bytes()), EkBytes::of(&key));
        }
    });
}

unsafe fn index_spec(index: &EkIndex, def: &TableDef) -> Result<IndexSpec> {
    let live = def.live_columns();
    // SAFETY: by contract of the caller.
    let (parts, name) = unsafe { (slice(index.parts, index.parts_len), index.name.text()?) };
    let part = |part: &EkPart| {
        let column = live.get(usize::from(part.column));
        let column =
            column.ok_or_else(|| Error::new(Code::ColumnMissing).with("position", part.column))?;
        Ok(PartSpec {
            column: column.name.clone(),
            desc: part.desc != 0,
            prefix: part.prefix,
            collation: part.collation,
        })
    };
    Ok(IndexSpec {
        name: format!("{PROVISIONAL}{name}"),
        parts: parts.iter().map(part).collect::<Result<_>>()?,
        unique: index.unique != 0,
    })
}

/// What stands before the name of an index that is being built ([`PROVISIONAL`]).
#[unsafe(no_mangle)]
pub extern "C" fn ek_provisional() -> EkBytes {
    const BYTES: [u8; PROVISIONAL.len_utf8()] = {
        let mut bytes = [0; PROVISIONAL.len_utf8()];
        PROVISIONAL.encode_utf8(&mut bytes);
        bytes
    };
    static TEXT: [u8; BYTES.len()] = BYTES;
    catch(EkBytes::NONE, || EkBytes { ptr: TEXT.as_ptr(), len: TEXT.len() })
}

/// The indexes that a table gets.
#[repr(C)]
pub struct EkNewIndexes {
    /// The table.
    pub table: EkBytes,
    /// The indexes; their parts name columns by position in the table.
    pub indexes: *const EkIndex,
    /// How many.
    pub indexes_len: usize,
}

unsafe fn index_specs<'a>(
    db: &Database,
    given: &EkNewIndexes,
) -> Result<(&'a str, Vec<IndexSpec>)> {
    // SAFETY: by contract of the caller.
    unsafe {
        let table = given.table.text()?;
        let def = db.definition(table)?;
        let indexes = slice(given.indexes, given.indexes_len).iter();
        let specs: Vec<_> = indexes.map(|index| index_spec(index, &def)).collect::<Result<_>>()?;
        // An index that could not be removed would block this name until a restart.
        drop_provisional(db, table, |name| specs.iter().any(|s| s.name == name))?;
        Ok((table, specs))
    }
}

/// Builds indexes of tables while others read and write: for all tables or for none. Each index has
/// its name with the prefix `PROVISIONAL` until `ek_alter_tables` renames it; `ek_forget_alters`
/// removes the remains of a crash. 0, or -1 on error, and then nothing remains.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_add_indexes(
    db: *const EkDatabase,
    tables: *const EkNewIndexes,
    tables_len: usize,
    build: *const EkBuild,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        let added = fence(error, -1, || {
            let db = &(*db).0;
            let given = slice(tables, tables_len).iter().map(|given| index_specs(db, given));
            let specs = given.collect::<Result<Vec<_>>>()?;
            let tables: Vec<_> = specs.iter().map(|(t, specs)| (*t, specs.as_slice())).collect();
            db.add_indexes_to(&tables, &(*build).0).map(|()| 0)
        });
        // Also if the build never began, because another thread waits for its end.
        (*build).0.end();
        added
    }
}

fn drop_provisional(db: &Database, table: &str, which: impl Fn(&str) -> bool) -> Result<()> {
    let def = db.definition(table)?;
    let names = def.indexes.iter().map(|i| i.name.clone());
    let drop_indexes: Vec<_> = names.filter(|n| n.starts_with(PROVISIONAL) && which(n)).collect();
    if drop_indexes.is_empty() {
        return Ok(());
    }
    log::info!("table {table}: indexes of an ALTER that did not end are dropped");
    db.alter_table(table, &TableChange { drop_indexes, ..TableChange::default() })
}

/// Drops provisional indexes that a crash left in any table, and forgets the marks of changes; 0,
/// or -1 with the first error, which does not stop the work on other tables.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_forget_alters(db: *const EkDatabase, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let db = &(*db).0;
            let mut done = Ok(0);
            for table in db.tables() {
                let forgot = drop_provisional(db, &table, |_| true);
                let forgot = forgot.and_then(|()| db.forget_mark(&table));
                done = done.and(forgot.map(|()| 0));
            }
            done
        })
    }
}

/// A pair of names.
#[repr(C)]
pub struct EkRename {
    /// Before.
    pub from: EkBytes,
    /// After.
    pub to: EkBytes,
}

/// A column whose greatest length grows.
#[repr(C)]
pub struct EkWiden {
    /// Its name after the change.
    pub name: EkBytes,
    /// Its greatest length in bytes from now on.
    pub max: u32,
}

/// A column to be added at the end.
#[repr(C)]
pub struct EkNewColumn {
    /// The column; `EK_AUTO_INCREMENT` is not allowed here.
    pub column: EkColumn,
    /// The value that existing rows show.
    pub value: EkValue,
}

/// A change of a table.
#[repr(C)]
pub struct EkChange {
    /// The table.
    pub table: EkBytes,
    /// Indexes to drop.
    pub drop_indexes: *const EkBytes,
    /// How many.
    pub drop_indexes_len: usize,
    /// Indexes to rename.
    pub rename_indexes: *const EkRename,
    /// How many.
    pub rename_indexes_len: usize,
    /// Columns to drop.
    pub drop_columns: *const EkBytes,
    /// How many.
    pub drop_columns_len: usize,
    /// Columns to rename.
    pub rename_columns: *const EkRename,
    /// How many.
    pub rename_columns_len: usize,
    /// Columns to widen.
    pub widen_columns: *const EkWiden,
    /// How many.
    pub widen_columns_len: usize,
    /// Columns to add.
    pub add_columns: *const EkNewColumn,
    /// How many.
    pub add_columns_len: usize,
    /// Foreign keys of the table to drop.
    pub drop_foreign_keys: *const EkBytes,
    /// How many.
    pub drop_foreign_keys_len: usize,
    /// Foreign keys that were proved (`ek_prove_foreign_keys`) and become permanent.
    pub add_foreign_keys: *const EkBytes,
    /// How many.
    pub add_foreign_keys_len: usize,
}

/// The position of a column in a table: to the server, names that differ only in case are equal.
fn place_of(def: &TableDef, name: &str) -> Option<usize> {
    let live = def.live_columns();
    let exact = live.iter().position(|c| c.name == name);
    let other = || live.iter().position(|c| c.name.to_lowercase() == name.to_lowercase());
    exact.or_else(other)
}

unsafe fn names(ptr: *const EkBytes, len: usize) -> Result<Vec<String>> {
    // SAFETY: by contract of the caller.
    unsafe { slice(ptr, len).iter().map(|name| Ok(name.text()?.to_string())).collect() }
}

unsafe fn renames(ptr: *const EkRename, len: usize) -> Result<Vec<(String, String)>> {
    // SAFETY: by contract of the caller.
    unsafe {
        let pair = |r: &EkRename| Ok((r.from.text()?.to_string(), r.to.text()?.to_string()));
        slice(ptr, len).iter().map(pair).collect()
    }
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Int(i) => Value::Int(i),
        ValueRef::UInt(u) => Value::UInt(u),
        ValueRef::Float(f) => Value::Float(f),
        ValueRef::Bytes(b) => Value::Bytes(b.to_vec()),
        _ => Value::Null,
    }
}

unsafe fn new_column(new: &EkNewColumn) -> Result<ColumnSpec> {
    // SAFETY: by contract of the caller.
    let (mut spec, value) = unsafe { (new.column.spec()?, owned(new.value.get())) };
    spec.default = Some(value).filter(|v| !matches!(v, Value::Null));
    Ok(spec)
}

/// The given change, with columns spelled as in the table.
unsafe fn table_change(given: &EkChange, def: &TableDef) -> Result<TableChange> {
    let spelled = |name: &mut String| {
        if let Some(at) = place_of(def, name) {
            name.clone_from(&def.live_columns()[at].name);
        }
    };
    // SAFETY: by contract of the caller.
    unsafe {
        let mut change = TableChange {
            drop_foreign_keys: names(given.drop_foreign_keys, given.drop_foreign_keys_len)?,
            add_foreign_keys: names(given.add_foreign_keys, given.add_foreign_keys_len)?,
            drop_indexes: names(given.drop_indexes, given.drop_indexes_len)?,
            rename_indexes: renames(given.rename_indexes, given.rename_indexes_len)?,
            drop_columns: names(given.drop_columns, given.drop_columns_len)?,
            rename_columns: renames(given.rename_columns, given.rename_columns_len)?,
            ..TableChange::default()
        };
        change.drop_columns.iter_mut().for_each(spelled);
        change.rename_columns.iter_mut().for_each(|(from, _)| spelled(from));
        for column in slice(given.widen_columns, given.widen_columns_len) {
            let mut name = column.name.text()?.to_string();
            if change.rename_columns.iter().all(|(_, to)| *to != name) {
                spelled(&mut name);
            }
            change.widen_columns.push((name, column.max));
        }
        for column in slice(given.add_columns, given.add_columns_len) {
            change.add_columns.push(new_column(column)?);
        }
        Ok(change)
    }
}

/// Changes tables as one, all or nothing, without rewriting rows; 0, or -1 on error. The first
/// table is marked with `mark`, if that is not 0: `ek_table_figures` returns the mark until
/// `ek_forget_mark`. `wait` may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_alter_tables(
    db: *const EkDatabase,
    changes: *const EkChange,
    changes_len: usize,
    mark: u64,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let db = &(*db).0;
            let mut changed = Vec::new();
            for given in slice(changes, changes_len) {
                let table = given.table.text()?;
                let def = db.definition(table)?;
                changed.push((table, table_change(given, &def)?));
            }
            if let Some((_, first)) = changed.first_mut() {
                first.mark = mark;
            }
            let changes: Vec<_> = changed.iter().map(|(table, change)| (*table, change)).collect();
            waiting(wait, |how| db.alter_tables(&changes, how)).map(|()| 0)
        })
    }
}

/// Renames a table; 0, or -1 on error. Foreign keys to a table `replaced`, if there is one, refer
/// to the renamed table from then on; `foreign_keys` gives keys of the table new names. `wait` may
/// be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_rename_table(
    db: *const EkDatabase,
    from: EkBytes,
    to: EkBytes,
    replaced: EkBytes,
    foreign_keys: *const EkRename,
    foreign_keys_len: usize,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let (from, to, replaced) = (from.text()?, to.text()?, replaced.text()?);
            let replaced = Some(replaced).filter(|name| !name.is_empty());
            let foreign_keys = &renames(foreign_keys, foreign_keys_len)?;
            let given = TableRename { from, to, replaced, foreign_keys };
            waiting(wait, |how| (*db).0.rename_table_as(&given, how)).map(|()| 0)
        })
    }
}

/// Waits until no transaction uses a table; 0, or -1 on error. `wait` may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_wait_unused(
    db: *const EkDatabase,
    table: EkBytes,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let name = table.text()?;
            waiting(wait, |how| (*db).0.wait_unused(name, how)).map(|()| 0)
        })
    }
}

/// Waits until every transaction that may have changed a table by now has ended; 0, or -1 on error.
/// `wait` may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_wait_unchanged(
    db: *const EkDatabase,
    table: EkBytes,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let name = table.text()?;
            waiting(wait, |how| (*db).0.wait_unchanged(name, how)).map(|()| 0)
        })
    }
}

/// Forgets the mark of a table's last change; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_forget_mark(
    db: *const EkDatabase,
    table: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.forget_mark(table.text()?).map(|()| 0)) }
}

/// 1 if these columns of a table may grow to these lengths without its rows being rewritten, else
/// 0; -1 if there is no such table or column.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_may_widen(
    db: *const EkDatabase,
    table: EkBytes,
    columns: *const EkWiden,
    columns_len: usize,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), -1, || {
            let def = (*db).0.definition(table.text()?)?;
            let mut widened = Vec::new();
            for column in slice(columns, columns_len) {
                let Some(at) = place_of(&def, column.name.text()?) else { return Ok(-1) };
                widened.push((def.live_columns()[at].name.clone(), column.max));
            }
            Ok(i32::from((*db).0.may_widen(table.text()?, &widened)?))
        })
    }
}

/// The position of a column among the columns of a table, -1 if there is none; its type and
/// flags through `to`, its name left out.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_column_of(
    db: *const EkDatabase,
    table: EkBytes,
    column: EkBytes,
    to: *mut EkColumn,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), -1, || {
            let def = (*db).0.definition(table.text()?)?;
            let Some(at) = place_of(&def, column.text()?) else { return Ok(-1) };
            let column = def.live_columns()[at];
            let (type_code, a, b) = column.entry.ty.to_code();
            let flags = if column.entry.nullable { EK_NULLABLE } else { 0 };
            *to = EkColumn { name: EkBytes::NONE, type_code, flags, a, b };
            Ok(at as i32)
        })
    }
}

/// The position of an index among those of a table (the primary key first, if rows are not in its
/// order), which is the order in which unique indexes are checked; -1 if there is none.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_index_place(
    db: *const EkDatabase,
    table: EkBytes,
    index: EkBytes,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), -1, || {
            let (def, name) = ((*db).0.definition(table.text()?)?, index.text()?);
            Ok(def.indexes.iter().position(|i| i.name == name).map_or(-1, |at| at as i32))
        })
    }
}
