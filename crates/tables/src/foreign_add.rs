//! Adding foreign keys to a table with rows, while others write.
//!
//! 1. The links of the new keys are set, provisionally: from now on row operations enforce them.
//!    A barrier in the child and in each parent waits for operations that do not know them (F1).
//! 2. The addition waits for transactions that have changed one of the tables before.
//! 3. One pass over the child's index at a snapshot looks up each different key in the parent. So
//!    a row of the snapshot is either proved here, or was written by an operation that looked.
//! 4. A change of the catalog makes the keys permanent (`alter`), with other changes of the table
//!    if the caller wants that.
//!
//! Until step 4 the keys exist in memory only, so a crash leaves none of them. The first row that
//! refers to nothing fails the addition, and the links are cut again.
//!
//! The pass copies the bytes of keys from the child's order into the parent's: columns and
//! collations are equal, only the order of the parts, their direction and their NULL byte differ.
//! It visits no row, except the one that an error names.

use crate::alter::TableChange;
use crate::build::{BuildPhase, BuildProgress};
use crate::foreign::ForeignKeySpec;
use crate::foreign::{KeyOf, Link, LinkList, foreign_key_of, invalid};
use crate::range::{ByteRange, Range};
use crate::read::ReadView;
use crate::row::Row;
use crate::schema::TableSpec;
use crate::store::Store;
use crate::table::{Table, TableState};
use crate::table_layout::{KeyColumn, Layout};
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result, Snapshot};
use evenkeel_format::limits::FOREIGN_KEYS_MAX;
use evenkeel_runs::{Direction, IndexCursor, KeyRange};
use evenkeel_sched::BuildBudget;
use std::ops::Bound;
use std::sync::Arc;

/// Rows between two looks at a cancellation.
const ROWS_PER_POLL: u64 = 256;
/// Entries of a parent's index that are passed before the index is searched anew.
const PASSED_MAX: usize = 32;

impl Store {
    /// Adds foreign keys to a table, all or none, while others read and write.
    ///
    /// # Errors
    /// As `prove_foreign_keys`; nothing is left behind then.
    pub fn add_foreign_keys(
        self: &Arc<Self>,
        table: &str,
        specs: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        let child = self.table(table)?;
        let def = child.layout().def.clone();
        if let Some(taken) =
            def.foreign_keys.iter().find(|k| specs.iter().any(|s| s.name == k.name))
        {
            return Err(invalid(&taken.name, "a foreign key of this name exists"));
        }
        self.prove_foreign_keys(table, specs, validates, progress)?;
        let add_foreign_keys = specs.iter().map(|spec| spec.name.clone()).collect();
        let change = TableChange { add_foreign_keys, ..TableChange::default() };
        let added = self.alter_table(table, &change);
        if added.is_err() {
            forget_provisional(&child);
        }
        added
    }

    /// Enforces new foreign keys of a table and proves that its rows keep them, unless `validates`
    /// is false. The keys are in memory only until a change (`TableChange::add_foreign_keys`) makes
    /// them permanent, or `forget_foreign_keys` removes them.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyInvalid` and other faults of the definition; `ParentRowMissing`
    /// names a row that refers to nothing; `TableBusy`, `BuildCancelled`. Nothing is left behind
    /// then.
    pub fn prove_foreign_keys(
        self: &Arc<Self>,
        table: &str,
        specs: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        let proved = self.prove_keys(table, specs, validates, progress);
        progress.end();
        proved
    }

    /// Removes the keys of a table that were proved and not made permanent.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn forget_foreign_keys(&self, table: &str) -> Result<()> {
        forget_provisional(&*self.table(table)?);
        Ok(())
    }

    fn prove_keys(
        self: &Arc<Self>,
        name: &str,
        specs: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        let child = self.table(name)?;
        let wanted = TableSpec { foreign_keys: specs.to_vec(), ..TableSpec::default() };
        let parents = self.parents_of(name, &wanted, child.is_temporary())?;
        let mut tables = parents.clone();
        tables.push(child.clone());
        tables.sort_by_key(|table| table.id());
        let mut held = Vec::new();
        for table in &tables {
            let name = table.layout().def.name.clone();
            held.push(self.lock_to_build(&name, table, progress)?);
        }
        let links = provisional_links(&child, specs, &parents)?;
        for link in &links {
            match link.is_awaiting() {
                true => LinkList::await_parent(link, &child),
                false => LinkList::link(link, &child, &*link.parent()?),
            }
        }
        let proved = self.prove_links(&tables, &links, validates, progress);
        if proved.is_err() {
            links.iter().for_each(LinkList::cut);
        }
        proved
    }

    fn prove_links(
        self: &Arc<Self>,
        tables: &[Arc<Table>],
        links: &[Arc<Link>],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        for table in tables {
            self.pass_barrier(table)?;
        }
        progress.enter(BuildPhase::Waiting);
        for table in tables {
            if !fault_injection::is(Fault::KeyProvedEarly) {
                self.wait_writers(table, progress)?;
            }
        }
        if !validates {
            return Ok(());
        }
        let _building = self.sched.building(progress.stop());
        self.sched.begin_build_work();
        for link in links.iter().filter(|link| !link.is_awaiting()) {
            Proof::new(self, link, progress)?.run()?;
        }
        progress.complete();
        Ok(())
    }
}

/// Removes the keys that were proved, whatever name the table has now.
fn forget_provisional(table: &Table) {
    let links = table.links.own();
    links.iter().filter(|link| link.is_provisional()).for_each(LinkList::cut);
}

/// The links of new keys of a table, not set yet; each has a number that is free.
fn provisional_links(
    child: &Arc<Table>,
    specs: &[ForeignKeySpec],
    parents: &[Arc<Table>],
) -> Result<Vec<Arc<Link>>> {
    let def = child.layout().def.clone();
    let own = child.links.own();
    let mut links: Vec<Arc<Link>> = Vec::new();
    for spec in specs {
        let provisional = own.iter().filter(|link| link.is_provisional());
        if provisional.chain(&links).any(|link| link.key.name == spec.name) {
            return Err(invalid(&spec.name, "a foreign key of this name is being added"));
        }
        let is_free = |n: &u32| own.iter().chain(&links).all(|link| link.key.number != *n);
        let Some(number) = (1..=FOREIGN_KEYS_MAX as u32).find(is_free) else {
            let error = invalid(&def.name, "too many foreign keys");
            let count = own.len() + specs.len();
            return Err(error.with("count", count).with("limit", FOREIGN_KEYS_MAX));
        };
        let key = foreign_key_of(&def, number, spec, parents)?;
        if key.awaited.is_some() {
            links.push(Link::provisional_awaiting(key, child));
            continue;
        }
        let among = |table: &&Arc<Table>| table.id() == key.parent;
        let parent = parents.iter().chain([child]).find(among);
        let parent = parent.ok_or_else(|| Error::internal("a parent that was not found"))?;
        links.push(Link::provisional(key.clone(), child, parent));
    }
    Ok(links)
}

/// A part of the parent's key: the position of the part in the child's key, and both encodings.
struct Part {
    at: usize,
    of_child: KeyColumn,
    of_parent: KeyColumn,
}

/// The proof of one key at a snapshot.
struct Proof<'p> {
    store: &'p Arc<Store>,
    link: &'p Link,
    progress: &'p BuildProgress,
    txn: TableTxn,
    child: Arc<Table>,
    state: Arc<TableState>,
    of_child: KeyOf,
    parts: Vec<Part>,
    parents: Parents<'p>,
    budget: BuildBudget,
    rows: u64,
}

impl<'p> Proof<'p> {
    fn new(
        store: &'p Arc<Store>,
        link: &'p Link,
        progress: &'p BuildProgress,
    ) -> Result<Proof<'p>> {
        let gone = || Error::internal("a foreign key lost what it needs");
        let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadOnly);
        let (child, parent) = (link.child().ok_or_else(gone)?, link.parent()?);
        txn.use_table(&child)?;
        txn.use_table(&parent)?;
        let view = txn.view()?;
        let (state, of) = (child.state(), parent.state());
        let of_child = link.key.child_key(&state.layout.def).ok_or_else(gone)?;
        let of_parent = link.key.parent_key(&of.layout.def).ok_or_else(gone)?;
        let parts = parts_of(link, (&state.layout, of_child), (&of.layout, of_parent));
        let rows = state.tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
        progress.begin_table(0);
        progress.begin(BuildPhase::Scanning, store.rt.env.now_ns());
        progress.plan(rows, 1, 0);
        let parents = Parents { store, state: of, of: of_parent, view, cursor: None, at: None };
        Ok(Proof {
            store,
            link,
            progress,
            txn,
            child,
            state,
            of_child,
            parts: parts.ok_or_else(gone)?,
            parents,
            budget: BuildBudget::for_entries(rows, 0),
            rows: 0,
        })
    }

    fn run(mut self) -> Result<()> {
        let mut last = Vec::new();
        match self.of_child {
            KeyOf::Index(at) => {
                let id = self.state.layout.index_at(at)?.id;
                let snapshot = Snapshot::committed_at(self.parents.view.snapshot.at);
                let (all, forward) = (KeyRange::all(), Direction::Forward);
                let mut cursor = self.store.runs.cursor(id, all, forward, snapshot)?;
                while let Some(entry) = self.store.read_index(cursor.next())? {
                    self.look(entry.key, entry.pk, &mut last)?;
                }
            }
            KeyOf::Clustered => {
                let child = self.child.clone();
                let forward = evenkeel_tree::Direction::Forward;
                let mut scan = self.txn.scan(&child, Range::ALL, forward)?;
                let mut row = Row::new();
                while scan.next(&mut row)? {
                    self.look(row.key(), row.key(), &mut last)?;
                }
            }
        }
        let unreported = self.rows % ROWS_PER_POLL;
        self.report(unreported);
        self.progress.set_total_here(self.progress.rows_done_here());
        Ok(())
    }

    fn report(&self, rows: u64) {
        let now = self.store.rt.env.now_ns();
        self.progress.add_rows(rows, now);
        self.progress.add_written(rows, now);
    }

    /// Looks for the parent of the row `pk`, whose key begins with the foreign key's columns.
    /// `last` is the beginning of the key before it.
    fn look(&mut self, key: &[u8], pk: &[u8], last: &mut Vec<u8>) -> Result<()> {
        self.rows += 1;
        if self.rows.is_multiple_of(ROWS_PER_POLL) {
            self.report(ROWS_PER_POLL);
            self.store.rt.step();
            self.store.sched.give_way_to_users(1, &self.budget);
            self.progress.check()?;
        }
        if !last.is_empty() && key.starts_with(last) {
            return Ok(());
        }
        let mut wanted = Vec::with_capacity(key.len());
        let len = copy_key(&self.parts, key, &mut wanted)?;
        last.clear();
        last.extend_from_slice(&key[..len]);
        // Without bytes a part is NULL: such a row refers to nothing.
        if wanted.is_empty() || self.has_parent(&wanted)? {
            return Ok(());
        }
        Err(self.orphan(pk)?)
    }

    fn has_parent(&mut self, key: &[u8]) -> Result<bool> {
        match self.parents.of {
            KeyOf::Index(index) => self.parents.has(index, key),
            KeyOf::Clustered if self.parts.len() == self.parents.state.layout.key.len() => {
                let Parents { state, view, .. } = &self.parents;
                self.store.read(state, key, view, &mut Row::new())
            }
            KeyOf::Clustered => {
                let parent = self.link.parent()?;
                let range = ByteRange::under(key);
                let mut scan =
                    self.txn.scan_bytes(&parent, range, evenkeel_tree::Direction::Forward)?;
                scan.next(&mut Row::new())
            }
        }
    }

    /// The error that names a row without a parent.
    #[cold]
    fn orphan(&mut self, pk: &[u8]) -> Result<Error> {
        let mut row = Row::new();
        let child = self.child.clone();
        self.txn.get_by_key(&child, pk, &mut row)?;
        let layout = &self.state.layout;
        let shown = |columns: &mut dyn Iterator<Item = usize>| -> Result<String> {
            let brief = |at| row.value(at).map(|value| value.brief());
            Ok(columns.map(brief).collect::<Result<Vec<_>>>()?.join(", "))
        };
        let position = |id: u16| layout.columns.iter().position(|column| column.id == id);
        let mut of_key = self.link.key.columns.iter().filter_map(|pair| position(pair.0));
        let mut of_row = layout.key.iter().map(|part| part.column);
        let error = Error::new(Code::ParentRowMissing)
            .with("table", &layout.def.name)
            .with("constraint", &self.link.key.name)
            .with("parent", &self.parents.state.layout.def.name)
            .with("key", shown(&mut of_key)?);
        Ok(match layout.key.is_empty() {
            true => error,
            false => error.with("primary_key", shown(&mut of_row)?),
        })
    }
}

/// How the parent's key is made from the child's.
fn parts_of(
    link: &Link,
    (child, of_child): (&Layout, KeyOf),
    (parent, of_parent): (&Layout, KeyOf),
) -> Option<Vec<Part>> {
    let own = child.key_parts(of_child);
    let part = |of_parent: &KeyColumn| {
        let id = parent.columns[of_parent.column].id;
        let pair = link.key.columns.iter().find(|pair| pair.1 == id)?;
        let at = own.iter().position(|part| child.columns[part.column].id == pair.0)?;
        Some(Part { at, of_child: own[at], of_parent: *of_parent })
    };
    parent.key_parts(of_parent).iter().take(link.key.columns.len()).map(part).collect()
}

/// Appends the parent's key that belongs to a key of the child, or nothing if a part is NULL.
/// Returns the length of these parts in the child's key.
fn copy_key(parts: &[Part], key: &[u8], out: &mut Vec<u8>) -> Result<usize> {
    let mut ends = [0; evenkeel_format::limits::KEY_PARTS_MAX];
    let (mut rest, mut has_null) = (key, false);
    for (at, end) in ends.iter_mut().enumerate().take(parts.len()) {
        let part = parts.iter().find(|part| part.at == at);
        let part = part.ok_or_else(|| Error::internal("a key has another column"))?;
        has_null |= part.of_child.part.is_null(rest)?;
        rest = part.of_child.part.skip(rest)?;
        *end = key.len() - rest.len();
    }
    let len = key.len() - rest.len();
    if has_null {
        return Ok(len);
    }
    for Part { at, of_child, of_parent } in parts {
        let start = at.checked_sub(1).map_or(0, |before| ends[before]);
        let value = &key[start + usize::from(of_child.part.nullable)..ends[*at]];
        let flip = if of_child.part.desc == of_parent.part.desc { 0 } else { 0xff };
        out.extend(of_parent.part.not_null_byte());
        out.extend(value.iter().map(|byte| byte ^ flip));
    }
    Ok(len)
}

/// The parent's keys at the snapshot, searched in ascending order mostly.
struct Parents<'p> {
    store: &'p Store,
    state: Arc<TableState>,
    of: KeyOf,
    view: ReadView,
    cursor: Option<IndexCursor>,
    /// The key of the cursor's last entry.
    at: Option<Vec<u8>>,
}

impl Parents<'_> {
    /// Whether the index has an entry whose key begins with these bytes.
    fn has(&mut self, index: usize, key: &[u8]) -> Result<bool> {
        if self.is_found(key) {
            return Ok(true);
        }
        if self.at.as_deref().is_none_or(|at| at > key) {
            return self.search(index, key);
        }
        for _ in 0..PASSED_MAX {
            if self.at.as_deref().is_none_or(|at| at >= key) {
                return Ok(self.is_found(key));
            }
            self.advance()?;
        }
        self.search(index, key)
    }

    fn is_found(&self, key: &[u8]) -> bool {
        self.at.as_deref().is_some_and(|at| at.starts_with(key))
    }

    fn search(&mut self, index: usize, key: &[u8]) -> Result<bool> {
        let id = self.state.layout.index_at(index)?.id;
        let range = KeyRange { lower: Bound::Included(key.to_vec()), upper: Bound::Unbounded };
        let snapshot = Snapshot::committed_at(self.view.snapshot.at);
        self.cursor = Some(self.store.runs.cursor(id, range, Direction::Forward, snapshot)?);
        self.advance()?;
        Ok(self.is_found(key))
    }

    fn advance(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        match self.store.read_index(cursor.next())? {
            Some(entry) => {
                let at = self.at.get_or_insert_default();
                at.clear();
                at.extend_from_slice(entry.key);
            }
            None => self.at = None,
        }
        Ok(())
    }
}
