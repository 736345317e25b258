//! The checks of foreign keys by row operations.
//!
//! A row that refers to another one (a child): the operation locks the key of the parent row in
//! shared mode, reads whether the key is there now, and writes the row; then it releases the lock.
//! From there on the undecided row stands for the lock, in a prepared transaction too. The lock is
//! on the key alone: a change of the parent row that leaves its key as it is neither waits nor is
//! waited for, and no snapshot makes it a conflict.
//!
//! A row to which others may refer (a parent): the operation writes its stamp, waits for locks on
//! the key that the row loses, and then reads the children's index as it is now, where an entry of
//! an undecided transaction, INS or DEL, is waited for. In the other order a child that reads the
//! key before the stamp and writes its row after the look would be left without a parent.
//!
//! Several parent rows may have one key. A child needs one of them, but each of them is refused or
//! cascades when it leaves the key, as in InnoDB. So which row a child has found does not matter.
//! How both sides look is in `foreign_look`.
//!
//! If the foreign key says so, rows of the child are changed then instead (`foreign_cascade`).
//!
//! MATCH SIMPLE: a key with a NULL refers to nothing. A row may refer to itself.

use crate::buffers::Buffers;
use crate::foreign::{KeyOf, Link};
use crate::foreign_look::Presence;
use crate::overflow;
use crate::read::LockWait;
use crate::table::{Table, TableState, Use};
use crate::table_layout::KeyColumn;
use crate::transaction::TableTxn;
use crate::write::Current;
use crate::write_parts::Applied;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::catalog::ReferenceAction;
use evenkeel_format::record::RowKind;
use evenkeel_format::{Value, ValueRef};
use evenkeel_txn::{LockSpace, Mode, Policy};
use std::sync::Arc;

/// Scans of a cascade in succession that find no row where a look found one: then its rows move
/// too often, or the index is damaged.
const VAIN_SCANS_MAX: u32 = 16;

/// Gives the value of the column at a position.
type ValueAt<'a, 'v> = &'a dyn Fn(usize) -> Result<ValueRef<'v>>;

/// A key that a row loses, and to which rows of a child may refer.
pub(crate) struct LeftKey {
    pub link: Arc<Link>,
    pub table: Arc<Table>,
    space: LockSpace,
    key: Vec<u8>,
    /// By the columns of the foreign key.
    pub values: Vec<Value>,
    /// The values that the row has now; none if it is deleted.
    pub new: Option<Vec<Value>>,
    /// They have the same key, in other bytes.
    keeps_key: bool,
}

impl LeftKey {
    /// What the foreign key does to rows that refer to the key.
    pub fn action(&self) -> ReferenceAction {
        match self.new {
            None => self.link.key.on_delete,
            Some(_) => self.link.key.on_update,
        }
    }

    /// Rows of the child refer to the key, and it cannot be left.
    #[cold]
    pub fn refused(&self, child: &Table) -> Error {
        let key = shown(self.values.iter().map(|value| value.as_ref().brief()));
        Error::new(Code::RowReferenced)
            .with("table", &self.table.layout().def.name)
            .with("constraint", &self.link.key.name)
            .with("child", &child.layout().def.name)
            .with("key", key)
    }
}

/// What an update owes to foreign keys: locks on parents' keys, and keys that its row loses.
#[derive(Default)]
pub(crate) struct Foreign {
    held: Vec<(LockSpace, Vec<u8>)>,
    left: Vec<LeftKey>,
}

/// The values of a key in the order of a table's parts; `side` takes the table's column of a pair.
pub(crate) fn in_order<'v>(
    link: &Link,
    parts: &[KeyColumn],
    state: &TableState,
    side: impl Fn(&(u16, u16)) -> u16,
    values: &[ValueRef<'v>],
) -> Result<Vec<ValueRef<'v>>> {
    let value = |part: &KeyColumn| {
        let id = state.layout.columns[part.column].id;
        let at = link.key.columns.iter().position(|pair| side(pair) == id);
        at.map(|at| values[at]).ok_or_else(|| Error::internal("a key has another column"))
    };
    parts.iter().take(link.key.columns.len()).map(value).collect()
}

/// The values of a foreign key's columns in a row; `None` if one is NULL.
pub(crate) fn values_of<'v>(
    link: &Link,
    state: &TableState,
    side: impl Fn(&(u16, u16)) -> u16,
    value: ValueAt<'_, 'v>,
) -> Result<Option<Vec<ValueRef<'v>>>> {
    let mut values = Vec::with_capacity(link.key.columns.len());
    for pair in &link.key.columns {
        match value(position(state, side(pair))?)? {
            ValueRef::Null => return Ok(None),
            value => values.push(value),
        }
    }
    Ok(Some(values))
}

/// The position of a column of a foreign key.
pub(crate) fn position(state: &TableState, id: u16) -> Result<usize> {
    let at = state.layout.columns.iter().position(|column| column.id == id);
    at.ok_or_else(|| Error::internal("a foreign key has an unknown column"))
}

/// The parent's key, or beginning of keys, that has these values: where it is locked, which key it
/// is, its bytes. `None` if no row can have it.
pub(crate) fn parent_key(
    link: &Link,
    state: &TableState,
    values: &[ValueRef<'_>],
) -> Result<Option<(LockSpace, KeyOf, Vec<u8>)>> {
    let layout = &state.layout;
    let of = link.key.parent_key(&layout.def);
    let of = of.ok_or_else(|| Error::internal("the parent of a foreign key has no key for it"))?;
    let space = match of {
        KeyOf::Clustered => LockSpace::Keys(state.tree.id()),
        KeyOf::Index(at) => LockSpace::Index(layout.indexes[at].id),
    };
    let parts = layout.key_parts(of);
    let values = in_order(link, parts, state, |pair| pair.1, values)?;
    let key = layout.encode_whole(parts, &values)?;
    Ok(key.map(|key| (space, of, key)))
}

fn shown(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(", ")
}

impl TableTxn {
    /// Applies the prepared insert; the rows that it refers to stay there meanwhile.
    pub(crate) fn apply_insert<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
        b: &mut Buffers,
    ) -> Result<Applied> {
        let held = match self.hold_parents(table, state, None, value) {
            // A duplicate counts first: the row may be changed or left out then.
            Err(error) if error.code() == Code::ParentRowMissing => {
                return match self.duplicate_of(state, b)? {
                    Some((index, pk)) => Ok(Applied::Duplicate(index, pk)),
                    None => Err(error),
                };
            }
            held => held?,
        };
        if table.links.get().is_some() {
            // Simulations switch threads between the look at the parents and the write.
            self.store.rt.step();
        }
        let applied = self.apply(table, state, RowKind::Insert, None, b);
        self.release_parents(held);
        applied
    }

    /// The present row that has a key of the prepared one.
    fn duplicate_of(
        &mut self,
        state: &TableState,
        b: &mut Buffers,
    ) -> Result<Option<(Option<usize>, Vec<u8>)>> {
        if let Current::Live(..) = self.read_current(state, &b.key, &mut b.old_row)? {
            return Ok(Some((None, b.key.clone())));
        }
        for (at, key) in &b.unique {
            let index = state.layout.indexes[*at].id;
            if let Some(pk) = self.current_pks(index, key, LockWait::Wait)?.pop() {
                return Ok(Some((Some(*at), pk)));
            }
        }
        Ok(None)
    }

    /// What an update owes to foreign keys, before it is applied; parents' keys are locked then.
    pub(crate) fn foreign_of_update<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        old: ValueAt<'_, 'v>,
        new: ValueAt<'_, 'v>,
    ) -> Result<Foreign> {
        if table.links.get().is_none() {
            return Ok(Foreign::default());
        }
        let left = self.keys_left(table, state, old, Some(new))?;
        Ok(Foreign { held: self.hold_parents(table, state, Some(old), new)?, left })
    }

    /// Ends what `foreign_of_update` has begun.
    pub(crate) fn end_foreign(
        &mut self,
        Foreign { held, left }: Foreign,
        applied: Result<Applied>,
    ) -> Result<Applied> {
        self.release_parents(held);
        if matches!(applied, Ok(Applied::Done)) {
            self.check_left(left)?;
        }
        applied
    }

    /// Locks the keys of the rows that a new version refers to, and checks that they are there.
    /// Not those to which the version before it refers as well.
    fn hold_parents<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        old: Option<ValueAt<'_, 'v>>,
        new: ValueAt<'_, 'v>,
    ) -> Result<Vec<(LockSpace, Vec<u8>)>> {
        let mut held = Vec::new();
        let Some(links) = table.links.get().filter(|_| self.checks_foreign_keys) else {
            return Ok(held);
        };
        for link in &links.parents {
            // The row gets the key of a row that this operation has just changed.
            if self.cascade.last().is_some_and(|step| Arc::ptr_eq(&step.link, link)) {
                continue;
            }
            let Some(values) = values_of(link, state, |pair| pair.0, new)? else { continue };
            if let Some(old) = old
                && values_of(link, state, |pair| pair.0, old)?.as_ref() == Some(&values)
            {
                continue;
            }
            let locked = self.hold_parent(link, (table, state, new), &values);
            match locked {
                Ok(locked) => held.extend(locked),
                Err(error) => {
                    self.release_parents(held);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// Locks one parent's key; the result has it if the lock is new.
    fn hold_parent<'v>(
        &mut self,
        link: &Arc<Link>,
        (table, state, new): (&Arc<Table>, &Arc<TableState>, ValueAt<'_, 'v>),
        values: &[ValueRef<'v>],
    ) -> Result<Option<(LockSpace, Vec<u8>)>> {
        if let Some(awaited) = link.key.awaited.as_ref().filter(|_| !link.is_replaced()) {
            return Err(no_parent_row(link, table, &awaited.table, values));
        }
        let parent = link.parent();
        let entered = parent.and_then(|parent| self.enter(&parent, Use::Read).map(|()| parent));
        if link.is_dropped() {
            return Ok(None);
        }
        if link.is_replaced() {
            return match table.links.successor(link) {
                Some(link) => self.hold_parent(&link, (table, state, new), values),
                None => Ok(None),
            };
        }
        let parent = entered?;
        loop {
            self.inner.check_cancel()?;
            let refers_to_self = Arc::ptr_eq(&parent, table);
            let there = if refers_to_self { state.clone() } else { parent.state() };
            let Some((space, of, key)) = parent_key(link, &there, values)? else {
                return Err(parent_missing(link, table, &there, values));
            };
            if refers_to_self
                && let Some(own) = values_of(link, state, |pair| pair.1, new)?
                && parent_key(link, &there, &own)?.is_some_and(|(.., own)| own == key)
            {
                return Ok(None);
            }
            let before = self.inner.locked_rows();
            if !fault_injection::is(Fault::ParentNotLocked) {
                let policy = Policy::Wait(self.deadline());
                let at = (space, &key[..]);
                self.store.txns.lock_row(&self.inner, at, false, Mode::Shared, policy)?;
            }
            let is_new = self.inner.locked_rows() > before;
            let seen = self.parent_now(link, &there, (of, &key));
            if let Ok(Presence::There) = seen {
                return Ok(is_new.then_some((space, key)));
            }
            if is_new {
                self.release_parents(vec![(space, key)]);
            }
            match seen? {
                Presence::There | Presence::Left => {}
                Presence::Missing => return Err(parent_missing(link, table, &there, values)),
                // Without the lock: the other one may be waiting for it.
                Presence::Undecided(other) => self.wait_txn(other)?,
                Presence::Undone(key, stamp) => {
                    self.store.roll_back_on_touch(&there.tree, &key, stamp)?;
                }
            }
        }
    }

    fn release_parents(&self, held: Vec<(LockSpace, Vec<u8>)>) {
        for (space, key) in held {
            self.store.txns.unlock_row(&self.inner, space, &key, Mode::Shared, false);
        }
    }

    /// The keys that a row loses, and to which rows of other tables may refer: all of them if there
    /// is no new version.
    pub(crate) fn keys_left<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        old: ValueAt<'_, 'v>,
        new: Option<ValueAt<'_, '_>>,
    ) -> Result<Vec<LeftKey>> {
        let mut left = Vec::new();
        let Some(links) = table.links.get().filter(|_| self.checks_foreign_keys) else {
            return Ok(left);
        };
        for link in &links.children {
            let Some(values) = values_of(link, state, |pair| pair.1, old)? else { continue };
            let Some((space, _, key)) = parent_key(link, state, &values)? else { continue };
            // With the same key in other bytes (another case) the row takes those along.
            let takes_along = link.key.on_update == ReferenceAction::Cascade;
            let mut keeps_key = false;
            if let Some(new) = new
                && let Some(new) = values_of(link, state, |pair| pair.1, new)?
                && parent_key(link, state, &new)?.is_some_and(|(.., new)| new == key)
            {
                if new == values || !takes_along {
                    continue;
                }
                keeps_key = true;
            }
            let values = values.iter().map(|value| ValueRef::to_owned(*value)).collect();
            let of_pair =
                |new: ValueAt<'_, '_>, id| new(position(state, id)?).map(|value| value.to_owned());
            let all = |new| link.key.columns.iter().map(|pair| of_pair(new, pair.1)).collect();
            let new = new.map(all).transpose()?;
            let (link, table) = (link.clone(), table.clone());
            let left_key = LeftKey { link, table, space, key, values, new, keeps_key };
            if fault_injection::is(Fault::ChildrenBeforeStamp) {
                self.check_left_key(&left_key)?;
                continue;
            }
            left.push(left_key);
        }
        // As InnoDB: keys to the primary key come first, then those to each index.
        left.sort_by_key(|left| match left.space {
            LockSpace::Index(index) => Some(index),
            LockSpace::Tree(_) | LockSpace::Keys(_) => None,
        });
        if !left.is_empty() {
            // Simulations switch threads between the look at the links and the write.
            self.store.rt.step();
        }
        Ok(left)
    }

    /// As `keys_left`, for a row that is deleted.
    pub(crate) fn keys_left_by_delete(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        key: &[u8],
        row: &[u8],
    ) -> Result<Vec<LeftKey>> {
        if table.links.get().is_none_or(|links| links.children.is_empty()) {
            return Ok(Vec::new());
        }
        let wanted = |i: usize, _: u32| state.layout.is_indexed(i);
        let loaded = overflow::load(&state.tree, &state.layout, key, row, &wanted)?;
        let old = state.layout.view(key, row)?.with_loaded(&loaded);
        self.keys_left(table, state, &|i| old.value(i), None)
    }

    /// Enters a table whose rows are to be changed, and those whose rows may refer to them. This
    /// comes before the stamp: with the stamp, an operation that waits for a closed table would
    /// hold up writers inside that table, for which the schema change waits.
    pub(crate) fn enter_to_change(&mut self, table: &Arc<Table>) -> Result<()> {
        self.enter(table, Use::Write)?;
        for link in table.links.get().iter().flat_map(|links| &links.children) {
            if let Some(child) = link.child() {
                self.enter_child(&child)?;
            }
        }
        Ok(())
    }

    /// Enters a table whose rows may refer to a changed one; false if that table was dropped.
    fn enter_child(&mut self, child: &Arc<Table>) -> Result<bool> {
        match self.enter(child, Use::Read) {
            Err(error) if error.code() == Code::TableMissing && child.is_gone() => Ok(false),
            entered => entered.map(|()| true),
        }
    }

    /// The stamp is on the row: no row may refer to the keys that it has lost.
    pub(crate) fn check_left(&mut self, left: Vec<LeftKey>) -> Result<()> {
        left.iter().try_for_each(|left| self.check_left_key(left))
    }

    fn check_left_key(&mut self, left: &LeftKey) -> Result<()> {
        let LeftKey { link, space, key, values, .. } = left;
        self.store.rt.step();
        if !self.store.txns.check_write(&self.inner, *space, key).is_empty() {
            self.store.txns.wait_written(&self.inner, *space, key, self.deadline())?;
        }
        let Some(child) = link.child() else { return Ok(()) };
        if !self.enter_child(&child)? || link.is_dropped() {
            return Ok(());
        }
        let cascades = matches!(left.action(), ReferenceAction::Cascade | ReferenceAction::SetNull);
        let mut vain = 0;
        let once = left.keeps_key || fault_injection::is(Fault::CascadeSkipsLocked);
        loop {
            self.inner.check_cancel()?;
            let state = child.state();
            match self.child_now(link, &state, values)? {
                Presence::Missing => return Ok(()),
                // The scan of a cascade misses rows that others move meanwhile to a key that it has
                // passed, so it is repeated until there is none.
                Presence::There | Presence::Undecided(_) if cascades => {
                    let rows = self.cascade(left, &child)?;
                    if once || fault_injection::is(Fault::LookedOnce) {
                        return Ok(());
                    }
                    vain = if rows > 0 { 0 } else { vain + 1 };
                    if vain == VAIN_SCANS_MAX {
                        let moves = Error::new(Code::RowChanged);
                        return Err(moves.with("table", &child.layout().def.name));
                    }
                }
                Presence::There => return Err(left.refused(&child)),
                Presence::Left => {}
                Presence::Undecided(other) => self.wait_txn(other)?,
                Presence::Undone(key, stamp) => {
                    self.store.roll_back_on_touch(&state.tree, &key, stamp)?;
                }
            }
        }
    }
}

#[cold]
fn parent_missing(
    link: &Link,
    table: &Table,
    parent: &TableState,
    values: &[ValueRef<'_>],
) -> Error {
    no_parent_row(link, table, &parent.layout.def.name, values)
}

#[cold]
fn no_parent_row(link: &Link, table: &Table, parent: &str, values: &[ValueRef<'_>]) -> Error {
    Error::new(Code::ParentRowMissing)
        .with("table", &table.layout().def.name)
        .with("constraint", &link.key.name)
        .with("parent", parent)
        .with("key", shown(values.iter().map(|value| value.brief())))
}
