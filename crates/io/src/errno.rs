//! The effect of an error of the operating system: one table of error numbers and calls.
//!
//! Each cell has one of three fates. A shortage is waited out: the caller gets a code for which
//! `Code::is_shortage` holds, nothing is lost, and the work is repeated. An error that leaves the
//! stored state unknown is final: writes stop (`Health::fail`). All others fail only their
//! statement. Callers decide by the code alone, so the real and the simulated environment share
//! this table, and a test goes through all cells (`crates/sim/tests/failing_calls.rs`).
//!
//! A sync that finds no space returns `DiskFull`, and its caller knows whether that can be waited
//! out: for a new file it can, for a file that was written before it cannot (`Health::fail`).

use crate::platform::error_numbers as numbers;
use evenkeel_base::Code;

/// A call of the operating system, classified by its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OsCall {
    /// Opens an existing file or directory.
    Open,
    /// Creates a file.
    Create,
    /// Lists a directory.
    List,
    /// Renames or removes a file, makes a directory.
    Name,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reserves or frees blocks, changes a length.
    Reserve,
    /// Makes a file or directory durable.
    Sync,
    /// Reads a length.
    Length,
    /// Starts a thread.
    Thread,
}

impl OsCall {
    /// All of them, in the order of the table's columns.
    pub const ALL: [OsCall; 10] = [
        OsCall::Open,
        OsCall::Create,
        OsCall::List,
        OsCall::Name,
        OsCall::Read,
        OsCall::Write,
        OsCall::Reserve,
        OsCall::Sync,
        OsCall::Length,
        OsCall::Thread,
    ];
}

/// The effect of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The work is repeated until it succeeds; users' statements may be refused meanwhile.
    WaitedOut,
    /// Writes stop until the database is opened again.
    Final,
    /// The statement, or the open, ends with an error; others continue.
    Statement,
}

use Fate::{Final as F, Statement as S, WaitedOut as W};

/// By error number: its name, and its fate for each call.
pub const TABLE: &[(&str, i32, [Fate; 10])] = &[
    //                        Open Create List Name Read Write Reserve Sync Length Thread
    ("ENOSPC", numbers::ENOSPC, [W, W, S, W, S, W, W, W, S, S]),
    ("EDQUOT", numbers::EDQUOT, [W, W, S, W, S, W, W, W, S, S]),
    // A limit on the size of files (RLIMIT_FSIZE): the work continues after it is lifted.
    ("EFBIG", numbers::EFBIG, [W, W, S, W, S, W, W, F, S, S]),
    ("EMFILE", numbers::EMFILE, [W, W, W, W, S, F, F, F, S, S]),
    ("ENFILE", numbers::ENFILE, [W, W, W, W, S, F, F, F, S, S]),
    ("ENOMEM", numbers::ENOMEM, [W, W, W, W, S, W, W, F, S, W]),
    ("EAGAIN", numbers::EAGAIN, [W, W, S, S, S, F, F, F, S, W]),
    ("EIO", numbers::EIO, [S, F, S, F, S, F, F, F, S, S]),
    ("EROFS", numbers::EROFS, [S, F, S, F, S, F, F, F, S, S]),
    ("EACCES", numbers::EACCES, [S, F, S, F, S, F, F, F, S, S]),
    ("EPERM", numbers::EPERM, [S, F, S, F, S, F, F, F, S, S]),
    ("ENOENT", numbers::ENOENT, [S, F, S, F, S, F, F, F, S, S]),
];

/// The fate of error numbers that are not in the table.
const OTHERS: [Fate; 10] = [S, F, S, F, S, F, F, F, S, S];

/// The effect of this failure of a call.
pub fn fate(call: OsCall, number: i32) -> Fate {
    let row = TABLE.iter().find(|(_, of, _)| *of == number);
    row.map_or(OTHERS, |(.., fates)| *fates)[call as usize]
}

/// The code of this failure of a call.
pub fn code(call: OsCall, number: i32) -> Code {
    let is_space = [numbers::ENOSPC, numbers::EDQUOT, numbers::EFBIG].contains(&number);
    match (fate(call, number), call) {
        (_, OsCall::Thread) => Code::ThreadSpawn,
        (Fate::WaitedOut, _) if is_space => Code::DiskFull,
        (Fate::WaitedOut, _) => Code::SystemLimit,
        _ if number == numbers::ENOENT => Code::FileMissing,
        _ if [numbers::EACCES, numbers::EPERM, numbers::EROFS].contains(&number) => {
            Code::NoPermission
        }
        (_, OsCall::Open | OsCall::Create) => Code::FileOpen,
        (_, OsCall::List | OsCall::Read | OsCall::Length) => Code::ReadFailed,
        (_, OsCall::Name | OsCall::Write | OsCall::Reserve) => Code::WriteFailed,
        (_, OsCall::Sync) => Code::SyncFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_retried_calls_have_a_retryable_code() {
        for (name, number, fates) in TABLE {
            for call in OsCall::ALL {
                let (fate, code) = (fates[call as usize], code(call, *number));
                let is_retried = code.is_shortage() || code == Code::ThreadSpawn;
                assert!(fate != W || is_retried, "{name} {call:?}: {code:?}");
                assert!(fate == W || !code.is_shortage(), "{name} {call:?}: {code:?}");
            }
        }
    }

    #[test]
    fn the_table_has_the_fates_that_the_rule_names() {
        use numbers::{EAGAIN, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS};
        for call in [OsCall::Open, OsCall::Create] {
            for number in [ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, EAGAIN] {
                assert_eq!(fate(call, number), W, "{call:?} {number}");
            }
        }
        for number in [EAGAIN, ENOMEM] {
            assert_eq!(fate(OsCall::Thread, number), W);
        }
        for (_, number, _) in TABLE {
            let waits = [ENOSPC, EDQUOT].contains(number);
            assert_eq!(fate(OsCall::Sync, *number), if waits { W } else { F }, "{number}");
        }
        for number in [EIO, EROFS, libc::ENXIO, libc::EBADF] {
            for call in [OsCall::Create, OsCall::Name, OsCall::Write, OsCall::Reserve] {
                assert_eq!(fate(call, number), F, "{call:?} {number}");
            }
            for call in [OsCall::Open, OsCall::List, OsCall::Read, OsCall::Length] {
                assert_eq!(fate(call, number), S, "{call:?} {number}");
            }
        }
    }
}
