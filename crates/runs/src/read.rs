//! Reading an index: cursors that merge memtables and runs, checks of unique keys, estimates.

pub(crate) mod cursor;
pub(crate) mod estimate;
pub(crate) mod idle_cursor_views;
pub(crate) mod positions;
pub(crate) mod prune;
pub(crate) mod row_shares;
pub(crate) mod run_iter;
pub(crate) mod source;
pub(crate) mod unique;
