//! Foreign keys: those that a table has, gets, or is referred to by, and whether a transaction
//! checks them.

use crate::alter::EkBuild;
use crate::database::EkDatabase;
use crate::foreign_spec::{EkForeign, foreign_specs, names_of, number};
use crate::transaction::EkTxn;
use crate::value::{EkBytes, EkError, catch, fence, slice};
use evenkeel::{BuildProgress, Database, ForeignKeySpec, ForeignKeyView, Result};
use std::ffi::c_void;

/// The column may be NULL in the table that has the key.
pub const EK_CHILD_NULLABLE: u8 = 1;
/// The column may be NULL in the parent.
pub const EK_PARENT_NULLABLE: u8 = 2;

/// A foreign key of a table.
#[repr(C)]
pub struct EkForeignKey {
    /// Its name.
    pub name: EkBytes,
    /// The table that has it.
    pub child: EkBytes,
    /// The table that its rows refer to.
    pub parent: EkBytes,
    /// The parent's index with its columns; empty for the primary key, or without a parent.
    pub parent_index: EkBytes,
    /// Names of its columns.
    pub columns: *const EkBytes,
    /// Names of the parent's columns.
    pub parent_columns: *const EkBytes,
    /// `EK_CHILD_NULLABLE`, `EK_PARENT_NULLABLE` for each column.
    pub nullable: *const u8,
    /// The number of columns.
    pub columns_len: usize,
    /// As in `EkForeign`.
    pub on_delete: u8,
    /// As in `EkForeign`.
    pub on_update: u8,
    /// Not 0: the parent does not exist.
    pub is_awaiting: u8,
}

/// Receives a foreign key.
pub type EkEachForeignKey = unsafe extern "C" fn(*mut c_void, *const EkForeignKey);

/// Column names and whether they may be NULL.
fn columns_of(view: &ForeignKeyView<'_>) -> (Vec<String>, Vec<String>, Vec<u8>) {
    let (mut own, mut of_parent, mut nullable) = (Vec::new(), Vec::new(), Vec::new());
    for (position, (id, parent_id)) in view.key.columns.iter().enumerate() {
        let column = view.child.column_by_id(*id);
        let parent = view.parent.and_then(|parent| parent.column_by_id(*parent_id));
        let awaited = view.key.awaited.as_ref().map(|awaited| awaited.columns[position].clone());
        let flag = |null: Option<bool>, bit| if null == Some(true) { bit } else { 0 };
        nullable.push(
            flag(column.map(|c| c.entry.nullable), EK_CHILD_NULLABLE)
                | flag(parent.map(|c| c.entry.nullable), EK_PARENT_NULLABLE),
        );
        own.push(column.map_or_else(String::new, |c| c.name.clone()));
        of_parent.push(parent.map(|c| c.name.clone()).or(awaited).unwrap_or_default());
    }
    (own, of_parent, nullable)
}

/// Calls `each` with the foreign keys of a table; with `to_it`, with those that refer to it. 0, or
/// -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_foreign_keys(
    db: *const EkDatabase,
    table: EkBytes,
    to_it: u8,
    context: *mut c_void,
    each: EkEachForeignKey,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            (*db).0.foreign_keys(table.text()?, to_it != 0, &mut |view| {
                let (own, of_parent, nullable) = columns_of(view);
                let of = |s: &String| EkBytes::of(s.as_bytes());
                let (own, of_parent): (Vec<_>, Vec<_>) =
                    (own.iter().map(of).collect(), of_parent.iter().map(of).collect());
                let awaited = view.key.awaited.as_ref().map(|awaited| awaited.table.as_str());
                let parent = view.parent.map(|parent| parent.name.as_str());
                let key = EkForeignKey {
                    name: EkBytes::of(view.key.name.as_bytes()),
                    child: EkBytes::of(view.child.name.as_bytes()),
                    parent: EkBytes::of(parent.or(awaited).unwrap_or_default().as_bytes()),
                    parent_index: EkBytes::of(view.parent_index.unwrap_or_default().as_bytes()),
                    columns: own.as_ptr(),
                    parent_columns: of_parent.as_ptr(),
                    nullable: nullable.as_ptr(),
                    columns_len: own.len(),
                    on_delete: number(view.key.on_delete),
                    on_update: number(view.key.on_update),
                    is_awaiting: u8::from(view.key.awaited.is_some()),
                };
                each(context, &key);
            })?;
            Ok(0)
        })
    }
}

/// 1 if foreign keys refer to a table, else 0.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_is_referenced(db: *const EkDatabase, table: EkBytes) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), 0, || Ok(i32::from((*db).0.is_referenced(table.text()?)?)))
    }
}

/// Whether the transaction's changes are checked from now on.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set_foreign_key_checks(txn: *mut EkTxn, on: u8) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Ok(txn) = (*txn).get() {
            txn.set_foreign_key_checks(on != 0);
        }
    });
}

/// Checks that `new_table` has what foreign keys to `old_table` need, which it is to replace
/// (`ek_rename_table`). 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_check_replacement(
    db: *const EkDatabase,
    old_table: EkBytes,
    new_table: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            (*db).0.check_replacement(old_table.text()?, new_table.text()?).map(|()| 0)
        })
    }
}

/// New foreign keys of a table, and the build that shows their progress.
struct NewKeys {
    db: *const EkDatabase,
    table: EkBytes,
    keys: *const EkForeign,
    keys_len: usize,
    build: *const EkBuild,
}

impl NewKeys {
    /// Calls `add` with the table and its new keys; 0, or -1 on error.
    ///
    /// # Safety
    /// All pointers are valid during the call.
    unsafe fn add(
        &self,
        error: *mut EkError,
        add: impl FnOnce(&Database, &str, &[ForeignKeySpec], &BuildProgress) -> Result<()>,
    ) -> i32 {
        // SAFETY: by contract of the caller.
        unsafe {
            let progress = (*self.build).progress();
            let added = fence(error, -1, || {
                let (db, name) = (&(*self.db).0, self.table.text()?);
                let own = names_of(&*db.definition(name)?);
                let specs = foreign_specs(db, (name, &own), slice(self.keys, self.keys_len))?;
                add(db, name, &specs, progress).map(|()| 0)
            });
            // Also if nothing began, because another thread waits for the end.
            progress.end();
            added
        }
    }
}

/// Adds foreign keys to a table beside writers, all or none; `validates`: the rows that are there
/// are looked up. 0, or -1 on error, and then nothing remains.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_add_foreign_keys(
    db: *const EkDatabase,
    table: EkBytes,
    keys: *const EkForeign,
    keys_len: usize,
    validates: u8,
    build: *const EkBuild,
    error: *mut EkError,
) -> i32 {
    let new = NewKeys { db, table, keys, keys_len, build };
    // SAFETY: by contract of the caller.
    unsafe {
        new.add(error, |db, name, keys, p| db.add_foreign_keys(name, keys, validates != 0, p))
    }
}

/// The first half of `ek_add_foreign_keys`: the keys are enforced and proved, and exist in memory
/// only. `ek_alter_tables` makes them permanent, `ek_forget_foreign_keys` removes them. 0, or -1 on
/// error, and then nothing remains.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_prove_foreign_keys(
    db: *const EkDatabase,
    table: EkBytes,
    keys: *const EkForeign,
    keys_len: usize,
    validates: u8,
    build: *const EkBuild,
    error: *mut EkError,
) -> i32 {
    let new = NewKeys { db, table, keys, keys_len, build };
    // SAFETY: by contract of the caller.
    unsafe {
        new.add(error, |db, name, keys, p| db.prove_foreign_keys(name, keys, validates != 0, p))
    }
}

/// Removes the keys of a table that were proved and not made permanent; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_forget_foreign_keys(
    db: *const EkDatabase,
    table: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.forget_foreign_keys(table.text()?).map(|()| 0)) }
}
