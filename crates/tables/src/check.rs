//! Checks a table against itself: the tree's structure, the files of its indexes, and every index
//! against the rows as multisets of (key bytes, primary key), both directions, at one snapshot.
//!
//! One pass sums a hash per index over the rows and over the entries. Only if the sums differ,
//! further passes look for the first differing entries and rows. A table with foreign keys is then
//! read once more, and each row that it refers to is looked up.

use crate::Store;
use crate::row::Row;
use crate::table::{Table, TableState};
use crate::table_layout::IndexLayout;
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::{Code, Error, Kind, Lsn, Result, Snapshot};
use evenkeel_runs::{Direction as RunsDirection, KeyRange};
use evenkeel_tree::{Direction, Problem, overflow};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;
use std::sync::Arc;

mod chunks;
mod foreign;

/// Problems listed at most for each index.
const PROBLEMS_MAX: usize = 10;

/// Problems of pages listed at most.
const PAGE_PROBLEMS_MAX: usize = 100;

/// Rows or entries between two looks at whether the check was cancelled.
const ROWS_PER_POLL: u64 = 256;

/// The result of a check of one table; no problems means that it is intact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCheck {
    /// Rows read.
    pub rows: u64,
    /// Index entries read, one direction.
    pub entries: u64,
    /// One line per problem.
    pub problems: Vec<String>,
    /// Parts that could not be checked here.
    pub notes: Vec<String>,
    /// The names of indexes that are damaged or do not fit the rows. Each can be made anew from the
    /// rows.
    pub indexes_damaged: Vec<String>,
    /// Some rows, or some long values of rows, cannot be read. The indexes were then not compared
    /// with the rows.
    pub rows_damaged: bool,
    /// Pages are in use that no row needs.
    pub pages_unreachable: bool,
    /// References of rows, by foreign keys, to rows that do not exist.
    pub rows_without_parent: u64,
}

/// The stage of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum CheckStage {
    /// The tree's pages, and those of long values.
    Pages,
    /// Rows, and the entries that each index should have for them.
    Rows,
    /// Files of the indexes and their entries.
    Indexes,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckProgress {
    /// What it is at.
    pub stage: CheckStage,
    /// The part of this stage that is done, 0 to 1; never decreases.
    pub share: f64,
}

/// The position of a check: one of several equal parts of a stage.
struct Watch<'s> {
    cancelled: &'s dyn Fn(CheckProgress) -> bool,
    stage: CheckStage,
    part: usize,
    parts: usize,
    /// Estimated rows, entries or pages of this part.
    total: u64,
}

impl Watch<'_> {
    /// `done` rows, entries or pages of the part are done: continues unless cancelled.
    fn look(&self, done: u64) -> Result<()> {
        let of_part = done.min(self.total) as f64 / self.total.max(1) as f64;
        let share = (self.part as f64 + of_part) / self.parts as f64;
        match (self.cancelled)(CheckProgress { stage: self.stage, share }) {
            true => Err(Error::new(Code::StatementCancelled)),
            false => Ok(()),
        }
    }
}

/// Order-independent sum of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hash: u128,
}

impl Sum {
    fn add(&mut self, key: &[u8], pk: &[u8], value: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(key.len());
        hasher.write(key);
        hasher.write(pk);
        hasher.write(value);
        self.count += 1;
        self.hash = self.hash.wrapping_add(u128::from(hasher.finish()));
    }
}

struct Checker<'s> {
    store: &'s Arc<Store>,
    txn: TableTxn,
    /// The table, or a chunk.
    table: Arc<Table>,
    /// The rows that a chunk may have.
    belongs: Option<chunks::Belonging>,
    state: Arc<TableState>,
    snapshot: Snapshot,
    name: String,
    report: TableCheck,
    watch: Watch<'s>,
    /// Rows or entries examined in this part.
    looked: u64,
}

impl Store {
    /// Checks a table at the present moment; writers continue.
    ///
    /// # Errors
    /// `TableMissing`; errors that keep the check itself from continuing. Damage is in the report.
    pub fn check_table(self: &Arc<Self>, name: &str) -> Result<TableCheck> {
        self.check_table_until(name, &|_| false)
    }

    /// As `check_table`; `cancelled` hears the progress and ends the check by returning true.
    ///
    /// # Errors
    /// As `check_table`; `StatementCancelled` if it has found no problem until then.
    pub fn check_table_until(
        self: &Arc<Self>,
        name: &str,
        cancelled: &dyn Fn(CheckProgress) -> bool,
    ) -> Result<TableCheck> {
        let mut txn = self.begin(Isolation::RepeatableRead, Access::ReadOnly);
        let table = self.table(name)?;
        // Use the tables first, so that none is emptied or rebuilt after the snapshot.
        txn.use_table(&table)?;
        for link in table.links.own().iter().filter(|link| !link.is_awaiting()) {
            txn.use_table(&link.parent()?)?;
        }
        let at = txn.take_snapshot()?;
        match table.chunked() {
            Some(chunked) => self.check_chunks((name, &table, chunked), txn, at, cancelled),
            None => Ok(self.check_one(name, (&table, None), txn, at, cancelled)?.0),
        }
    }

    /// Checks a table that is not chunked, or a chunk.
    fn check_one(
        self: &Arc<Self>,
        name: &str,
        (table, belongs): (&Arc<Table>, Option<chunks::Belonging>),
        txn: TableTxn,
        at: Lsn,
        cancelled: &dyn Fn(CheckProgress) -> bool,
    ) -> Result<(TableCheck, TableTxn)> {
        let (table, state, report) = (table.clone(), table.state(), TableCheck::default());
        let (snapshot, name) = (Snapshot::committed_at(at), name.to_string());
        let watch = Watch { cancelled, stage: CheckStage::Pages, part: 0, parts: 1, total: 0 };
        let mut checker = Checker {
            store: self,
            txn,
            table,
            belongs,
            state,
            snapshot,
            name,
            report,
            watch,
            looked: 0,
        };
        match checker.run(at) {
            // Problems that were found matter more than the cancellation.
            Err(e) if e.kind() == Kind::Cancelled && !checker.report.problems.is_empty() => {}
            done => done?,
        }
        Ok((checker.report, checker.txn))
    }
}

impl Checker<'_> {
    fn run(&mut self, at: Lsn) -> Result<()> {
        let pages = self.pages();
        self.of_rows(pages)?;
        let state = self.state.clone();
        let readable = |i: &&IndexLayout| i.check_readable(at).is_ok();
        let indexes: Vec<&IndexLayout> = state.layout.indexes.iter().filter(readable).collect();
        let mut wanted = None;
        if !self.report.rows_damaged {
            let rows = state.tree.estimate_all()?.rows;
            self.begin(CheckStage::Rows, 0, 1, rows)?;
            let sums = self.sums_of_rows(&indexes);
            wanted = self.of_rows(sums)?;
        }
        let parts = 3 * indexes.len();
        for (i, index) in indexes.into_iter().enumerate() {
            let rows = wanted.as_ref().map(|sums| sums[i]);
            self.index(index, rows, (3 * i, parts))?;
        }
        match self.report.rows_damaged {
            true => Ok(()),
            false => self.foreign_keys(),
        }
    }

    /// Checks the files of an index and, if the rows could be read, its entries; `part` of `parts`
    /// is the first of three.
    fn index(
        &mut self,
        index: &IndexLayout,
        rows: Option<Sum>,
        (part, parts): (usize, usize),
    ) -> Result<()> {
        let in_runs = self.store.runs.stats(index.id).run_entries;
        self.begin(CheckStage::Indexes, part, parts, in_runs)?;
        let checked = self.store.runs.check_until(index.id, &|done| self.watch.look(done));
        let (Some(_), Some(rows)) = (self.of_index(index, checked)?, rows) else { return Ok(()) };
        self.begin(CheckStage::Indexes, part + 1, parts, rows.count)?;
        let forward = self.sum_of_index(index, RunsDirection::Forward);
        let Some(forward) = self.of_index(index, forward)? else { return Ok(()) };
        self.begin(CheckStage::Indexes, part + 2, parts, rows.count)?;
        let reverse = self.sum_of_index(index, RunsDirection::Reverse);
        let Some(reverse) = self.of_index(index, reverse)? else { return Ok(()) };
        self.report.entries += forward.count;
        if index.is_opaque() {
            let (table, index) = (&self.name, &index.name);
            self.report.notes.push(format!(
                "table {table}: index {index}: weights of its collation cannot be made here: \
                 checked are the order of its keys, and its rows and the values it keeps"
            ));
        }
        if forward != reverse {
            let (a, b) = (forward.count, reverse.count);
            self.index_problem(index, format_args!("{a} entries forward, {b} back"));
        }
        if forward != rows {
            let (a, b) = (rows.count, forward.count);
            self.index_problem(index, format_args!("{a} rows, {b} entries"));
            match self.name_differences(index) {
                Err(error) if error.code() == Code::RunDamaged => {
                    self.of_index(index, Err::<(), Error>(error))?
                }
                named => self.of_rows(named)?,
            };
        }
        Ok(())
    }

    /// The result of reading rows; damage of them is a problem to report.
    fn of_rows<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == Kind::Corrupt => {
                // The walk over the pages has named the page already, with the same error.
                self.report.rows_damaged = true;
                self.problem_once(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The result of reading an index; any failure but a cancellation is a problem to report.
    fn of_index<T>(&mut self, index: &IndexLayout, read: Result<T>) -> Result<Option<T>> {
        match self.store.read_index(read) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == Kind::Cancelled => Err(error),
            Err(error) => {
                self.index_problem(index, format_args!("{error}"));
                Ok(None)
            }
        }
    }

    fn begin(&mut self, stage: CheckStage, part: usize, parts: usize, total: u64) -> Result<()> {
        self.looked = 0;
        self.watch = Watch { cancelled: self.watch.cancelled, stage, part, parts, total };
        self.watch.look(0)
    }

    /// Checks the tree's structure, and that every page in use is a node of the tree or belongs to
    /// a chain that a row names or that waits to be adopted or freed.
    ///
    /// Writers continue meanwhile, so a page counts only if it has not changed since: the pages in
    /// use are listed first, and everything that may name them is read afterwards.
    fn pages(&mut self) -> Result<()> {
        let state = self.state.clone();
        let (tree, pages) = (&state.tree, &self.store.pages);
        let began = self.store.log.end();
        let used = pages.used_by(tree.id());
        let mut chains = self.store.chains_of_tree(tree.id())?;
        self.begin(CheckStage::Pages, 0, 2, used.len() as u64)?;
        let (report, mut reached) = tree.check_reach(&|done| self.watch.look(done))?;
        for problem in report.problems.iter().take(PAGE_PROBLEMS_MAX) {
            self.report.rows_damaged = true;
            self.page_problem(problem);
        }
        if self.report.rows_damaged {
            return Ok(());
        }
        self.begin(CheckStage::Pages, 1, 2, report.rows)?;
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward)?;
        while let Some((_, cell)) = cursor.next()? {
            self.looked_at_one()?;
            chains.extend(state.layout.chains(cell.row)?);
        }
        chains.extend(self.store.chains_of_tree(tree.id())?);
        for chain in chains {
            overflow::pages(tree, &chain, &mut |page| {
                reached.insert(page);
            })?;
        }
        let mut unreachable = Vec::new();
        for page in used.without(&reached) {
            let lsn = match pages.read(page, evenkeel_pages::Access::UseOnce) {
                _ if !pages.is_used_by(page, tree.id()) => continue,
                Err(error) if error.kind() == Kind::Corrupt => Lsn::ZERO,
                read => read?.lsn(),
            };
            if lsn < began {
                let what = "in use and unreachable".to_string();
                unreachable.push(Problem { page, what });
            }
        }
        self.report.pages_unreachable = !unreachable.is_empty();
        for problem in unreachable.iter().take(PAGE_PROBLEMS_MAX) {
            self.page_problem(problem);
        }
        Ok(())
    }

    fn page_problem(&mut self, problem: &Problem) {
        self.problem(format!("page {}: {}", problem.page, problem.what));
    }

    fn looked_at_one(&mut self) -> Result<()> {
        self.looked += 1;
        match self.looked.is_multiple_of(ROWS_PER_POLL) {
            true => self.watch.look(self.looked),
            false => Ok(()),
        }
    }

    fn problem(&mut self, what: String) {
        let table = &self.name;
        self.report.problems.push(format!("table {table}: {what}"));
    }

    /// As `problem`, unless a problem of a page says the same.
    fn problem_once(&mut self, what: String) {
        if !self.report.problems.iter().any(|problem| problem.ends_with(&what)) {
            self.problem(what);
        }
    }

    fn index_problem(&mut self, index: &IndexLayout, what: std::fmt::Arguments<'_>) {
        let damaged = &mut self.report.indexes_damaged;
        if damaged.last() != Some(&index.name) {
            damaged.push(index.name.clone());
        }
        self.problem(format!("index {}: {what}", index.name));
    }

    /// Calls `f` with every row of the snapshot.
    fn rows(&mut self, f: &mut dyn FnMut(&mut Self, &Row) -> Result<()>) -> Result<()> {
        let table = self.table.clone();
        let mut scan = self.txn.scan(&table, crate::Range::ALL, Direction::Forward)?;
        let mut row = Row::new();
        while scan.next(&mut row)? {
            self.looked_at_one()?;
            f(self, &row)?;
        }
        Ok(())
    }

    fn sums_of_rows(&mut self, indexes: &[&IndexLayout]) -> Result<Vec<Sum>> {
        let mut sums = vec![Sum::default(); indexes.len()];
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.rows(&mut |check, row| {
            check.report.rows += 1;
            check.row_belongs(row)?;
            for (index, sum) in indexes.iter().zip(&mut sums) {
                encode(index, row, &mut key, &mut value)?;
                sum.add(&key, row.key(), &value);
            }
            Ok(())
        })?;
        Ok(sums)
    }

    fn sum_of_index(&mut self, index: &IndexLayout, direction: RunsDirection) -> Result<Sum> {
        let runs = &self.store.runs;
        let mut cursor = runs.cursor(index.id, KeyRange::all(), direction, self.snapshot)?;
        let (mut sum, mut last) = (Sum::default(), Vec::new());
        let (mut unordered, is_opaque) = (0u64, index.is_opaque());
        while let Some(entry) = cursor.next()? {
            self.looked_at_one()?;
            sum.add(if is_opaque { &[] } else { entry.key }, entry.pk, entry.value);
            let ascends = last.as_slice() < entry.key_and_pk;
            unordered +=
                u64::from(sum.count > 1 && ascends == (direction == RunsDirection::Reverse));
            last.clear();
            last.extend_from_slice(entry.key_and_pk);
        }
        if unordered > 0 {
            self.index_problem(index, format_args!("{unordered} entries out of order"));
        }
        Ok(sum)
    }

    /// Finds the first entries without a row and the first rows without an entry.
    fn name_differences(&mut self, index: &IndexLayout) -> Result<()> {
        let runs = self.store.runs.clone();
        let mut cursor =
            runs.cursor(index.id, KeyRange::all(), RunsDirection::Forward, self.snapshot)?;
        let table = self.table.clone();
        let (mut row, mut key, mut value, mut named) = (Row::new(), Vec::new(), Vec::new(), 0);
        while let Some(entry) = cursor.next()? {
            self.looked_at_one()?;
            let found = self.txn.get_by_key(&table, entry.pk, &mut row)?;
            if found {
                encode(index, &row, &mut key, &mut value)?;
            }
            let has = match found {
                false => "is missing",
                true if !index.is_opaque() && key != entry.key => "has another key",
                true if value != entry.value => "has other values than the entry keeps",
                true => continue,
            };
            if named < PROBLEMS_MAX {
                named += 1;
                let pk = hex(entry.pk);
                self.index_problem(index, format_args!("entry of pk {pk}: its row {has}"));
            }
        }
        if index.is_opaque() {
            return Ok(());
        }
        let snapshot = self.snapshot;
        let (mut key, mut named) = (Vec::new(), 0);
        self.rows(&mut |check, row| {
            key.clear();
            index.encode(&|column| row.value(column), row.key().len(), &mut key)?;
            let mut range = key.clone();
            range.extend_from_slice(row.key());
            let forward = RunsDirection::Forward;
            let mut at = runs.cursor(index.id, KeyRange::prefix(&range), forward, snapshot)?;
            let found = matches!(at.next()?, Some(e) if e.key == key && e.pk == row.key());
            if !found && named < PROBLEMS_MAX {
                named += 1;
                let pk = hex(row.key());
                check.index_problem(index, format_args!("row of pk {pk} has no entry"));
            }
            Ok(())
        })
    }
}

/// The key of a row's entry, empty if it cannot be made here, and the values stored beside it.
fn encode(index: &IndexLayout, row: &Row, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<()> {
    key.clear();
    value.clear();
    if !index.is_opaque() {
        index.encode(&|column| row.value(column), row.key().len(), key)?;
    }
    index.put_stored(&|column| row.value(column), value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
