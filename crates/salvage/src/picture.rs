//! The picture of a damaged directory: everything that can be read, brought to the end of the
//! readable log, and the rows of a tree in it.
//!
//! A row is given as `Found::Row` only if the leaf that counts for its key holds it, that leaf's
//! page is not known to be out of use, and the operation that wrote it is known to have committed
//! (or the version before is). Everything else is `Found::SetAside`.

use crate::leaves::{KeyRange, Leaf, Leaves, Piece};
use crate::log::{Log, Reach};
use crate::outcome::{Outcome, Outcomes, Version};
use crate::redo::{Redo, RowFact};
use crate::source::{Damage, From, Source};
use crate::space::{Space, Use};
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, Stamp, TreeId};
use evenkeel_format::node::Node;
use evenkeel_format::overflow::{KIND_OVERFLOW, OverflowPage, OverflowRef};
use evenkeel_format::page::{self, HEADER_BYTES, PageHeader, PageKind};
use evenkeel_format::record::RecordKind;
use evenkeel_format::record::cell_flags::{DELETED, FIRST, STAMPED};
use evenkeel_format::space::ExtentState;

/// Versions followed backwards of one row, at most: more means a circle.
const VERSIONS_MAX: usize = 1 << 20;

/// Why a row does not go into its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its transaction had neither committed nor aborted where the log ends.
    Undecided,
    /// The records that tell whether it was committed are lost.
    OutcomeLost,
    /// The space map does not list its page as in use by the tree.
    UnlistedPage,
    /// Its page is a copy that may be older than changes whose log is gone.
    OldCopy,
    /// No table of the catalog has its tree: the table was dropped, or its definition is lost.
    UnknownTree,
    /// The table's definition in the catalog is incomplete.
    DefinitionLost,
    /// Its bytes do not decode.
    Undecodable,
    /// A long value of it is damaged.
    LongValue,
    /// A value cannot be expressed in the output.
    Inexpressible,
}

impl Reason {
    /// A sentence's end.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Undecided => "its transaction had not ended",
            Reason::OutcomeLost => "the log that tells whether it was committed is lost",
            Reason::UnlistedPage => "its page is not listed as in use",
            Reason::OldCopy => "its page is damaged, and the copy of the page may be old",
            Reason::UnknownTree => "no table of the catalog has its tree",
            Reason::DefinitionLost => "the definition of its table is incomplete",
            Reason::Undecodable => "its bytes do not decode",
            Reason::LongValue => "a long value of it is damaged",
            Reason::Inexpressible => "a value of it cannot be expressed in the output",
        }
    }
}

/// A row of a tree, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Clustered key.
    pub key: &'a [u8],
    /// Row bytes.
    pub row: &'a [u8],
    /// Its page.
    pub page: PageNo,
    /// LSN of the page, or of the record if the row comes from the log.
    pub lsn: Lsn,
}

/// What a walk through a tree finds, in ascending order of keys.
#[derive(Debug)]
pub enum Found<'a> {
    /// A row of the table.
    Row(Stored<'a>),
    /// A row that does not go into the table.
    SetAside(Stored<'a>, Reason),
    /// Keys of which rows may be missing.
    Lost(KeyRange),
    /// A deleted or superseded row on a page out of use; it is only counted.
    Superseded,
}

/// The range of one key.
pub fn only(key: &[u8]) -> KeyRange {
    let mut high = key.to_vec();
    high.push(0);
    KeyRange { low: key.to_vec(), high: Some(high) }
}

/// See the module's documentation.
pub struct Picture {
    /// The files.
    pub source: Source,
    /// How far the log was read, if there is a position to begin at.
    pub reach: Option<Reach>,
    /// What is wrong, in sentences.
    pub problems: Vec<String>,
    /// What the sweep found.
    pub damage: Damage,
    /// Leaves by tree.
    pub leaves: Leaves,
    /// Changes of pages by the log.
    pub redo: Redo,
    /// What became of operations.
    pub outcomes: Outcomes,
    space: Space,
}

impl Picture {
    /// Reads the directory.
    ///
    /// # Errors
    /// As `Source::open`; those of the environment.
    pub fn read(source: Source) -> Result<Picture> {
        let log = Log::open(&source)?;
        let mut problems = source.problems.clone();
        problems.extend(log.problems.iter().cloned());
        let mut picture = Picture {
            outcomes: Outcomes::new(source.superblock.as_ref().map(|s| s.checkpoint)),
            source,
            reach: None,
            problems,
            damage: Damage::default(),
            leaves: Leaves::default(),
            redo: Redo::default(),
            space: Space::default(),
        };
        picture.replay(&log)?;
        picture.read_space();
        picture.sweep()?;
        Ok(picture)
    }

    fn replay(&mut self, log: &Log) -> Result<()> {
        let superblock = self.source.superblock.clone();
        let Some(from) = superblock.as_ref().map(|s| s.redo).or_else(|| log.first_record()) else {
            self.problems.push("the log is missing".to_string());
            return Ok(());
        };
        let outcomes = &mut self.outcomes;
        let mut reach = log.read(from, &mut |lsn, kind, body| outcomes.scan(lsn, kind, body));
        if let Some(superblock) = &superblock {
            if reach.end <= superblock.checkpoint {
                // The checkpoint's list and what follows it still tell outcomes.
                outcomes.set_hole();
                let again = log.read(superblock.checkpoint, &mut |lsn, kind, body| {
                    outcomes.scan(lsn, kind, body)
                });
                reach.lost_to = reach.lost_to.max(Some(superblock.checkpoint)).max(again.lost_to);
                reach.lost_to = reach.lost_to.max(Some(again.end));
            } else if reach.epoch < superblock.epoch {
                reach.lost_to = reach.lost_to.max(Some(reach.end));
            }
        }
        if superblock.is_none() && !log.problems.is_empty() {
            // The segments that are left may begin behind the redo position.
            self.outcomes.set_hole();
        }
        let (redo, source, outcomes) = (&mut self.redo, &self.source, &mut self.outcomes);
        let end = reach.end;
        log.read(from, &mut |lsn, kind, body| {
            if lsn >= end {
                return Ok(());
            }
            if matches!(kind, RecordKind::Row | RecordKind::Rows) {
                outcomes.collect(kind, body)?;
            }
            redo.apply(source, lsn, kind, body)
        });
        if let Some(error) = &reach.problem {
            self.problems.push(format!("the log at {end}: {error}"));
        }
        if !self.outcomes.has_list() {
            self.problems.push(
                "the checkpoint's list of transactions is lost: rows whose transaction the \
                 readable log does not name are set aside"
                    .to_string(),
            );
        }
        self.reach = Some(reach);
        Ok(())
    }

    /// A page as of the end of the readable log.
    fn page(&self, number: PageNo) -> Option<(Vec<u8>, From)> {
        match self.redo.page(number) {
            Some(redone) => redone.map(|(bytes, from)| (bytes.to_vec(), from)),
            None => self.source.page(number),
        }
    }

    fn read_space(&mut self) {
        let geometry = self.source.geometry;
        let per_segment = evenkeel_format::space::SEGMENT_EXTENTS;
        for segment in self.source.segments() {
            let first = segment * per_segment;
            for index in 0..geometry.segment_maps() {
                self.read_space_page(geometry.page_at(first, index));
            }
            for extent in first..first + per_segment {
                let found = self.space.descriptor(&self.source, extent);
                if found.is_some_and(|d| d.state == ExtentState::Fragments) {
                    self.read_space_page(geometry.owners_page(extent));
                }
            }
        }
    }

    fn read_space_page(&mut self, number: PageNo) {
        match self.page(number) {
            Some((bytes, From::Place | From::Copy)) => match page::kind(&bytes) {
                Some(kind) => self.space.take(number, kind, &bytes),
                None => self.problems.push(format!("page {number}: no page of the space map")),
            },
            _ => self.problems.push(format!(
                "page {number} of the space map is damaged: which pages of its extents are in use \
                 is not known, and the newest page counts"
            )),
        }
    }

    fn sweep(&mut self) -> Result<()> {
        let mut leaves = Leaves::default();
        let (source, redo, space) = (&self.source, &self.redo, &self.space);
        let mut damage = source.sweep(&mut |number, bytes, from| {
            if redo.page(number).is_none() {
                add_leaf(source, space, &mut leaves, number, bytes, from);
            }
            Ok(())
        })?;
        for (number, bytes, from) in redo.pages() {
            add_leaf(source, space, &mut leaves, number, bytes, from);
        }
        damage.bad.retain(|number| redo.page(*number).flatten().is_none());
        (self.leaves, self.damage) = (leaves, damage);
        if let Some(reach) = &mut self.reach
            && let Some(newest) = self.leaves.newest_lsn()
            && newest >= reach.end
        {
            // A page is written after its log, so the log reached this far.
            reach.lost_to = reach.lost_to.max(Some(newest));
        }
        Ok(())
    }

    /// What became of an operation, for a page with this LSN. A page beyond the readable log may
    /// show the end of a transaction of which that log has only the beginning.
    fn outcome(&self, stamp: Stamp, page: Lsn) -> Outcome {
        let beyond = self.reach.as_ref().is_none_or(|reach| page >= reach.end);
        match self.outcomes.of(stamp) {
            Outcome::Undecided if beyond => Outcome::Unknown,
            outcome => outcome,
        }
    }

    /// The version of a row that counts, following stamps backwards; what it meets that is not
    /// decided is set aside.
    fn decide(
        &self,
        place: Stored<'_>,
        version: Version,
        f: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let key = place.key;
        let mut version = version;
        for _ in 0..VERSIONS_MAX {
            let is_deleted = version.flags & DELETED != 0;
            let stored = Stored { row: &version.row, ..place };
            let outcome = match version.flags & STAMPED {
                0 => Outcome::Committed,
                _ => self.outcome(version.stamp, place.lsn),
            };
            match outcome {
                Outcome::Committed if is_deleted => return Ok(()),
                Outcome::Committed => return f(Found::Row(stored)),
                Outcome::Unknown => {
                    f(Found::SetAside(stored, Reason::OutcomeLost))?;
                    return f(Found::Lost(only(key)));
                }
                Outcome::Undecided if !is_deleted => {
                    f(Found::SetAside(stored, Reason::Undecided))?;
                }
                Outcome::Undecided | Outcome::Reverted => {}
            }
            let first = version.flags & FIRST != 0;
            version = match self.outcomes.before(&self.source, version.stamp) {
                Some(Some(before)) => before,
                Some(None) => return Ok(()),
                None if first => return Ok(()),
                None => return f(Found::Lost(only(key))),
            };
        }
        f(Found::Lost(only(key)))
    }

    /// Walks through a tree in ascending order of keys.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn walk(&self, tree: TreeId, f: &mut dyn FnMut(Found<'_>) -> Result<()>) -> Result<()> {
        let mut gaps: Vec<KeyRange> = Vec::new();
        let mut told = |found: Found<'_>| {
            if let Found::Lost(keys) = &found {
                gaps.push(keys.clone());
            }
            f(found)
        };
        for piece in self.leaves.pieces(tree) {
            match piece {
                Piece::Lost(keys) => {
                    told(Found::Lost(keys.clone()))?;
                    self.facts(tree, &keys, &mut told)?;
                }
                Piece::Of(leaf, keys) => match self.page(leaf.page) {
                    Some((bytes, _)) => self.leaf(leaf, &keys, &bytes, &mut told)?,
                    None => told(Found::Lost(keys))?,
                },
            }
        }
        for leaf in self.leaves.others(tree) {
            self.other(leaf, &gaps, f)?;
        }
        Ok(())
    }

    fn leaf(
        &self,
        leaf: &Leaf,
        keys: &KeyRange,
        bytes: &[u8],
        f: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        each_cell(bytes, &mut |key, flags, stamp, row| {
            if !keys.contains(key) {
                return Ok(());
            }
            let place = Stored { key, row, page: leaf.page, lsn: leaf.lsn };
            self.decide(place, Version { flags, stamp, row: row.to_vec() }, f)
        })
    }

    /// Rows of lost pages that the log holds.
    fn facts(
        &self,
        tree: TreeId,
        keys: &KeyRange,
        f: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(facts) = self.redo.facts(tree) else { return Ok(()) };
        for (key, fact) in facts.range(keys.low.clone()..).take_while(|(key, _)| keys.contains(key))
        {
            let Some(RowFact { lsn, page, flags, stamp, row }) = fact else { continue };
            let place = Stored { key, row, page: *page, lsn: *lsn };
            let version = Version { flags: *flags, stamp: *stamp, row: row.clone() };
            self.decide(place, version, f)?;
        }
        Ok(())
    }

    /// Rows of a page that may not go into the table: those in gaps are set aside.
    fn other(
        &self,
        leaf: &Leaf,
        gaps: &[KeyRange],
        f: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((bytes, _)) = self.page(leaf.page) else { return Ok(()) };
        let reason = if leaf.is_old { Reason::OldCopy } else { Reason::UnlistedPage };
        each_cell(&bytes, &mut |key, flags, _, row| {
            let is_live = flags & DELETED == 0;
            if is_live && gaps.iter().any(|gap| gap.contains(key)) {
                return f(Found::SetAside(
                    Stored { key, row, page: leaf.page, lsn: leaf.lsn },
                    reason,
                ));
            }
            f(Found::Superseded)
        })
    }

    /// The rows of a tree that no table has, newest leaves only where they overlap.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn walk_unknown(
        &self,
        tree: TreeId,
        f: &mut dyn FnMut(Stored<'_>) -> Result<()>,
    ) -> Result<()> {
        for leaf in self.leaves.of_unknown(tree) {
            let Some((bytes, _)) = self.page(leaf.page) else { continue };
            each_cell(&bytes, &mut |key, flags, _, row| match flags & DELETED {
                0 => f(Stored { key, row, page: leaf.page, lsn: leaf.lsn }),
                _ => Ok(()),
            })?;
        }
        Ok(())
    }

    /// A long value. # Errors: `OverflowDamaged` naming the page.
    pub fn chain(&self, tree: TreeId, reference: OverflowRef) -> Result<Vec<u8>> {
        let damaged = |page: PageNo, why: &'static str| {
            let error = Error::new(Code::OverflowDamaged).with("tree", tree.0);
            Err(error.with("page", page).with("why", why))
        };
        let mut bytes = Vec::with_capacity((reference.len as usize).min(1 << 20));
        let (mut next, mut position) = (Some(reference.head), 0);
        while let Some(number) = next {
            let Some((page, _)) = self.page(number) else {
                return damaged(number, "the page is damaged");
            };
            let parsed = OverflowPage::parse(&page[HEADER_BYTES..]);
            let Ok(part) = parsed else { return damaged(number, "no page of a long value") };
            let is_next = page::tree(&page) == tree
                && (part.owner, part.position) == (reference.owner, position);
            if !is_next {
                return damaged(number, "the page belongs to another value");
            }
            bytes.extend_from_slice(part.data);
            if bytes.len() > reference.len as usize {
                return damaged(number, "the value is longer than its reference says");
            }
            (next, position) = (part.next, position + 1);
        }
        if bytes.len() != reference.len as usize {
            return damaged(reference.head, "the value is shorter than its reference says");
        }
        Ok(bytes)
    }
}

/// Adds a page if it is a leaf.
fn add_leaf(
    source: &Source,
    space: &Space,
    leaves: &mut Leaves,
    number: PageNo,
    bytes: &[u8],
    from: From,
) {
    let payload = &bytes[HEADER_BYTES..];
    if page::kind(bytes) != Some(PageKind::Tree) || payload[0] == KIND_OVERFLOW {
        return;
    }
    let Ok(node) = Node::parse(payload) else { return };
    if !node.is_leaf() || node.check().is_err() {
        return;
    }
    let header = PageHeader {
        kind: PageKind::Tree,
        page_no: number,
        lsn: page::lsn(bytes),
        tree: page::tree(bytes),
        incarnation: page::incarnation(bytes),
    };
    let usage: Use = space.of(source, &header);
    let keys = KeyRange { low: node.low().to_vec(), high: node.high().map(<[u8]>::to_vec) };
    let is_old = from == From::OldCopy;
    leaves.push(header.tree, Leaf { page: number, lsn: header.lsn, keys, usage, is_old });
}

/// Takes a cell: key, flags, stamp and row.
type EachCell<'f> = dyn FnMut(&[u8], u8, Stamp, &[u8]) -> Result<()> + 'f;

/// Calls `f` with key, flags, stamp and row of each cell of a leaf.
fn each_cell(bytes: &[u8], f: &mut EachCell<'_>) -> Result<()> {
    let node = Node::parse(&bytes[HEADER_BYTES..])?;
    let mut key = Vec::new();
    for slot in 0..node.count() {
        let cell = node.leaf_cell(slot)?;
        key.clear();
        node.key_to(slot, &mut key);
        f(&key, cell.flags, cell.stamp, cell.row)?;
    }
    Ok(())
}
