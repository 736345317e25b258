//! Handles of tables: a table by its name, without a lookup of the name at each call.

use crate::value::{EkBytes, catch};
use evenkeel::TableHandle;

/// A table by its name. Calls use the table that has the name when they are made: after a RENAME or
/// DROP that is another one, or none.
pub struct EkTable(pub(crate) TableHandle);

/// Makes a handle, also for a name that no table has; free it with `ek_table_free`.
///
/// # Safety
/// The name is there during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_table_new(name: EkBytes) -> *mut EkTable {
    catch(std::ptr::null_mut(), || {
        // SAFETY: by contract of the caller. No table has a name that is not UTF-8.
        let name = String::from_utf8_lossy(unsafe { name.get() });
        Box::into_raw(Box::new(EkTable(TableHandle::new(&name))))
    })
}

/// Frees a handle, which may be null.
///
/// # Safety
/// `table` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_table_free(table: *mut EkTable) {
    if !table.is_null() {
        // SAFETY: by contract of the caller.
        catch((), || drop(unsafe { Box::from_raw(table) }));
    }
}
