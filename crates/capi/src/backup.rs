//! Backups: a copy of the open database in another directory, made by the caller's thread; others
//! see its progress and cancel it.

use crate::database::EkDatabase;
use crate::value::{EkBytes, EkError, catch, fence};
use evenkeel::BackupProgress;

/// Progress of a backup, and a handle to cancel it.
pub struct EkBackup(BackupProgress);

/// Makes the record of a backup; free it with `ek_backup_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ek_backup_new() -> *mut EkBackup {
    catch(std::ptr::null_mut(), || Box::into_raw(Box::new(EkBackup(BackupProgress::default()))))
}

/// Makes the record of a backup that follows the log until `ek_backup_end`; free it with
/// `ek_backup_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ek_backup_new_armed() -> *mut EkBackup {
    catch(std::ptr::null_mut(), || Box::into_raw(Box::new(EkBackup(BackupProgress::armed()))))
}

/// An armed backup no longer gives way to users. From any thread.
///
/// # Safety
/// `backup` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_hurry(backup: *const EkBackup) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*backup).0.hurry() });
}

/// Asks an armed backup for its end, which `EkBackupFigures::end` shows as soon as it is fixed.
/// From any thread.
///
/// # Safety
/// `backup` was not freed, and `note` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_end(backup: *const EkBackup, note: EkBytes) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*backup).0.end(note.text().unwrap_or_default()) });
}

/// Cancels an armed backup and returns 1, or returns 0 if its end is fixed. From any thread.
///
/// # Safety
/// `backup` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_give_up(backup: *const EkBackup) -> i32 {
    // SAFETY: by contract of the caller.
    catch(0, || unsafe { i32::from((*backup).0.give_up()) })
}

/// Frees the record of a backup that has ended.
///
/// # Safety
/// `backup` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_free(backup: *mut EkBackup) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(backup) }));
}

/// Cancels a backup, from any thread; it ends within a second.
///
/// # Safety
/// `backup` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_cancel(backup: *const EkBackup) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*backup).0.cancel() });
}

/// The progress of a backup.
#[repr(C)]
pub struct EkBackupFigures {
    /// 0 not begun, 1 pages, 2 files of indexes, 3 following the log, 4 end of the log, 5 making it
    /// durable, 6 done.
    pub phase: i32,
    /// Bytes copied, or left to the base.
    pub bytes: u64,
    /// Bytes to copy, estimated.
    pub bytes_expected: u64,
    /// Bytes that an armed backup has still to copy; `u64::MAX` before it follows the log.
    pub left: u64,
    /// The end of an armed backup; 0 before it is fixed.
    pub end: u64,
}

/// Reads the progress of a backup. From any thread.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_progress(backup: *const EkBackup, to: *mut EkBackupFigures) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        let progress = &(*backup).0;
        let (bytes, bytes_expected) = (progress.bytes(), progress.bytes_expected());
        let (left, end) = (progress.left_bytes(), progress.end_lsn().map_or(0, |lsn| lsn.0));
        let phase = progress.phase() as i32;
        *to = EkBackupFigures { phase, bytes, bytes_expected, left, end };
    });
}

/// What a backup has copied.
#[repr(C)]
pub struct EkBackupReport {
    /// The position of the log that it holds.
    pub end: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
}

/// Copies the database to a directory, which is empty or absent; with a base, the directory of an
/// earlier backup, only what has changed since. Returns 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_backup_take(
    db: *const EkDatabase,
    destination: EkBytes,
    base: EkBytes,
    backup: *const EkBackup,
    report: *mut EkBackupReport,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let (db, to, progress) = (&(*db).0, destination.text()?, &(*backup).0);
            let taken = match base.text()? {
                "" => db.backup_with(to, progress)?,
                base => db.backup_onto_with(base, to, progress)?,
            };
            let (end, bytes, files) = (taken.end.0, taken.bytes, taken.files);
            *report = EkBackupReport { end, bytes, files };
            Ok(0)
        })
    }
}
