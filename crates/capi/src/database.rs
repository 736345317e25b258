//! A database and its tables, and the prepared transactions that recovery finds.

use crate::chunks::EkChunking;
use crate::collations::{EkCollations, EmbeddedCollations};
use crate::foreign_spec::{EkForeign, foreign_specs};
use crate::transaction::EkTxn;
use crate::value::{EkBytes, EkError, catch, fence, slice};
use evenkeel::{
    Collations, ColumnSpec, ColumnType, Database, Durability, IndexSpec, Lsn, Options, PartSpec,
    Result, SchemaWait, TableSpec,
};
use std::ffi::c_void;
use std::time::Duration;

/// An open database.
pub struct EkDatabase(pub(crate) Database);

/// Options of the open; 0 is a default.
#[repr(C)]
pub struct EkOptions {
    /// Bytes.
    pub memory_size: u64,
    /// Bytes.
    pub log_size: u64,
    /// Bytes.
    pub page_size: u32,
    /// 0, 1 or 2, as the option of that name.
    pub durability: u8,
    /// The embedding program's; may be null. Used until the process ends.
    pub collations: *const EkCollations,
}

/// The durability for a number: 0, 1, 2 have the meaning that MariaDB's users know.
pub(crate) fn durability(number: u8) -> Durability {
    match number {
        0 => Durability::Lazy,
        2 => Durability::Write,
        _ => Durability::Sync,
    }
}

/// Opens the database in a directory, which is made if it is missing; null on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_open(
    path: EkBytes,
    options: *const EkOptions,
    error: *mut EkError,
) -> *mut EkDatabase {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, std::ptr::null_mut(), || {
            let mut chosen = Options::new();
            if let Some(given) = options.as_ref() {
                if given.memory_size > 0 {
                    chosen.memory_size = given.memory_size;
                }
                if given.log_size > 0 {
                    chosen.log_size = given.log_size;
                }
                chosen.page_size = Some(given.page_size).filter(|size| *size > 0);
                chosen.durability = durability(given.durability);
                if let Some(functions) = given.collations.as_ref() {
                    let collations = Box::new(EmbeddedCollations::new(*functions));
                    chosen.collations = Some(&*Box::leak(collations) as &dyn Collations);
                }
            }
            let db = Database::open_with(path.text()?, chosen)?;
            Ok(Box::into_raw(Box::new(EkDatabase(db))))
        })
    }
}

/// Bytes of memory of this machine, or of the control group of the process; 0: unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ek_machine_memory() -> u64 {
    catch(0, || Options::machine_memory().unwrap_or(0))
}

/// Closes the database and frees the handle; 0, or -1 on error.
///
/// # Safety
/// `db` came from `ek_open` and is not used again; nor are transactions of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_close(db: *mut EkDatabase, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        let db = Box::from_raw(db);
        fence(error, -1, || db.0.close().map(|()| 0))
    }
}

/// The column may be NULL.
pub const EK_NULLABLE: u8 = 1;
/// NULL is replaced by the next number.
pub const EK_AUTO_INCREMENT: u8 = 2;

/// A column to be made.
#[repr(C)]
pub struct EkColumn {
    /// Its name.
    pub name: EkBytes,
    /// Its type, by the number that the catalog stores (`docs/format/page.md`).
    pub type_code: u8,
    /// `EK_NULLABLE`, `EK_AUTO_INCREMENT`.
    pub flags: u8,
    /// First parameter of the type.
    pub a: u32,
    /// Second parameter of the type.
    pub b: u32,
}

impl EkColumn {
    /// # Safety
    /// Its name is there during the call.
    ///
    /// # Errors
    /// `DefinitionInvalid` for an unknown type.
    pub(crate) unsafe fn spec(&self) -> Result<ColumnSpec> {
        let ty = ColumnType::from_code(self.type_code, self.a, self.b);
        let ty = ty.ok_or_else(|| {
            evenkeel::Error::new(evenkeel::Code::DefinitionInvalid).with("type", self.type_code)
        })?;
        // SAFETY: by contract of the caller.
        let mut spec = ColumnSpec::new(unsafe { self.name.text()? }, ty);
        spec.nullable = self.flags & EK_NULLABLE != 0;
        spec.auto_increment = self.flags & EK_AUTO_INCREMENT != 0;
        Ok(spec)
    }
}

/// A part of a key to be made.
#[repr(C)]
pub struct EkPart {
    /// Position of the column.
    pub column: u16,
    /// A collation of the embedding program; 0 for byte order.
    pub collation: u16,
    /// Only this many first characters (bytes without a collation); 0 for all.
    pub prefix: u32,
    /// Not 0: descending.
    pub desc: u8,
}

/// An index to be made.
#[repr(C)]
pub struct EkIndex {
    /// Its name.
    pub name: EkBytes,
    /// Its parts.
    pub parts: *const EkPart,
    /// The number of parts.
    pub parts_len: usize,
    /// Not 0: unique.
    pub unique: u8,
}

unsafe fn parts(given: &[EkPart], columns: &[ColumnSpec]) -> Result<Vec<PartSpec>> {
    let one = |part: &EkPart| {
        let column = columns.get(usize::from(part.column));
        let column = column.ok_or_else(|| {
            evenkeel::Error::new(evenkeel::Code::ColumnMissing).with("position", part.column)
        })?;
        Ok(PartSpec {
            column: column.name.clone(),
            desc: part.desc != 0,
            prefix: part.prefix,
            collation: part.collation,
        })
    };
    given.iter().map(one).collect()
}

/// Creates a table; 0, or -1 on error. A `temporary` one is not needed after a crash. `chunking` is
/// null for a table that is not chunked.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_create_table(
    db: *const EkDatabase,
    name: EkBytes,
    columns: *const EkColumn,
    columns_len: usize,
    primary: *const EkPart,
    primary_len: usize,
    indexes: *const EkIndex,
    indexes_len: usize,
    foreign: *const EkForeign,
    foreign_len: usize,
    chunking: *const EkChunking,
    temporary: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let mut spec = TableSpec::new();
            for column in slice(columns, columns_len) {
                spec.columns.push(column.spec()?);
            }
            spec.primary = parts(slice(primary, primary_len), &spec.columns)?;
            for index in slice(indexes, indexes_len) {
                spec.indexes.push(IndexSpec {
                    name: index.name.text()?.to_string(),
                    parts: parts(slice(index.parts, index.parts_len), &spec.columns)?,
                    unique: index.unique != 0,
                });
            }
            let (db, name) = (&(*db).0, name.text()?);
            let columns: Vec<String> = spec.columns.iter().map(|c| c.name.clone()).collect();
            spec.foreign_keys = foreign_specs(db, (name, &columns), slice(foreign, foreign_len))?;
            spec.chunking = chunking.as_ref().map(|given| given.spec()).transpose()?;
            match temporary {
                0 => db.create_table(name, &spec)?,
                _ => db.create_temporary_table(name, &spec)?,
            }
            Ok(0)
        })
    }
}

/// How a schema change waits for transactions that use its table.
#[repr(C)]
pub struct EkSchemaWait {
    /// The caller's transaction, which may be null. DROP does not wait for it; it must have no open
    /// scan of the table.
    pub txn: *mut EkTxn,
    /// The timeout.
    pub lock_wait_ms: u64,
    /// A nonzero result ends the wait; called each tenth of a second. May be null.
    pub cancelled: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    /// Passed to `cancelled`.
    pub context: *mut c_void,
    /// Not 0: a table that foreign keys refer to may be dropped or emptied; keys to a dropped one
    /// wait for a table of its name.
    pub leaves_children: u8,
}

/// Runs a schema change with the given wait; null means the database's own.
///
/// # Safety
/// The wait and what it points to are valid during the call.
pub(crate) unsafe fn waiting<R>(
    given: *const EkSchemaWait,
    change: impl FnOnce(&SchemaWait<'_>) -> Result<R>,
) -> Result<R> {
    // SAFETY: by contract of the caller.
    let Some(given) = (unsafe { given.as_ref() }) else { return change(&SchemaWait::default()) };
    // SAFETY: by contract of the caller.
    let is_cancelled = || given.cancelled.is_some_and(|f| unsafe { f(given.context) } != 0);
    let mut wait = SchemaWait::default();
    wait.timeout = Some(milliseconds(given.lock_wait_ms));
    wait.cancelled = Some(&is_cancelled);
    wait.leaves_children = given.leaves_children != 0;
    change(&wait)
}

/// Drops a table; 0, or -1 on error. `wait` may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_drop_table(
    db: *const EkDatabase,
    name: EkBytes,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let name = name.text()?;
            let own = wait.as_ref().and_then(|given| given.txn.as_mut());
            waiting(wait, |how| match own.and_then(|txn| txn.get().ok()) {
                Some(txn) => txn.drop_table(name, how),
                None => (*db).0.drop_table_with(name, how),
            })
            .map(|()| 0)
        })
    }
}

/// Empties a table, whose numbers begin at 1 again; 0, or -1 on error. `wait` may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_truncate(
    db: *const EkDatabase,
    name: EkBytes,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let name = name.text()?;
            waiting(wait, |how| (*db).0.truncate_and_restart(name, how)).map(|()| 0)
        })
    }
}

/// Sets who may read a table: snapshots from now on (`now`), because its rows were copied into it
/// from a table that it replaces; or every snapshot, because nobody else knows the table. 0, or -1
/// on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_readable_from(
    db: *const EkDatabase,
    name: EkBytes,
    now: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            match now != 0 {
                true => (*db).0.readable_from_now(name.text()?),
                false => (*db).0.readable_always(name.text()?),
            }
            .map(|()| 0)
        })
    }
}

/// 1 if there is a table of this name, else 0.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_table_exists(db: *const EkDatabase, name: EkBytes) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), 0, || Ok(i32::from((*db).0.definition(name.text()?).is_ok())))
    }
}

/// 1 if the rows of a table are in the order of its primary key; 0 if it has none, or clusters on a
/// hidden id because its key may be too long; -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_is_clustered(
    db: *const EkDatabase,
    name: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let def = (*db).0.definition(name.text()?)?;
            Ok(i32::from(!def.entry.hidden_key))
        })
    }
}

/// 1 if some key of a table was made by another version of its collation, so that the table has to
/// be copied, else 0; -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_needs_rebuild(
    db: *const EkDatabase,
    name: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || Ok(i32::from((*db).0.needs_rebuild(name.text()?)?))) }
}

/// Calls `each` with the id of every prepared transaction.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_prepared(
    db: *const EkDatabase,
    context: *mut std::ffi::c_void,
    each: unsafe extern "C" fn(*mut std::ffi::c_void, EkBytes),
) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            for xid in (*db).0.prepared() {
                each(context, EkBytes::of(&xid));
            }
            Ok(())
        });
    }
}

/// Calls `each` with the tables that a prepared transaction uses; for one found by recovery, those
/// that it has changed. None if there is no such transaction.
///
/// # Safety
/// All pointers are valid during the call; `each` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_prepared_tables(
    db: *const EkDatabase,
    xid: EkBytes,
    context: *mut std::ffi::c_void,
    each: unsafe extern "C" fn(*mut std::ffi::c_void, EkBytes),
) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            for table in (*db).0.prepared_tables(xid.get())? {
                each(context, EkBytes::of(table.as_bytes()));
            }
            Ok(())
        });
    }
}

/// Commits a prepared transaction in order, without waiting; returns its timestamp, 0 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_commit_prepared(
    db: *const EkDatabase,
    xid: EkBytes,
    error: *mut EkError,
) -> u64 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, 0, || (*db).0.commit_prepared_ordered(xid.get()).map(|lsn| lsn.0)) }
}

/// Rolls a prepared transaction back, as durably as `durability_mode` says (0: without a wait, and
/// a log that can no longer be written is no error); 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_rollback_prepared(
    db: *const EkDatabase,
    xid: EkBytes,
    durability_mode: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let lsn = (*db).0.rollback_prepared_ordered(xid.get())?;
            match ((*db).0.wait_durable(lsn, durability(durability_mode)), durability_mode) {
                // Without a wait: it is rolled back, whatever happens to the log.
                (_, 0) => Ok(0),
                (waited, _) => waited.map(|()| 0),
            }
        })
    }
}

/// Waits until a commit has the requested durability; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_wait_durable(
    db: *const EkDatabase,
    commit: u64,
    durability_mode: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            (*db).0.wait_durable(Lsn(commit), durability(durability_mode)).map(|()| 0)
        })
    }
}

/// How long a transaction waits for locks.
pub(crate) fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
