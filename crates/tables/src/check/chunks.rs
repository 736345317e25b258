//! The check of a chunked table: each chunk is checked as a table, its rows must belong to it, and
//! the table's own tree must be empty.

use super::{CheckProgress, CheckStage, Checker, PROBLEMS_MAX, TableCheck, hex};
use crate::Store;
use crate::chunks::map::{Chunked, TimeChunk};
use crate::row::Row;
use crate::table::Table;
use crate::transaction::TableTxn;
use evenkeel_base::{Lsn, Result};
use std::sync::Arc;

/// The rows that may be in a chunk; none at all in the table's own tree.
pub(super) struct Belonging {
    whole: Arc<Table>,
    chunk: Option<Arc<TimeChunk>>,
    named: usize,
}

impl Checker<'_> {
    /// Reports a row that is in another chunk than its own.
    pub(super) fn row_belongs(&mut self, row: &Row) -> Result<()> {
        let Some(Belonging { whole, chunk, named }) = &mut self.belongs else { return Ok(()) };
        let Some(chunked) = whole.chunked() else { return Ok(()) };
        let place = chunked.placing.place_of_key(&whole.layout(), row.key())?;
        let belongs = chunk.as_ref().is_some_and(|chunk| chunk.covers(place));
        if belongs || *named == PROBLEMS_MAX {
            return Ok(());
        }
        *named += 1;
        let pk = hex(row.key());
        self.problem(format!("row of pk {pk} belongs to another chunk"));
        Ok(())
    }
}

impl Store {
    pub(super) fn check_chunks(
        self: &Arc<Self>,
        (name, table, chunked): (&str, &Arc<Table>, &Chunked),
        mut txn: TableTxn,
        at: Lsn,
        cancelled: &dyn Fn(CheckProgress) -> bool,
    ) -> Result<TableCheck> {
        // The transaction's snapshot is older than the map. It sees all chunks of the map, and
        // keeps those that are dropped meanwhile.
        let map = chunked.map();
        let mut all = TableCheck::default();
        let own = std::iter::once(None);
        let parts: Vec<Option<&Arc<TimeChunk>>> = own.chain(map.live().map(Some)).collect();
        for (done, chunk) in parts.iter().enumerate() {
            let of_all = |now: CheckProgress| {
                let part = (f64::from(now.stage as i32) + now.share) / 3.0;
                let share = (done as f64 + part) / parts.len() as f64;
                cancelled(CheckProgress { stage: CheckStage::Rows, share })
            };
            let (of_chunk, called) = match chunk {
                None => (chunked.rest(table)?, name.to_string()),
                Some(chunk) => (chunk.table(table)?, format!("{name}, chunk {}", chunk.number())),
            };
            let chunk = chunk.cloned();
            let belongs = Belonging { whole: table.clone(), chunk, named: 0 };
            let (one, used) =
                self.check_one(&called, (&of_chunk, Some(belongs)), txn, at, &of_all)?;
            txn = used;
            all.rows += one.rows;
            all.entries += one.entries;
            all.problems.extend(one.problems);
            all.notes.extend(one.notes);
            for index in one.indexes_damaged {
                if !all.indexes_damaged.contains(&index) {
                    all.indexes_damaged.push(index);
                }
            }
            all.rows_damaged |= one.rows_damaged;
            all.pages_unreachable |= one.pages_unreachable;
        }
        Ok(all)
    }
}
