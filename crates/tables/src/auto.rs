//! Auto-increment numbers. They are handed out from memory below a high-water mark in the catalog,
//! which is raised in steps. So they never go back, neither by a rollback nor by a crash. A clean
//! close writes the exact number, so only a crash leaves a gap.
//!
//! Invariants: number handed out < `next` <= mark in the catalog, except in `restart_numbers`. The
//! catalog has no mark of a dropped table: DROP holds the latch under which marks are written.

use crate::catalog::AUTO_INCREMENT;
use crate::store::Store;
use crate::table::Table;
use crate::table_layout::Layout;
use evenkeel_base::{Cause, Code, Error, Result};
use evenkeel_format::ValueRef;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Store {
    /// The number for the auto-increment column at `column`: the next one if the value is NULL
    /// (`had`: the number of an earlier attempt), none if a value is given.
    pub(crate) fn auto_number(
        self: &Arc<Self>,
        table: &Arc<Table>,
        layout: &Layout,
        column: usize,
        given: ValueRef<'_>,
        had: Option<u64>,
    ) -> Result<Option<u64>> {
        // The chunks of a table share its numbers.
        let whole = table.whole();
        let table = whole.as_ref().unwrap_or(table);
        let raise = |high| self.log_mark(table, high);
        let given = match given {
            ValueRef::Null => {
                if had.is_some() {
                    return Ok(had);
                }
                let number = self.next_number(&table.auto, &raise)?;
                let max = layout.columns[column].entry.ty.integer_max();
                if number > max || number == u64::MAX {
                    return Err(Error::new(Code::AutoIncrementExhausted)
                        .with("table", &layout.def.name)
                        .with("column", &layout.columns[column].name));
                }
                return Ok(Some(number));
            }
            ValueRef::Int(i) => u64::try_from(i).unwrap_or(0),
            ValueRef::UInt(u) => u,
            _ => return Ok(None),
        };
        self.pass_number(table, given)?;
        Ok(None)
    }

    /// Reserves `wanted` numbers of the series `offset`, `offset + increment`, ...; returns the
    /// first.
    ///
    /// # Errors
    /// `AutoIncrementExhausted` when no number is left, of storage.
    pub fn reserve_numbers(
        self: &Arc<Self>,
        table: &Arc<Table>,
        (offset, increment): (u64, u64),
        wanted: u64,
    ) -> Result<u64> {
        let increment = increment.max(1);
        let first_from = |have: u64| match have.checked_sub(offset) {
            None => Some(offset),
            Some(past) => {
                past.div_ceil(increment).checked_mul(increment).and_then(|n| n.checked_add(offset))
            }
        };
        let counter = &table.auto;
        let mut have = counter.next.load(Ordering::SeqCst);
        loop {
            let first = first_from(have).filter(|first| *first < u64::MAX).ok_or_else(|| {
                Error::new(Code::AutoIncrementExhausted).with("table", &table.layout().def.name)
            })?;
            let next = first.saturating_add(wanted.max(1).saturating_mul(increment));
            match counter.next.compare_exchange(have, next, Ordering::SeqCst, Ordering::SeqCst) {
                Err(now) => have = now,
                Ok(_) => {
                    self.raise_numbers(table, next - 1)?;
                    return Ok(first);
                }
            }
        }
    }

    /// Moves the next number from `from` to `to`, for a caller that computes its own series;
    /// returns whether it was still `from`. A `to` below `from` gives back numbers that were not
    /// handed out.
    ///
    /// # Errors
    /// Of storage.
    pub fn move_numbers(
        self: &Arc<Self>,
        table: &Arc<Table>,
        (from, to): (u64, u64),
    ) -> Result<bool> {
        let next = &table.auto.next;
        if next.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Ok(false);
        }
        if to > from {
            self.raise_numbers(table, to - 1)?;
        }
        Ok(true)
    }

    /// A row was given this number: the next ones are above it.
    ///
    /// # Errors
    /// Of storage.
    pub fn pass_number(self: &Arc<Self>, table: &Arc<Table>, number: u64) -> Result<()> {
        if number == u64::MAX {
            return Ok(());
        }
        // Another thread may have passed the number without raising the mark yet, and may fail to.
        if number >= table.auto.next.load(Ordering::SeqCst) {
            table.auto.next.fetch_max(number + 1, Ordering::SeqCst);
        }
        self.raise_numbers(table, number)
    }

    fn raise_numbers(self: &Arc<Self>, table: &Arc<Table>, number: u64) -> Result<()> {
        self.raise_above(&table.auto, number, &|high| self.log_mark(table, high))
    }

    /// Writes the mark to the catalog; the caller holds its latch. # Errors: `TableMissing`.
    fn log_mark(self: &Arc<Self>, table: &Table, high: u64) -> Result<()> {
        match table.is_gone() {
            _ if evenkeel_base::fault_injection::is(
                evenkeel_base::fault_injection::Fault::NumbersNotMarked,
            ) =>
            {
                Ok(())
            }
            true => Err(Error::new(Code::TableMissing).with("table", &table.layout().def.name)),
            false => self.log_counter(table.id(), AUTO_INCREMENT, high),
        }
    }

    /// The next number to be handed out.
    pub fn next_auto(&self, table: &Table) -> u64 {
        table.auto.next.load(Ordering::SeqCst)
    }

    /// Continues at `next`, which may be lower than before; no transaction may insert meanwhile.
    /// Durable when this returns, like the schema change that it belongs to.
    ///
    /// # Errors
    /// Of storage.
    pub fn restart_numbers(self: &Arc<Self>, table: &Arc<Table>, next: u64) -> Result<()> {
        // The value that `Counter::new` reads after the next open.
        let next = next.max(1);
        let _raising = table.auto.raise.lock(&self.rt, Cause::Schema);
        self.log_mark(table, next)?;
        self.log.wait_durable(self.log.end())?;
        table.auto.restart(next);
        Ok(())
    }

    /// Before the close: writes the exact numbers to the catalog.
    ///
    /// # Errors
    /// Of storage.
    pub fn settle_numbers(self: &Arc<Self>) -> Result<()> {
        for name in self.table_names() {
            let Ok(table) = self.table(&name) else { continue };
            match self.settle(&table) {
                Err(error) if error.code() == Code::TableMissing => {}
                settled => settled?,
            }
        }
        Ok(())
    }

    /// Lowers the mark to the next number. A concurrent insert either gets a number above the mark
    /// and raises it after this, or got one below and is seen here.
    fn settle(self: &Arc<Self>, table: &Arc<Table>) -> Result<()> {
        let counter = &table.auto;
        let _raising = counter.raise.lock(&self.rt, Cause::Schema);
        let before = counter.logged.load(Ordering::SeqCst);
        let mut next = counter.next.load(Ordering::SeqCst);
        loop {
            counter.logged.store(next, Ordering::SeqCst);
            match counter.next.load(Ordering::SeqCst) {
                now if now == next => break,
                now => next = now,
            }
        }
        if next == before {
            return Ok(());
        }
        let written = self.log_mark(table, next);
        if written.is_err() {
            counter.logged.store(before, Ordering::SeqCst);
        }
        written
    }
}
