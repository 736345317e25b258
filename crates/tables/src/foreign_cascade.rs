//! Cascades of foreign keys: a change of a parent row changes the rows that refer to it.
//!
//! The operation on the parent has written its stamp and has waited for locks on the key that the
//! row leaves, so no other transaction can write another row that refers to the key. A locking scan
//! of the child's index then returns the rows that do, and each is deleted or updated like any
//! other row, with its undo, its entries and its own foreign keys. A row that is newer than the
//! transaction's snapshot is a conflict, like every change of such a row. If the statement fails,
//! the whole cascade is undone with it.
//!
//! The operations above the present one form a chain. It is at most `CASCADE_DEPTH_MAX` long, and a
//! table that an operation of the chain updates is not updated again: such a cascade might never
//! end. Deletes may meet a table again, because each takes a row away.

use crate::foreign::{CascadeStep, KeyOf};
use crate::foreign_rows::{LeftKey, in_order, position};
use crate::locked_scan::LockedScan;
use crate::range::Range;
use crate::row::Row;
use crate::scan::Locking;
use crate::table::{Table, TableState};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use crate::write::Target;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::catalog::ReferenceAction;
use evenkeel_format::limits::CASCADE_DEPTH_MAX;
use evenkeel_format::{Value, ValueRef};
use evenkeel_tree::Direction;
use std::sync::Arc;

impl TableTxn {
    /// Changes the rows of the child that refer to a key that was left; returns their number.
    pub(crate) fn cascade(&mut self, left: &LeftKey, child: &Arc<Table>) -> Result<u64> {
        let (table, updates) = (left.table.clone(), left.new.is_some());
        self.cascade.push(CascadeStep { table, updates, link: left.link.clone() });
        // What the operation above has waited for and changed is settled when it ends.
        let changed = std::mem::take(&mut self.changed);
        let waited = std::mem::take(&mut self.waited);
        let done = self.cascade_rows(left, child);
        (self.changed, self.waited) = (changed, waited);
        self.cascade.pop();
        done
    }

    fn cascade_rows(&mut self, left: &LeftKey, child: &Arc<Table>) -> Result<u64> {
        let Some(mut scan) = self.children(left, child)? else { return Ok(0) };
        let (mut row, mut rows) = (Row::new(), 0);
        while scan.next(&mut row)? {
            if rows == 0 {
                self.check_chain(left, child)?;
            }
            rows += 1;
            // Simulations switch threads between the lock and the change.
            self.store.rt.step();
            self.cascade_row(left, child, &row)?;
            self.store.rt.metrics.add(Metric::RowsCascaded, 1);
            scan.unlock();
        }
        Ok(rows)
    }

    /// A scan that locks the rows of the child that refer to the key; none if no row can.
    fn children(&mut self, left: &LeftKey, child: &Arc<Table>) -> Result<Option<LockedScan>> {
        let (link, state) = (&left.link, child.state());
        let layout = &state.layout;
        let of = link.key.child_key(&layout.def);
        let of = of.ok_or_else(|| Error::internal("the child of a foreign key has no index"))?;
        let parts = layout.key_parts(of);
        let values: Vec<ValueRef<'_>> = left.values.iter().map(Value::as_ref).collect();
        let values = in_order(link, parts, &state, |pair| pair.0, &values)?;
        if layout.encode_whole(parts, &values)?.is_none() {
            return Ok(None);
        }
        let (range, forward) = (Range::prefix(&values), Direction::Forward);
        let mut locking = Locking::EXCLUSIVE;
        if fault_injection::is(Fault::CascadeSkipsLocked) {
            locking.wait = crate::read::LockWait::Skip;
        }
        match of {
            KeyOf::Index(at) => self.locked_index_scan(child, at, range, forward, locking),
            KeyOf::Clustered => self.locked_scan(child, range, forward, locking),
        }
        .map(Some)
    }

    /// A planted fault: an update by a cascade does not change the last index.
    pub(crate) fn forgets_index(&self, layout: &Layout, at: usize) -> bool {
        fault_injection::is(Fault::CascadeForgetsIndex)
            && !self.cascade.is_empty()
            && at + 1 == layout.indexes.len()
    }

    /// Checks that the chain may go on to a row of the child.
    ///
    /// # Errors
    /// `CascadeTooDeep`; `RowReferenced` for an update of a table that the chain updates already.
    fn check_chain(&self, left: &LeftKey, child: &Arc<Table>) -> Result<()> {
        if self.cascade.len() > CASCADE_DEPTH_MAX {
            return Err(Error::new(Code::CascadeTooDeep)
                .with("table", &child.layout().def.name)
                .with("constraint", &left.link.key.name)
                .with("limit", CASCADE_DEPTH_MAX));
        }
        let updates = left.new.is_some() || left.action() == ReferenceAction::SetNull;
        let again = |step: &CascadeStep| step.updates && Arc::ptr_eq(&step.table, child);
        if updates && self.cascade.iter().any(again) {
            let why = "the update would come back to a table that it is changing";
            return Err(left.refused(child).with("why", why));
        }
        Ok(())
    }

    fn cascade_row(&mut self, left: &LeftKey, child: &Arc<Table>, row: &Row) -> Result<()> {
        let changed = match (left.action(), &left.new) {
            (ReferenceAction::Cascade, None) => {
                self.delete_row(child, Target::read(row)).map(|_| ())
            }
            (ReferenceAction::Cascade, Some(new)) => {
                let value = |at: usize| new[at].as_ref();
                changes(left, &child.state(), value).and_then(|changes| {
                    self.update_row(child, Target::read(row), &changes).map(|_| ())
                })
            }
            _ => {
                let changes = changes(left, &child.state(), |_| ValueRef::Null)?;
                self.update_row(child, Target::read(row), &changes).map(|_| ())
            }
        };
        changed.map_err(|error| match error.code() {
            Code::ValueRange | Code::NullNotAllowed => {
                let why = "the new key does not fit the child's columns";
                let column = error.context("column").unwrap_or_default().to_string();
                left.refused(child).with("why", why).with("column", column)
            }
            Code::DuplicateKey => Error::new(Code::CascadeDuplicate)
                .with("table", &child.layout().def.name)
                .with("constraint", &left.link.key.name)
                .with("index", error.context("index").unwrap_or_default()),
            _ => error,
        })
    }
}

/// The changes of a row of the child: the columns of the key get these values.
///
/// # Errors
/// `NullNotAllowed` for a column that takes no NULL.
fn changes<'v>(
    left: &LeftKey,
    state: &TableState,
    value: impl Fn(usize) -> ValueRef<'v>,
) -> Result<Vec<(usize, ValueRef<'v>)>> {
    let pairs = left.link.key.columns.iter().enumerate();
    let change = |(at, pair): (usize, &(u16, u16))| {
        let (to, value) = (position(state, pair.0)?, value(at));
        let column = &state.layout.columns[to];
        match matches!(value, ValueRef::Null) && !column.entry.nullable {
            true => Err(Error::new(Code::NullNotAllowed).with("column", &column.name)),
            false => Ok((to, value)),
        }
    };
    pairs.map(change).collect()
}
