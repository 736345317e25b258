//! Identifiers as newtypes, so that an id cannot be used as an index, a count or another kind of
//! id. All are plain integers on disk (little-endian, width given here).

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);
        impl $name {
            /// The smallest value; in most ids it means "none".
            pub const ZERO: $name = $name(0);
            /// The largest value.
            pub const MAX: $name = $name(<$int>::MAX);
            /// The plain integer.
            pub const fn get(self) -> $int { self.0 }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
        impl From<$int> for $name { fn from(v: $int) -> Self { $name(v) } }
    };
}

id!(
    /// Log sequence number: position of a record's first byte in the log's payload stream.
    /// A record is durable when the log's durable position is *greater* than its LSN.
    Lsn(u64)
);
id!(
    /// A random number of the database, drawn at creation; every checksum of its files begins with
    /// it.
    DatabaseId(u64)
);
id!(
    /// Transaction id. 0 is no transaction. Ids grow, also across restarts.
    TxnId(u64)
);
id!(
    /// Number of an operation inside its transaction, from 1; never reused inside it (A1).
    UndoNo(u32)
);
id!(
    /// Page number in the one page space; byte offset = number x page size.
    PageNo(u64)
);
id!(
    /// Table id, never reused.
    TableId(u32)
);
id!(
    /// Secondary index id, unique in the database, never reused.
    IndexId(u32)
);
id!(
    /// B+tree id (owner of pages), never reused.
    TreeId(u32)
);
id!(
    /// Memtable generation number, from 1.
    Generation(u64)
);

impl DatabaseId {
    /// CRC-32C of this id and `bytes`, so that bytes of another database do not verify here.
    pub fn crc32c(self, bytes: &[u8]) -> u32 {
        crate::crc32c(crate::crc32c(0, &self.0.to_le_bytes()), bytes)
    }
}
