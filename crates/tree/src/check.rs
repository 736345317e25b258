//! Checks a tree while it is in use: every node's own invariants, levels, fences and dead notes
//! (`dead`) against the parent's slots, and that no page is reached twice; it also counts rows and
//! fill.

use crate::tree::{DescentGoal, Tree};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Kind, Lsn, PageNo, Result, TreeId};
use evenkeel_format::node::Node;
use evenkeel_pages::{Access, PageSet, PageToken, Pages};

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The page concerned.
    pub page: PageNo,
    /// What is wrong with it.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Empty if the tree is sound.
    pub problems: Vec<Problem>,
    /// Levels, leaves included.
    pub levels: u32,
    /// Inner nodes.
    pub inner_pages: u64,
    /// Leaves.
    pub leaf_pages: u64,
    /// Cells of leaves.
    pub rows: u64,
    /// Cells marked deleted.
    pub rows_deleted: u64,
    /// Bytes used in leaves.
    pub leaf_bytes_used: u64,
    /// Bytes of leaves.
    pub leaf_bytes: u64,
}

impl TreeReport {
    /// Share of the leaves' bytes in use, in percent.
    pub fn fill_percent(&self) -> f64 {
        100.0 * self.leaf_bytes_used as f64 / self.leaf_bytes.max(1) as f64
    }
}

/// Problems that a report lists, at most.
const PROBLEMS_MAX: usize = 100;
/// How often a child that does not fit its parent is examined again: it may just have changed.
const LOOKS: usize = 100;

/// Reads every node of a tree that is not used yet: an open verifies in this way, before it writes,
/// that it can. The nodes stay in the pool for later readers.
///
/// # Errors
/// Of reading a page; `TreeDamaged` for one that does not belong there.
pub fn read_nodes(pages: &Pages, id: TreeId, root: PageNo) -> Result<()> {
    let mut waiting = vec![(root, None)];
    while let Some((page, level)) = waiting.pop() {
        let image = pages.read(page, Access::Normal)?;
        let node = Node::parse(&image).map_err(|error| error.with("page", page))?;
        // Levels fall, so the loop ends.
        let why = match image.tree() == id {
            false => Some("a page of another tree"),
            true => level.filter(|level| *level != node.level()).map(|_| "a node of another level"),
        };
        if let Some(why) = why {
            let error = Error::new(Code::TreeDamaged).with("tree", id).with("page", page);
            return Err(error.with("why", why));
        }
        if let Some(below) = node.level().checked_sub(1) {
            for slot in 0..node.count() {
                waiting.push((node.inner_cell(slot)?.child, Some(below)));
            }
        }
    }
    Ok(())
}

struct Check<'t> {
    tree: &'t Tree,
    report: TreeReport,
    seen: PageSet,
    /// Structure changes when the check began: pages may have moved since.
    changes: u64,
    /// Called at every inner node with the number of nodes reached; its error ends the check.
    poll: &'t dyn Fn(u64) -> Result<()>,
}

impl Tree {
    /// Checks the whole tree, one latch at a time.
    ///
    /// # Errors
    /// Only errors that keep it from continuing (I/O); damage is in the report.
    pub fn check(&self) -> Result<TreeReport> {
        Ok(self.check_reach(&|_| Ok(()))?.0)
    }

    /// As `check`; also returns the nodes reached. `poll` is called now and then with their number
    /// so far.
    ///
    /// # Errors
    /// As `check`; that of `poll`.
    pub fn check_reach(&self, poll: &dyn Fn(u64) -> Result<()>) -> Result<(TreeReport, PageSet)> {
        let mut check = Check {
            tree: self,
            report: TreeReport::default(),
            seen: PageSet::default(),
            changes: self.structure_changes(),
            poll,
        };
        let root = self.pages().read(self.root(), Access::Normal)?;
        let level = match Node::parse(&root) {
            Ok(node) if root.tree() == self.id() && node.level() > 0 => {
                check.one(self.root(), &node);
                if node.is_marked_dead() {
                    check.problem(self.root(), "no parent says that the root is dead");
                }
                node.level()
            }
            _ => {
                check.problem(self.root(), "the root is no inner node of this tree");
                return Ok((check.report, check.seen));
            }
        };
        drop(root);
        check.report.levels = u32::from(level) + 1;
        for level in (1..=level).rev() {
            check.level(level)?;
        }
        Ok((check.report, check.seen))
    }

    fn structure_changes(&self) -> u64 {
        let metrics = &self.trees().rt.metrics;
        metrics.get(Metric::Splits) + metrics.get(Metric::LeafMerges)
    }
}

impl Check<'_> {
    fn problem(&mut self, page: PageNo, what: impl Into<String>) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem { page, what: what.into() });
        }
    }

    /// Walks the inner nodes of one level by their fences and checks their children.
    fn level(&mut self, level: u8) -> Result<()> {
        let mut low = Vec::new();
        let mut looks = 0;
        loop {
            (self.poll)(self.seen.len() as u64)?;
            let page = match self.tree.find_if_high(DescentGoal::At(&low), level, Access::UseOnce) {
                Ok(Some(page)) => page,
                // Merges have lowered the tree since its root was read.
                Ok(None) => return Ok(()),
                Err(e) if e.kind() == Kind::Corrupt => {
                    self.problem(PageNo(page_of(&e)), e.to_string());
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            let (token, copy) = (page.token(), page.to_vec());
            drop(page);
            let node = Node::parse(&copy)?;
            let Some(undone) = self.children(&node, &low, token, looks == LOOKS)? else {
                looks = 0;
                match node.high() {
                    Some(high) => low = high.to_vec(),
                    None => return Ok(()),
                }
                continue;
            };
            // The parent changed meanwhile: check again from the child that did not fit.
            looks += 1;
            low = undone;
            self.tree.trees().rt.step();
        }
    }

    /// Checks the children of an inner node from the one that covers `low` on. Returns the key of
    /// the first that does not fit, if the parent has changed since it was copied.
    fn children(
        &mut self,
        node: &Node<'_>,
        low: &[u8],
        parent: PageToken,
        last_look: bool,
    ) -> Result<Option<Vec<u8>>> {
        for slot in node.child_slot(low)..node.count() {
            let key = node.key(slot);
            let next = if slot + 1 < node.count() { Some(node.key(slot + 1)) } else { None };
            let high = next.as_deref().or(node.high());
            let cell = node.inner_cell(slot);
            let read = |no| Ok((no, self.tree.pages().read(no, Access::UseOnce)?));
            let misfit = match cell.as_ref().map_err(Clone::clone).and_then(|cell| read(cell.child))
            {
                Ok((no, page)) => match Node::parse(&page) {
                    Ok(child) => {
                        let since = cell.ok().and_then(|cell| cell.dead_since);
                        let fits = page.tree() == self.tree.id()
                            && child.level() + 1 == node.level()
                            && child.low() == key
                            && child.high() == high;
                        let why = if !fits {
                            "tree, level or fences do not fit the parent"
                        } else if !is_as_dead(&child, since) {
                            "it is not as dead as the parent says"
                        } else {
                            self.one(no, &child);
                            continue;
                        };
                        (no, why.to_string())
                    }
                    Err(e) => (no, e.to_string()),
                },
                Err(e) if e.kind() == Kind::Corrupt => (PageNo(page_of(&e)), e.to_string()),
                Err(e) => return Err(e),
            };
            if !last_look && !self.tree.pages().is_current(&parent) {
                return Ok(Some(key));
            }
            self.problem(misfit.0, misfit.1);
        }
        Ok(None)
    }

    fn one(&mut self, page: PageNo, node: &Node<'_>) {
        if let Err(e) = node.check() {
            self.problem(page, e.context("why").unwrap_or("damaged").to_string());
        }
        if !self.seen.insert(page) && self.tree.structure_changes() == self.changes {
            self.problem(page, "reached twice");
        }
        if !node.is_leaf() {
            self.report.inner_pages += 1;
            return;
        }
        self.report.leaf_pages += 1;
        self.report.rows += node.count() as u64;
        self.report.rows_deleted += node.dead_count() as u64;
        self.report.leaf_bytes_used += node.used_bytes() as u64;
        self.report.leaf_bytes += node.payload_bytes() as u64;
    }
}

/// True if a node agrees with the dead note in its parent's slot (E6).
fn is_as_dead(node: &Node<'_>, since: Option<Lsn>) -> bool {
    let Some(since) = since else { return !node.is_marked_dead() };
    let below =
        |slot| node.inner_cell(slot).is_ok_and(|c| c.dead_since.is_some_and(|s| s <= since));
    node.is_marked_dead() && (node.is_leaf() || (0..node.count()).all(below))
}

/// The page that an error names.
fn page_of(error: &Error) -> u64 {
    error.context("page").and_then(|page| page.parse().ok()).unwrap_or(0)
}
