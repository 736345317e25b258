//! Every limit a user can meet, as a constant; each is tested at the limit and one beyond (E5).

/// Live columns of a table.
pub const COLUMNS_MAX: usize = 1_017;
/// Columns that a table ever had, dropped ones included (rows of old formats contain them).
pub const COLUMNS_EVER_MAX: usize = 4_000;
/// Secondary indexes of a table.
pub const INDEXES_MAX: usize = 64;
/// Foreign keys of a table.
pub const FOREIGN_KEYS_MAX: usize = 64;
/// Operations of a cascade of foreign keys that follow from each other.
pub const CASCADE_DEPTH_MAX: usize = 15;
/// Slots of a chunked table for each span of times.
pub const CHUNK_SLOTS_MAX: u32 = 256;
/// Chunks that one statement makes.
pub const CHUNKS_NEW_MAX: usize = 1_000;
/// Parts of a key.
pub const KEY_PARTS_MAX: usize = 32;
/// A clustered key is at most page size / this.
pub const CLUSTERED_KEY_PAGE_SHARE: usize = 5;
/// Bytes of a secondary index entry: columns, clustered key and stored bytes.
pub const INDEX_ENTRY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a table's name: for a server's table its path, of file names with up to five bytes per
/// character.
pub const TABLE_NAME_BYTES_MAX: usize = 1_024;
/// Bytes of an index or column name.
pub const NAME_BYTES_MAX: usize = 192;
/// Bytes of a column's default value.
pub const DEFAULT_BYTES_MAX: usize = 512;
/// Digits of a decimal.
pub const DECIMAL_DIGITS_MAX: u8 = 38;
/// Bytes of a fixed-length byte column.
pub const FIXED_BYTES_MAX: u16 = 255;
/// Bytes of one value (4 GiB - 1).
pub const VALUE_BYTES_MAX: u32 = u32::MAX;
/// Bytes of the XID of a prepared transaction.
pub const XID_BYTES_MAX: usize = 1_024;
/// Row operations of one transaction.
pub const OPERATIONS_MAX: u32 = 4_000_000_000;
/// Row formats of a table: each added or dropped column makes another one.
pub const ROW_VERSIONS_MAX: u16 = 16_000;
