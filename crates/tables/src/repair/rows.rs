//! Keeping the rows that can be read: they are copied into a new tree, with new indexes, which then
//! replaces the table's tree in one transaction on the catalog.
//!
//! Nobody uses the table meanwhile. The copy is filled as a table of its own that has no name
//! (`copy` in the code): first, from the leaves in order, rows without long values by a bulk load;
//! then rows with long values by transactions of a few rows each, because only a row's record in
//! the log keeps its chain from being freed after a crash; then the indexes. Until the catalog's
//! commit a crash leaves the table as it was, and a tree and runs that belong to no table.
//!
//! A row is given up if its leaf, a version of it or a long value of it cannot be read. The report
//! names the keys, from the first key of the damaged leaf to the first key behind it.

use super::words::{bound, reason};
use super::{IndexRebuilt, LostRange, TableRepair};
use crate::apply::Outcome;
use crate::buffers::Buffers;
use crate::build::{BuildPhase, BuildProgress, by_users_name, newest_committed};
use crate::large::Given;
use crate::schema::TableDef;
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::{Access, Isolation, TableTxn};
use crate::write_parts::{Applied, list_edits};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Error, Kind, Lsn, PageNo, Result, Stamp};
use evenkeel_format::catalog::IndexState;
use evenkeel_format::record::RowKind;
use evenkeel_format::{Field, row};
use evenkeel_log::Durability;
use evenkeel_tree::readable::{AtKey, LeafApart, end_of_leaf, rows_of_leaf};
use evenkeel_tree::{LeafRow, OverflowReader, OverflowRef};
use std::sync::Arc;

/// Rows that a transaction of the copy inserts.
const ROWS_OF_TXN: u64 = 100;
/// Buffer of a copy of a long value.
const COPY_BYTES: usize = 16 << 10;

impl Store {
    /// Replaces the table by a copy that has the rows which can be read.
    ///
    /// # Errors
    /// `TableBusy`, `BuildCancelled`, `DuplicateInBuild`; those of storage. The table is as before.
    pub(super) fn keep_rows(
        self: &Arc<Self>,
        name: &str,
        progress: &BuildProgress,
        report: &mut TableRepair,
    ) -> Result<()> {
        let table = &self.table(name)?;
        let _ddl = self.lock_to_build(name, table, progress)?;
        let _closed = self.close_to_build(table, progress)?;
        let old = table.state();
        let copy = self.nameless_copy(table, &old)?;
        let done = self.fill_and_replace(table, &old, &copy, progress, report);
        done.map_err(|error| {
            self.forget(&copy.state());
            by_users_name(error, name)
        })
    }

    /// An empty table with the columns of the given one and no index, that no catalog has.
    fn nameless_copy(
        self: &Arc<Self>,
        table: &Arc<Table>,
        old: &Arc<TableState>,
    ) -> Result<Arc<Table>> {
        let mut def = (*old.layout.def).clone();
        def.indexes.clear();
        let new = self.successor_as(old, def)?;
        let state = TableState::new(new.layout.clone(), new.tree.clone());
        let copy = Table::new(state, 0, 0);
        copy.changes.ignore();
        copy.set_temporary(table.is_temporary());
        Ok(copy)
    }

    fn fill_and_replace(
        self: &Arc<Self>,
        table: &Arc<Table>,
        old: &Arc<TableState>,
        copy: &Arc<Table>,
        progress: &BuildProgress,
        report: &mut TableRepair,
    ) -> Result<()> {
        progress.enter(BuildPhase::Scanning);
        let mut kept = Kept { store: self, old, copy, progress, report, long: 0 };
        kept.short_rows()?;
        kept.long_rows()?;
        let built = self.index_copy(old, copy, progress)?;
        progress.check()?;
        let from = self.txns.published();
        let mut def = (*copy.layout().def).clone();
        restore_indexes(&mut def, &old.layout.def, from);
        let layout = self.next_layout(&old.layout, def)?;
        let new = TableState::new(layout, copy.state().tree.clone());
        let put = |txn: &mut TableTxn| self.put_successor(txn, old, &new.layout.def);
        let born = self.change_catalog_of(table, put)?;
        for index in &new.layout.def.indexes {
            self.runs.set_valid(index.id, from);
        }
        self.replace(table, old, &new, born);
        self.note_changes(table, report.rows);
        let name = &old.layout.def.name;
        log::warn!("table {name}: kept {} rows; {} lost ranges", report.rows, report.lost_ranges);
        let named = old.layout.def.indexes.iter().zip(built);
        report.rebuilt.extend(named.map(|(index, entries)| {
            let index = index.name.clone();
            IndexRebuilt { index, entries }
        }));
        Ok(())
    }

    /// Builds the indexes of the old table on the copy; the number of entries of each.
    fn index_copy(
        self: &Arc<Self>,
        old: &TableState,
        copy: &Arc<Table>,
        progress: &BuildProgress,
    ) -> Result<Vec<u64>> {
        let def = &old.layout.def;
        if def.indexes.is_empty() {
            return Ok(Vec::new());
        }
        let mut specs = Vec::new();
        for index in &def.indexes {
            let mut spec = def.index_spec(index)?;
            spec.name.insert(0, crate::PROVISIONAL);
            specs.push(spec);
        }
        let target = self.begin_build(copy, &specs)?;
        progress.begin_table(0);
        self.build_alone(&target, progress)?;
        Ok(target.added.iter().map(|id| self.runs.stats(*id).run_entries).collect())
    }
}

/// Gives the indexes of a copy, which are in the order of the old ones, their names and parts.
fn restore_indexes(def: &mut TableDef, old: &TableDef, from: Lsn) {
    for (new, old) in def.indexes.iter_mut().zip(&old.indexes) {
        new.name.clone_from(&old.name);
        new.entry.primary = old.entry.primary;
        new.entry.state = IndexState::Valid(from);
    }
}

/// Rows on their way into the copy.
struct Kept<'s> {
    store: &'s Arc<Store>,
    old: &'s Arc<TableState>,
    copy: &'s Arc<Table>,
    progress: &'s BuildProgress,
    report: &'s mut TableRepair,
    /// Rows with long values that were passed by.
    long: u64,
}

/// A copied leaf, of which only the keys from `low` on count; or lost keys.
enum Part {
    Leaf(Vec<u8>, Vec<u8>),
    Lost(Vec<u8>, Option<Vec<u8>>, String),
}

/// Sees the key and the bytes of a row.
type SeeRow<'s, K> = dyn FnMut(&mut K, &[u8], &[u8]) -> Result<()> + 's;

impl Kept<'_> {
    fn short_rows(&mut self) -> Result<()> {
        let tree = self.copy.state().tree.clone();
        let progress = self.progress.clone();
        let mut load = tree.bulk_load()?.patient(Arc::new(move |_| progress.check()));
        let mut rows = 0;
        self.report.rows = 0;
        self.parts(&mut |kept, part| match part {
            Part::Leaf(leaf, low) => kept.leaf(&leaf, &low, &mut |kept, key, found| {
                if row::has_references(found) {
                    kept.long += 1;
                    return Ok(());
                }
                rows += 1;
                load.push(key, LeafRow { flags: 0, stamp: Stamp::default(), row: found })
            }),
            Part::Lost(low, below, why) => {
                kept.lose(&low, below.as_deref(), why);
                Ok(())
            }
        })?;
        load.finish(&|| self.progress.check())?;
        self.report.rows += rows;
        self.store.rt.metrics.add(Metric::RowsLoaded, rows);
        Ok(())
    }

    /// Rows with long values, which a second pass over the leaves finds.
    fn long_rows(&mut self) -> Result<()> {
        if self.long == 0 {
            return Ok(());
        }
        let (mut txn, mut in_txn, mut rows) = (None, 0, 0);
        self.parts(&mut |kept, part| {
            let Part::Leaf(leaf, low) = part else { return Ok(()) };
            let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            // What cannot be read was reported by the first pass.
            kept.leaf_quietly(&leaf, &low, &mut |key, row| {
                if row::has_references(row) {
                    found.push((key.to_vec(), row.to_vec()));
                }
            })?;
            for (key, row) in found {
                if txn.is_none() {
                    txn = Some(kept.begin()?);
                }
                let Some(open) = &mut txn else { continue };
                match open.insert_kept(kept.copy, kept.old, (&key, &row), kept.progress)? {
                    None => rows += 1,
                    Some(error) => kept.lose_key(&key, &error),
                }
                in_txn += 1;
                if in_txn == ROWS_OF_TXN {
                    in_txn = 0;
                    commit(txn.take())?;
                }
            }
            Ok(())
        })?;
        commit(txn.take())?;
        self.report.rows += rows;
        Ok(())
    }

    fn begin(&self) -> Result<TableTxn> {
        let txn = self.store.begin(Isolation::ReadCommitted, Access::ReadWrite);
        self.progress.insert_by(txn.handle())?;
        Ok(txn)
    }

    /// Calls `see` with the parts of the old tree in the order of keys.
    fn parts(&mut self, see: &mut dyn FnMut(&mut Self, Part) -> Result<()>) -> Result<()> {
        let tree = &self.old.tree;
        let mut low = Vec::new();
        loop {
            self.progress.check()?;
            self.store.rt.step();
            // Undo stays as long as the copy of the leaf is used (A5).
            let guard = self.store.txns.snapshot();
            let below = match tree.leaf_or_damage(&low)? {
                AtKey::Leaf(leaf) => {
                    let below = end_of_leaf(&leaf)?;
                    see(self, Part::Leaf(leaf, low))?;
                    below
                }
                AtKey::Damaged(damaged) => {
                    let why = reason(&damaged.error);
                    let below = damaged.below;
                    match damaged.is_leaf {
                        true => see(self, Part::Lost(low, below.clone(), why))?,
                        false => self.apart((low, below.as_deref()), &why, see)?,
                    }
                    below
                }
            };
            drop(guard);
            match below {
                Some(below) => low = below,
                None => return Ok(()),
            }
        }
    }

    /// The leaves below a node that cannot be read.
    fn apart(
        &mut self,
        (mut low, below): (Vec<u8>, Option<&[u8]>),
        why: &str,
        see: &mut dyn FnMut(&mut Self, Part) -> Result<()>,
    ) -> Result<()> {
        let (tree, progress) = (&self.old.tree, self.progress);
        let (leaves, unreadable) = tree.leaves_apart(&low, below, &|| progress.check())?;
        let why = format!("{why}{}", or_pages(&unreadable));
        for LeafApart { low: first, high, page } in leaves {
            self.progress.check()?;
            if first > low {
                see(self, Part::Lost(low, Some(first.clone()), why.clone()))?;
                low = first;
            }
            // Its keys below `low` belong to the leaf before it.
            let guard = self.store.txns.snapshot();
            see(self, Part::Leaf(tree.copy_leaf(page)?, low.clone()))?;
            drop(guard);
            match high {
                None => return Ok(()),
                Some(high) => low = low.max(high),
            }
        }
        match below {
            Some(below) if low.as_slice() >= below => Ok(()),
            below => see(self, Part::Lost(low, below.map(<[u8]>::to_vec), why)),
        }
    }

    /// Calls `see` with each row of a leaf; keys whose row cannot be read are lost.
    fn leaf(&mut self, leaf: &[u8], low: &[u8], see: &mut SeeRow<'_, Self>) -> Result<()> {
        let (txns, tree) = (self.store.txns.clone(), self.old.tree.id());
        rows_of_leaf(leaf, &mut |key, cell| {
            if key < low {
                return Ok(());
            }
            let newest = newest_committed(&txns, tree, key, &cell);
            match newest.and_then(|row| self.is_whole(key, row.as_deref()).map(|()| row)) {
                Ok(Some(row)) => see(self, key, &row),
                Ok(None) => Ok(()),
                Err(error) if error.kind() == Kind::Corrupt => {
                    self.lose_key(key, &error);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })
    }

    /// As `leaf`, without a report.
    fn leaf_quietly(
        &self,
        leaf: &[u8],
        low: &[u8],
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let (txns, tree) = (&self.store.txns, self.old.tree.id());
        rows_of_leaf(leaf, &mut |key, cell| {
            if key < low {
                return Ok(());
            }
            let newest = newest_committed(txns, tree, key, &cell);
            match newest.and_then(|row| self.is_whole(key, row.as_deref()).map(|()| row)) {
                Ok(Some(row)) => see(key, &row),
                Err(error) if error.kind() != Kind::Corrupt => return Err(error),
                Ok(None) | Err(_) => {}
            }
            Ok(())
        })
    }

    /// # Errors
    /// `Corrupt` if the bytes of a row do not decode.
    fn is_whole(&self, key: &[u8], row: Option<&[u8]>) -> Result<()> {
        let Some(row) = row else { return Ok(()) };
        let view = self.old.layout.view(key, row)?;
        (0..self.old.layout.columns.len()).try_for_each(|i| view.field(i).map(drop))
    }

    fn lose(&mut self, low: &[u8], below: Option<&[u8]>, why: String) {
        let layout = &self.old.layout;
        let from = match low {
            [] => "the first key".to_string(),
            low => bound(layout, low),
        };
        let below = below.map_or("the end".to_string(), |below| bound(layout, below));
        self.report.lose(LostRange { from, below, why });
    }

    fn lose_key(&mut self, key: &[u8], error: &Error) {
        let from = bound(&self.old.layout, key);
        self.report.lose(LostRange { from, below: String::new(), why: reason(error) });
    }
}

fn commit(txn: Option<TableTxn>) -> Result<()> {
    txn.map_or(Ok(()), |txn| txn.commit(Durability::Lazy).map(drop))
}

/// Pages of the tree that cannot be read and may have held the lost rows.
fn or_pages(pages: &[PageNo]) -> String {
    match pages {
        [] => String::new(),
        [first, ..] => {
            let count = pages.len();
            format!("; {count} pages of the table, from page {first} on, cannot be read")
        }
    }
}

impl TableTxn {
    /// Inserts a stored row of another tree with the same columns under its key into a table
    /// without indexes. Long values are copied; the error if one cannot be read: then nothing was
    /// inserted.
    fn insert_kept(
        &mut self,
        table: &Arc<Table>,
        from: &TableState,
        (key, row): (&[u8], &[u8]),
        progress: &BuildProgress,
    ) -> Result<Option<Error>> {
        self.enter(table, Use::Write)?;
        let mut buffers = self.buffers.take();
        let done = self.insert_kept_with(table, from, (key, row), progress, &mut buffers);
        self.buffers.put(buffers);
        let written = matches!(done, Ok(None));
        self.settle(if written { Outcome::Written } else { Outcome::Nothing });
        done
    }

    fn insert_kept_with(
        &mut self,
        table: &Arc<Table>,
        from: &TableState,
        (key, row): (&[u8], &[u8]),
        progress: &BuildProgress,
        b: &mut Buffers,
    ) -> Result<Option<Error>> {
        let state = table.state();
        let view = from.layout.view(key, row)?;
        let (mut given, mut chains) = (Vec::new(), Vec::new());
        for position in 0..from.layout.columns.len() {
            let Field::Reference(reference) = view.field(position)? else { continue };
            let mut reader = OverflowReader::new(&from.tree, OverflowRef::decode(reference)?);
            let mut writer = self.chain_writer(&state.tree)?;
            let mut buffer = vec![0; COPY_BYTES];
            loop {
                progress.check()?;
                match reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => writer.write(&buffer[..n])?,
                    Err(error) if error.kind() == Kind::Corrupt => {
                        let column = &from.layout.columns[position].name;
                        return Ok(Some(error.with("column", column)));
                    }
                    Err(error) => return Err(error),
                }
            }
            let chain = writer.finish()?;
            let mut bytes = Vec::new();
            chain.reference().encode(&mut bytes);
            given.push(Given { position, bytes });
            chains.push(chain);
        }
        let field = |i: usize| match given.iter().find(|g| g.position == i) {
            Some(given) => Ok(Field::Reference(&given.bytes)),
            None => view.field(i),
        };
        b.key.clear();
        b.key.extend_from_slice(key);
        b.unique.clear();
        b.entries.clear();
        loop {
            self.encode_row(&state, &field, b)?;
            list_edits(&state.layout, None, &given, b)?;
            match self.apply(table, &state, RowKind::Insert, None, b)? {
                Applied::Done => break,
                Applied::Again => {}
                Applied::Duplicate(..) => {
                    return Err(Error::internal("a row was kept twice").with("table", table.id()));
                }
            }
        }
        // The row has adopted them.
        drop(chains);
        Ok(None)
    }
}
