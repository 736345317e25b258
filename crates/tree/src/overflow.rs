//! Long values in chains of overflow pages (E4). A chain is written once, by one operation whose
//! stamp it carries, never changed, and freed by the owner of the row version that refers to it.
//! Values stream in and out, a page at a time; a value has at most 4 GiB - 1 bytes.
//!
//! Each page is logged as it is written, with room reserved for that page only, so a value of any
//! length neither fills the log at once nor lies in memory. Behind the first MiB only the chain is
//! logged, not the data (E4): every page's place, owner and position, so that redo finds the chain
//! whole and can free it. `finish` makes the pages durable and then names them in a record (E3).
//! The record that makes the chain reachable, that of its row, comes after that.
//!
//! A chain whose writer dies before its row record is appended is unreachable: a caller that gives
//! a `watch` learns the first page before it is logged, and can free the chain later.

use crate::tree::{Tree, change};
use crate::unlogged_gate::Patience;
use evenkeel_base::{Code, Error, PageNo, Result, Stamp, metrics::Metric};
use evenkeel_format::limits::VALUE_BYTES_MAX;
use evenkeel_format::node::KIND_NONE;
use evenkeel_format::overflow::{OVERFLOW_HEADER_BYTES, OverflowPage};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_pages::{Access, Mtr};
use std::ops::Range;

pub use evenkeel_format::overflow::OverflowRef;

/// Bytes of a value whose pages are logged with their data.
pub(crate) const LOGGED_VALUE_BYTES: u64 = 1 << 20;

/// Ranges of pages that one record names, and the most bytes of one such name.
const NAMES_MAX: usize = 50_000;
const NAME_BYTES: usize = 16;

/// Writes one value.
pub struct OverflowWriter {
    tree: Tree,
    owner: Stamp,
    head: Option<PageNo>,
    last: Option<PageNo>,
    position: u32,
    len: u64,
    data: Vec<u8>,
    /// Pages whose data is not in the log.
    unlogged: Vec<Range<u64>>,
    watch: Option<Watch>,
    patience: Option<Patience>,
}

/// Hears the first page of a chain before its record is appended.
pub type Watch = Box<dyn FnMut(PageNo) + Send>;

impl OverflowWriter {
    /// Starts a value that operation `owner` stores in `tree`.
    pub fn new(tree: &Tree, owner: Stamp) -> OverflowWriter {
        let data = Vec::with_capacity(data_bytes_max(tree));
        OverflowWriter {
            tree: tree.clone(),
            owner,
            head: None,
            last: None,
            position: 0,
            len: 0,
            data,
            unlogged: Vec::new(),
            watch: None,
            patience: None,
        }
    }

    /// Asks `patience` while it waits for a backup.
    #[must_use]
    pub fn patient(mut self, patience: Patience) -> OverflowWriter {
        self.patience = Some(patience);
        self
    }

    /// Registers `watch`, called once, under the first page's latch: it must not wait.
    #[must_use]
    pub fn watched(mut self, watch: Watch) -> OverflowWriter {
        self.watch = Some(watch);
        self
    }

    /// Bytes written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `ValueTooLong` beyond 4 GiB - 1; `TreeGone`; those of log and pages.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        check_len(self.len + bytes.len() as u64)?;
        let max = data_bytes_max(&self.tree);
        while !bytes.is_empty() {
            if self.data.len() == max {
                self.flush()?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(max - self.data.len()));
            self.data.extend_from_slice(now);
            self.len += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes the full page, and links it behind the one before.
    fn flush(&mut self) -> Result<()> {
        let before = self.len - self.data.len() as u64;
        let logged = before < self.tree.trees().logged_value_bytes();
        if !logged {
            self.tree.pass_unlogged_gate(self.tree.pages().page_size(), self.patience.as_ref())?;
        }
        let tree = &self.tree;
        let mut reserved = tree.reserve_log()?;
        let mut mtr = tree.pages().begin(2)?;
        let last = self.last.map(|last| mtr.write(last)).transpose()?;
        // The tree may have been dropped since: its pages then belong to others, or to nobody.
        if last.is_some_and(|last| mtr.tree(last) != tree.id() || !self.owns(mtr.page(last))) {
            return Err(Error::new(Code::TreeGone).with("tree", tree.id()));
        }
        let slot = mtr.alloc(tree.id(), self.last)?;
        let page = mtr.page_no(slot);
        if let Some(mut watch) = self.watch.take() {
            watch(page);
        }
        let (owner, position) = (self.owner, self.position);
        let content = OverflowPage { next: None, owner, position, data: &self.data };
        let mut apply = || {
            match logged {
                true => change(&mut mtr, slot, &TreeOp::Overflow(&encoded(&content)))?,
                false => put_unlogged(&mut mtr, slot, &content)?,
            }
            last.map_or(Ok(()), |last| change(&mut mtr, last, &TreeOp::OverflowNext(page)))
        };
        apply().map_err(|e| tree.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        if !logged {
            tree.trees().rt.metrics.add(Metric::UnloggedValueBytes, self.data.len() as u64);
            match self.unlogged.last_mut() {
                Some(range) if range.end == page.0 => range.end += 1,
                _ => self.unlogged.push(page.0..page.0 + 1),
            }
        }
        self.head.get_or_insert(page);
        self.last = Some(page);
        self.position += 1;
        self.data.clear();
        Ok(())
    }

    fn owns(&self, page: &[u8]) -> bool {
        OverflowPage::parse(page).is_ok_and(|page| page.owner == self.owner)
    }

    /// Ends the value.
    ///
    /// # Errors
    /// Of log and pages.
    pub fn finish(mut self) -> Result<OverflowRef> {
        if self.head.is_none() || !self.data.is_empty() {
            self.flush()?;
        }
        self.make_durable()?;
        self.reference()
    }

    /// Makes the pages that are not in the log durable, and names them.
    fn make_durable(&mut self) -> Result<()> {
        let Some(head) = self.head.filter(|_| !self.unlogged.is_empty()) else { return Ok(()) };
        let tree = &self.tree;
        self.unlogged.sort_unstable_by_key(|range| range.start);
        tree.pages().flush_pages(&self.unlogged)?;
        for names in self.unlogged.chunks(NAMES_MAX) {
            self.tree.pass_unlogged_gate(0, self.patience.as_ref())?;
            let mut reserved = tree.reserve_log_and(names.len() * NAME_BYTES)?;
            let mut mtr = tree.pages().begin(1)?;
            let slot = mtr.write(head)?;
            mtr.name_unlogged(slot, names);
            mtr.commit(&mut reserved);
        }
        Ok(())
    }

    fn reference(&self) -> Result<OverflowRef> {
        let head = self.head.ok_or_else(|| Error::internal("an overflow chain without pages"))?;
        Ok(OverflowRef { head, len: self.len as u32, owner: self.owner })
    }

    /// Frees everything that was written.
    ///
    /// # Errors
    /// Of log and pages.
    pub fn abandon(self) -> Result<()> {
        if self.head.is_some() { free(&self.tree, &self.reference()?) } else { Ok(()) }
    }
}

/// Reads one value.
pub struct OverflowReader {
    tree: Tree,
    value: OverflowRef,
    next: Option<PageNo>,
    position: u32,
    /// Bytes of the value not read from pages yet.
    rest: u32,
    data: Vec<u8>,
    at: usize,
}

impl OverflowReader {
    /// Starts reading a value of `tree`.
    pub fn new(tree: &Tree, value: OverflowRef) -> OverflowReader {
        OverflowReader {
            tree: tree.clone(),
            value,
            next: Some(value.head),
            position: 0,
            rest: value.len,
            data: Vec::new(),
            at: 0,
        }
    }

    /// Fills part of `buf`; 0 at the end of the value.
    ///
    /// # Errors
    /// `OverflowDamaged` if the chain is not the one referred to; those of pages.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.at == self.data.len() && self.rest > 0 {
            self.fetch()?;
        }
        let n = buf.len().min(self.data.len() - self.at);
        buf[..n].copy_from_slice(&self.data[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }

    /// Appends the rest of the value.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_to_end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        loop {
            out.extend_from_slice(&self.data[self.at..]);
            self.at = self.data.len();
            if self.rest == 0 {
                return Ok(());
            }
            self.fetch()?;
        }
    }

    fn fetch(&mut self) -> Result<()> {
        let page = self.next.ok_or_else(|| damaged(&self.tree, &self.value, "ends too early"))?;
        let read = self.tree.pages().read(page, Access::UseOnce)?;
        let part = OverflowPage::parse(&read)?;
        let fits = read.tree() == self.tree.id()
            && part.owner == self.value.owner
            && part.position == self.position
            && (1..=self.rest as usize).contains(&part.data.len());
        if !fits {
            return Err(damaged(&self.tree, &self.value, "a page of another chain"));
        }
        self.data.clear();
        self.data.extend_from_slice(part.data);
        self.at = 0;
        self.rest -= part.data.len() as u32;
        self.next = part.next;
        self.position += 1;
        Ok(())
    }
}

/// Frees a chain. If it is interrupted at any point (error, crash) it can be repeated: the pages
/// behind the first are freed one by one, the first one last. Does nothing if the chain is gone.
///
/// # Errors
/// Of log and pages.
pub fn free(tree: &Tree, value: &OverflowRef) -> Result<()> {
    loop {
        // The page of a chain that is gone may have no image any more.
        if !tree.pages().is_used_by(value.head, tree.id()) {
            return Ok(());
        }
        let mut reserved = tree.reserve_log()?;
        let mut mtr = tree.pages().begin(3)?;
        let head = match mtr.write(value.head) {
            // A concurrent rollback of the operation may have freed it since: its blocks are gone.
            Err(_) if !tree.pages().is_used_by(value.head, tree.id()) => return Ok(()),
            head => head?,
        };
        // A page freed before it was latched was read back in its last written state.
        if !tree.pages().is_used_by(value.head, tree.id()) {
            return Ok(());
        }
        let next = match OverflowPage::parse(mtr.page(head)) {
            Ok(page) if mtr.tree(head) == tree.id() && owns(value, &page, 0) => page.next,
            _ => return Ok(()),
        };
        tree.trees().rt.step();
        let Some(next) = next else {
            mtr.free(head)?;
            mtr.page_mut(head)[0] = KIND_NONE;
            mtr.commit(&mut reserved);
            return Ok(());
        };
        let slot = mtr.write(next)?;
        let page = OverflowPage::parse(mtr.page(slot))?;
        if page.owner != value.owner || mtr.tree(slot) != tree.id() {
            return Err(damaged(tree, value, "a page of another chain"));
        }
        let behind = page.next.unwrap_or(PageNo::ZERO);
        mtr.free(slot)?;
        change(&mut mtr, head, &TreeOp::OverflowNext(behind))
            .map_err(|e| tree.trees().rt.health.fail(e))?;
        mtr.page_mut(slot)[0] = KIND_NONE;
        mtr.commit(&mut reserved);
    }
}

/// The pages of a chain, as far as it is the one referred to: for checks, while others may free it.
/// Every page still in use when this returns was named; some pages may be named twice.
///
/// # Errors
/// Of pages; a chain cut short is no error.
pub fn pages(tree: &Tree, value: &OverflowRef, f: &mut dyn FnMut(PageNo)) -> Result<()> {
    let mut before = None;
    // A concurrent free takes the second page each time. A walk that meets a page that has just
    // gone has not seen the pages behind it, to which the first page leads now.
    while let Some(second) = walk(tree, value, f)? {
        if before.replace(second) == Some(second) {
            break;
        }
    }
    Ok(())
}

/// Names the pages of a chain. Returns the second one, if a page is missing before the end.
fn walk(tree: &Tree, value: &OverflowRef, f: &mut dyn FnMut(PageNo)) -> Result<Option<PageNo>> {
    let (mut at, mut second, mut left) = (Some(value.head), None, u64::from(value.len) + 1);
    while let Some(page) = at {
        if !tree.pages().is_used_by(page, tree.id()) {
            return Ok(second);
        }
        let read = match tree.pages().read(page, Access::UseOnce) {
            Err(_) if !tree.pages().is_used_by(page, tree.id()) => return Ok(second),
            read => read?,
        };
        let part = match OverflowPage::parse(&read) {
            Ok(part) if read.tree() == tree.id() && part.owner == value.owner => part,
            _ => return Ok(second),
        };
        f(page);
        left = left.saturating_sub(part.data.len() as u64);
        // A chain being written has no length yet: its pages then end it.
        at = part.next.filter(|_| left > 0);
        second = second.or(at);
        drop(read);
        tree.trees().rt.step();
    }
    Ok(None)
}

/// # Errors
/// `ValueTooLong`.
pub(crate) fn check_len(bytes: u64) -> Result<()> {
    if bytes <= u64::from(VALUE_BYTES_MAX) {
        return Ok(());
    }
    let error = Error::new(Code::ValueTooLong).with("bytes", bytes);
    Err(error.with("limit", VALUE_BYTES_MAX))
}

fn encoded(page: &OverflowPage<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OVERFLOW_HEADER_BYTES + page.data.len());
    page.encode(&mut bytes);
    bytes
}

/// Writes a new page of which only the part before the data is logged.
fn put_unlogged(mtr: &mut Mtr<'_>, slot: usize, content: &OverflowPage<'_>) -> Result<()> {
    let mut payload = encoded(content);
    payload.resize(mtr.page(slot).len(), 0);
    mtr.write_unlogged(slot, &payload)?;
    let head = encoded(&OverflowPage { data: &[], ..*content });
    let op = TreeOp::Overflow(&head);
    payload.clear();
    op.encode(&mut payload);
    mtr.op(slot, op.number(), &payload);
    Ok(())
}

fn owns(value: &OverflowRef, page: &OverflowPage<'_>, position: u32) -> bool {
    page.owner == value.owner && page.position == position
}

fn damaged(tree: &Tree, value: &OverflowRef, why: &'static str) -> Error {
    Error::new(Code::OverflowDamaged)
        .with("tree", tree.id())
        .with("page", value.head)
        .with("why", why)
}

fn data_bytes_max(tree: &Tree) -> usize {
    tree.pages().payload_size() - OVERFLOW_HEADER_BYTES
}
