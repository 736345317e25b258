//! Redo of a tree's pages: the changes themselves are in `evenkeel_format::tree_apply`, which
//! forward processing uses too.

use evenkeel_base::Result;
use evenkeel_format::record::{LeafChange, RecordKind};
use evenkeel_format::tree_apply::apply_row;
pub(crate) use evenkeel_format::tree_apply::{apply, misfit, put_row};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_pages::RedoApply;

/// Redo of the tree's page ops and of row records.
pub struct TreeRedo;

impl RedoApply for TreeRedo {
    fn apply(&self, op: u8, payload: &[u8], page: &mut [u8]) -> Result<()> {
        apply(&TreeOp::decode(op, payload)?, page)
    }

    fn apply_row(&self, _: RecordKind, change: &LeafChange<'_>, page: &mut [u8]) -> Result<()> {
        apply_row(change, page)
    }
}
