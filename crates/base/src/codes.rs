//! The catalogue of errors, in one table. The table generates `docs/reference/errors.md`, and a test
//! provokes every entry. Each layer adds its own section. `text` says what happened, `next` what the
//! user can do.

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
    FileMissing = NotFound, "a file is missing", "restore the file from a backup; without one, save the rest with evenkeel salvage";
    FileOpen = Io, "a file cannot be opened", "check the path and its permissions";
    NoPermission = Io, "no permission", "give this user read and write access to the directory";
    DirectoryUnsafe = Invalid, "every user may write to the directory", "remove that permission (chmod o-w), or choose another directory";
    ReadFailed = Io, "a read failed", "check the device; the data may be readable from a backup";
    ReadShort = Corrupt, "a file ends too early", "restore from a backup; without one, save the rest with evenkeel salvage";
    WriteFailed = Io, "a write failed", "check the device, then reopen the database";
    SyncFailed = Io, "a sync failed", "check the device, then reopen the database";
    DiskFull = Full, "the disk is full", "free space: writes go on without a restart";
    SystemLimit = Full, "the system grants no more open files, memory or threads", "raise the limit (LimitNOFILE, LimitNPROC) or free memory: writes go on without a restart";
    DirectoryBusy = Busy, "the database is open already", "close it in the process that has it open (pid, where one writes), or open a copy read-only";
    Forked = Invalid, "the database was opened before this process was forked", "open it in the process that uses it, behind the fork";
    ThreadSpawn = Io, "a thread cannot be started", "raise the limit of processes for this user";
    // -- format
    BadEncoding = Corrupt, "stored bytes do not decode", "run CHECK TABLE or evenkeel check; if it reports damage restore from a backup, or keep the rest with REPAIR TABLE ... EXTENDED or evenkeel salvage";
    NewerFormat = Version, "the files are whole, and hold something that this version does not know", "open them with the version of Evenkeel that wrote them, or dump them with it and load them here";
    NotADatabase = Invalid, "not an Evenkeel database: no valid superblock", "check the path; if it is one, restore from a backup, or save the tables with evenkeel salvage";
    OtherDatabase = Corrupt, "a file belongs to another database", "put the files of one database together again, or restore from a backup; without one, save the rest with evenkeel salvage";
    // -- log
    LogDamaged = Corrupt, "the log is damaged below its recorded durable position", "restore from a backup; without one, save the tables with evenkeel salvage";
    LogMissing = Corrupt, "a log segment is missing", "restore the file, or restore from a backup; without one, save the tables with evenkeel salvage";
    LogVersion = Version, "the log has another format version", "open the database with the release that wrote it";
    LogTooLarge = Invalid, "an operation needs more log space than is allowed", "make the operation smaller, or log_size or memory_size (the log buffer is a part of it) larger";
    LogFull = Full, "the log is full, its reserve included", "free space or wait for a checkpoint";
    // -- pages
    PageChecksum = Corrupt, "a page does not match its checksum", "restore from a backup; CHECK TABLE and evenkeel check find all damaged pages, REPAIR TABLE ... EXTENDED keeps the other rows of a table, evenkeel salvage those of a database";
    PageIdentity = Corrupt, "a page lies in another page's place", "restore from a backup; CHECK TABLE and evenkeel check find all damaged pages, REPAIR TABLE ... EXTENDED keeps the other rows of a table, evenkeel salvage those of a database";
    PageUnwritten = Corrupt, "a page in use was never written or its blocks are gone", "restore from a backup; CHECK TABLE and evenkeel check find all damaged pages, REPAIR TABLE ... EXTENDED keeps the other rows of a table, evenkeel salvage those of a database";
    PageVersion = Version, "a page of another format version", "open the database with the version that wrote it";
    PageBeyond = Corrupt, "a page number beyond the page space", "run CHECK TABLE or evenkeel check; if it reports damage restore from a backup, or keep the rest with REPAIR TABLE ... EXTENDED or evenkeel salvage";
    SpaceDamaged = Corrupt, "the map of the page space contradicts itself", "restore from a backup; evenkeel check finds all damaged pages, evenkeel salvage saves all other rows";
    BadPageSize = Invalid, "a page size that is not 4096, 8192 or 16384", "choose one of them at creation; it cannot be changed afterwards";
    PoolTooSmall = Invalid, "the page pool is too small", "raise memory_size";
    SpaceLimit = Full, "the page space has reached its largest size of 16 TiB", "remove data or use a second database";
    // -- tree
    ValueTooLong = Invalid, "a value is longer than 4 GiB - 1", "split the value";
    TreeDamaged = Corrupt, "a tree's pages do not lead to the key", "run CHECK TABLE or evenkeel check; restore from a backup, or keep the rest with REPAIR TABLE ... EXTENDED or evenkeel salvage";
    TreeOpMismatch = Corrupt, "a logged change does not fit its page", "restore from a backup, or save the rest with evenkeel salvage; report the message and the log";
    TreeGone = NotFound, "a tree does not exist (any more)", "open the table again";
    TreeNotEmpty = Invalid, "a bulk load needs an empty tree", "load into a new table";
    KeysNotAscending = Invalid, "the rows of a bulk load are not in key order", "sort them first; every key may come once";
    OverflowDamaged = Corrupt, "a long value's pages are not where its row says", "run CHECK TABLE or evenkeel check; restore from a backup, or keep the rest with REPAIR TABLE ... EXTENDED or evenkeel salvage";
    // -- runs
    RunDamaged = Corrupt, "a file of an index is damaged", "repair the table (REPAIR TABLE, Database::repair_table), which builds the index anew: its rows and other indexes are not affected";
    RunVersionUnknown = Version, "an index file has an unknown format version", "open it with a newer version of the engine";
    IndexGone = NotFound, "the index does not exist", "it was dropped: use another index";
    // -- txn
    DeadlockVictim = Deadlock, "this transaction was the victim of a deadlock", "roll back and repeat the transaction";
    LockWaitTimeout = LockTimeout, "a lock was not granted in time", "repeat the statement, or raise the lock wait timeout";
    LockNotAvailable = LockTimeout, "another transaction holds the lock", "repeat the statement later, or without NOWAIT";
    LocksFull = Full, "the memory for locks is used up", "lock fewer rows in one transaction, or raise memory_size";
    StatementCancelled = Cancelled, "the statement was cancelled", "none: the cancellation was requested";
    TxnEnded = Invalid, "the transaction cannot do this any more", "begin another transaction";
    TxnTooLong = Full, "the transaction has reached the largest number of row operations", "commit more often";
    XidInUse = Invalid, "a prepared transaction has this XID already", "choose another XID";
    XidTooLong = Invalid, "the XID is too long", "choose a shorter XID";
    XidUnknown = NotFound, "no prepared transaction has this XID", "list the prepared transactions";
    // -- tables
    TableMissing = NotFound, "there is no such table", "check the name; Database::tables lists them";
    TableExists = Invalid, "a table of this name exists", "choose another name or drop the table";
    ColumnMissing = NotFound, "there is no such column", "check the name against the table's definition";
    ColumnExists = Invalid, "a column of this name exists", "choose another name";
    ColumnInUse = Invalid, "the column is part of a key", "drop the index first; a primary key's columns stay";
    IndexMissing = NotFound, "there is no such index", "check the name against the table's definition";
    IndexExists = Invalid, "an index of this name exists", "choose another name or drop the index";
    IndexTooNew = Conflict, "the index was built after this transaction's snapshot", "read through the primary key or begin a new transaction";
    TableTooNew = Conflict, "the table was made, emptied or rebuilt after this transaction's snapshot", "begin a new transaction, or read with locks";
    NameInvalid = Invalid, "a name is empty, too long or holds a NUL character", "choose a name of 1 to 192 bytes, of a table to 1,024";
    DefinitionInvalid = Invalid, "the definition is not possible", "change what the message names";
    TooManyColumns = Invalid, "too many columns", "stay within the limit or split the table";
    TooManyIndexes = Invalid, "too many indexes", "drop one that is not used";
    TooManyKeyParts = Invalid, "too many key parts", "use at most 32 columns in a key";
    KeyTooLong = Invalid, "a clustered key is too long", "shorten the value, or use a larger page size";
    CollationMissing = Invalid, "a key has an unknown collation", "open the database with the program that made the table (the MariaDB plugin)";
    CollationChanged = Invalid, "a key was made by another version of its collation", "rebuild the table: ALTER TABLE ... FORCE";
    EntryTooLong = Invalid, "an index entry is too long", "shorten the values or index other columns";
    RowTooLong = Invalid, "a row is too long", "shorten its values or columns, or make the database with larger pages";
    WrongValueCount = Invalid, "the number of values is not the number of columns", "give one value per column";
    ValueType = Invalid, "a value is of another type than its column", "convert the value";
    ValueRange = Invalid, "a value does not fit its column", "give a value within the column's range and length";
    NullNotAllowed = Invalid, "NULL in a column that does not allow it", "give a value";
    DuplicateKey = Duplicate, "a row with this key exists", "choose another key, or use upsert or insert_or_ignore";
    DuplicateInBuild = Duplicate, "rows have equal keys, so a unique index cannot be built", "remove the duplicates or build it without unique";
    RowChanged = Conflict, "the row was changed by a transaction newer than this one's snapshot", "roll back and repeat the transaction";
    AutoIncrementExhausted = Full, "the auto-increment column has reached its greatest value", "use a larger integer type";
    TableBusy = LockTimeout, "transactions still use the table", "end them and repeat";
    TransactionEnded = Invalid, "the transaction has ended", "begin a new one";
    SavepointMissing = NotFound, "there is no such savepoint", "set it before rolling back to it";
    BuildCancelled = Cancelled, "the index build was cancelled", "repeat it if the index is wanted";
    ForeignKeyInvalid = Invalid, "the foreign key is not possible", "change what the message names";
    ForeignKeyNeeds = Invalid, "a foreign key needs the table, index or column", "drop the foreign key, or the table that has it, first";
    ParentRowMissing = Invalid, "the row refers to a parent row that does not exist", "insert the parent row first, or give the key of an existing one";
    RowReferenced = Invalid, "rows of another table refer to this row", "delete those rows first, or change what they refer to";
    ForeignKeyMissing = NotFound, "there is no such foreign key", "check the name against the table's definition";
    CascadeTooDeep = Invalid, "a cascade of foreign keys is too deep", "change or delete the rows at its end first";
    CascadeDuplicate = Duplicate, "a cascade of a foreign key would give two rows the same key", "change or delete one of the rows first";
    ChunkingInvalid = Invalid, "the table cannot be cut into chunks so", "change what the message names";
    ChunkedTable = Invalid, "a chunked table cannot do this", "see docs/guide/time-series.md; a copy of the rows in a table without chunks can";
    TooManyChunks = Invalid, "a statement needs too many new chunks", "insert fewer rows in one statement, or make the table with wider chunks";
    CatalogDamaged = Corrupt, "the catalog contradicts itself", "run evenkeel check; restore from a backup, or save the rest with evenkeel salvage";
    // -- evenkeel
    DirectoryNotEmpty = Invalid, "the directory holds other files and no database", "give an empty directory or a database";
    OptionOutOfRange = Invalid, "an option is out of its range", "choose a value inside the range";
    SettingUnknown = Invalid, "there is no setting of this name", "see docs/reference/settings.md";
    SettingFixed = Invalid, "the setting cannot change while the database is open", "give it when the database is opened or created";
    PageSizeMismatch = Invalid, "the database was created with another page size", "leave page_size out, or dump and load into a new database";
    OpenedReadOnly = ReadOnly, "the database or transaction is read-only", "open it, or begin the transaction, for writing";
    RowsNotSorted = Invalid, "the rows of a bulk load do not come in ascending order of the primary key", "sort them, or insert them";
    DatabaseClosed = Invalid, "the database is closed", "open it again";
    BackupRunning = Busy, "a backup is running already", "wait for its end, or cancel it";
    BackupBehindLog = Full, "the backup could not copy the log as fast as it was written", "repeat it with a larger log_size, to faster storage, or at a quieter time";
    BackupIncomplete = Invalid, "the directory holds no complete backup: it has no file COMPLETE", "choose another backup, or take one";
    BackupDamaged = Corrupt, "a backup differs from its manifest", "choose another backup; evenkeel backup verify names every file";
    BackupBase = Invalid, "the earlier backup on which an incremental one builds is missing or does not fit", "name the directory that holds it, or take a full backup";
    CheckpointMissing = Corrupt, "the checkpoint named by the superblock is not in the log", "restore from a backup; without one, save the tables with evenkeel salvage";
    NestedCall = Invalid, "the transaction is in the middle of another call", "make the call after that one has returned, or in another transaction";
    ValueConversion = Invalid, "a value cannot be read as the wanted type", "read it as a type that holds it; as an Option where it may be NULL";
}

impl Code {
    /// True if the system is short of a resource that may come back and nothing is lost: the work
    /// that met the shortage is repeated, and writes do not stop.
    pub const fn is_shortage(self) -> bool {
        matches!(self, Code::DiskFull | Code::SystemLimit)
    }
}
