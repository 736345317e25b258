//! The catalogue of errors, one table: it generates `docs/reference/errors.md`, and a test provokes
//! every entry. Each layer adds to its own section. `text` says what happened, `next` what to do.

use crate::Kind;

macro_rules! codes {
    ($($name:ident = $kind:ident, $text:literal, $next:literal;)*) => {
        /// One entry of the catalogue.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $text] $name,)* }
        impl Code {
            /// Every code in order.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
            /// Its name.
            pub const fn name(self) -> &'static str { match self { $(Code::$name => stringify!($name),)* } }
            /// The kind that callers match on.
            pub const fn kind(self) -> Kind { match self { $(Code::$name => Kind::$kind,)* } }
            /// What happened.
            pub const fn text(self) -> &'static str { match self { $(Code::$name => $text,)* } }
            /// What to do next.
            pub const fn next_step(self) -> &'static str { match self { $(Code::$name => $next,)* } }
        }
    };
}

codes! {
    // -- base
    Internal = Internal, "internal error", "this is a bug: report it with the message and the log";
    WritesStopped = ReadOnly, "writes have stopped after a failed write or sync; reads go on", "mend the storage and reopen the database: it recovers from its log";
    // -- io
    FileMissing = NotFound, "a file is missing", "restore the file from a backup";
    FileOpen = Io, "a file cannot be opened", "check the path and its permissions";
    NoPermission = Io, "no permission", "give this user read and write access to the directory";
    ReadFailed = Io, "a read failed", "check the device; the data may be readable from a backup";
    ReadShort = Corrupt, "a file ends too early", "restore the file from a backup";
    WriteFailed = Io, "a write failed", "check the device, then reopen the database";
    SyncFailed = Io, "a sync failed", "check the device, then reopen the database";
    DiskFull = Full, "the disk is full", "free space: writes go on without a restart";
    DirectoryBusy = Busy, "another process has this database open", "close it there, or open read-only copies";
    ThreadSpawn = Io, "a thread cannot be started", "raise the limit of processes for this user";
    // -- format
    BadEncoding = Corrupt, "stored bytes do not decode", "run evenkeel check; restore from a backup if it reports damage";
    NewerFormat = Version, "the files were written by another format version", "open them with the version of Evenkeel that wrote them, or dump and load";
    NotADatabase = Invalid, "not an Evenkeel database: no valid superblock", "check the path; if it is one, restore evenkeel.super from a backup";
    // -- log
    // -- pages
    // -- tree
    // -- runs
    // -- txn
    // -- tables
    // -- evenkeel
    DirectoryNotEmpty = Invalid, "the directory holds other files and no database", "give an empty directory or a database";
    OptionOutOfRange = Invalid, "an option is out of its range", "choose a value inside the range";
    PageSizeMismatch = Invalid, "the database was created with another page size", "leave page_size out, or dump and load into a new database";
    OpenedReadOnly = ReadOnly, "the database or transaction is read-only", "open it, or begin the transaction, for writing";
    CheckpointMissing = Corrupt, "the checkpoint named by the superblock is not in the log", "restore from a backup";
}
