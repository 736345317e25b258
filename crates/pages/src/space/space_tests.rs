//! The space map against a model of page owners, through commits, aborts, drops and reopening.

use crate::test_support::{self, Fixture};
use crate::{Access, Pages};
use evenkeel_base::{Code, PageNo, Result, TreeId};
use evenkeel_format::space::{MAX_SEGMENTS, TREE_FRAGMENTS};
use evenkeel_io::{MemEnv, Runtime};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Model = BTreeMap<u32, BTreeSet<PageNo>>;

#[derive(Clone, Debug)]
enum Step {
    Alloc { tree: u32, count: u8, near: bool, commit: bool },
    Free { tree: u32, nth: u16, count: u8, commit: bool },
    Drop { tree: u32 },
    Reclaim,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tree = 1..4u32;
    let step = prop_oneof![
        8 => (tree.clone(), 1..40u8, any::<bool>(), prop::bool::weighted(0.8))
            .prop_map(|(tree, count, near, commit)| Step::Alloc { tree, count, near, commit }),
        5 => (tree.clone(), any::<u16>(), 1..40u8, prop::bool::weighted(0.8))
            .prop_map(|(tree, nth, count, commit)| Step::Free { tree, nth, count, commit }),
        1 => tree.prop_map(|tree| Step::Drop { tree }),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

fn check(rig: &Fixture, model: &Model) {
    let owned: usize = model.values().map(BTreeSet::len).sum();
    let stats = rig.pages.space_stats();
    assert_eq!(stats.pages, owned as u64);
    assert_eq!(stats.trees, model.values().filter(|pages| !pages.is_empty()).count());
    for (tree, pages) in model {
        let (fragments, extents) = rig.pages.space.of_tree(TreeId(*tree));
        let extents: BTreeSet<u32> = extents.into_iter().map(|(e, _)| e).collect();
        assert!(fragments.iter().all(|page| pages.contains(page)));
        let in_extents = pages.iter().filter(|page| !fragments.contains(page));
        for page in in_extents {
            let (extent, _) = rig.pages.geometry.extent_of(*page).expect("in the space");
            assert!(extents.contains(&extent), "{page} of tree {tree}");
        }
    }
}

fn alloc(rig: &Fixture, model: &mut Model, tree: u32, count: u8, near: bool, commit: bool) {
    let mut reserved = rig.log.reserve(16_000, evenkeel_log::Share::User).expect("space");
    let near = model.get(&tree).and_then(|p| p.last().copied()).filter(|_| near);
    let mut mtr = rig.pages.begin(usize::from(count)).expect("begins");
    let mut taken = Vec::new();
    for _ in 0..count {
        let slot = mtr.alloc(TreeId(tree), near).expect("allocates");
        taken.push(mtr.page_no(slot));
    }
    if commit {
        mtr.commit(&mut reserved);
        for page in taken {
            assert!(model.values().all(|pages| !pages.contains(&page)), "{page} given out twice");
            model.entry(tree).or_default().insert(page);
        }
    }
}

fn free(rig: &Fixture, model: &mut Model, tree: u32, nth: u16, count: u8, commit: bool) {
    let Some(pages) = model.get_mut(&tree).filter(|pages| !pages.is_empty()) else { return };
    let skip = usize::from(nth) % pages.len();
    let chosen: Vec<PageNo> = pages.iter().skip(skip).take(usize::from(count)).copied().collect();
    let mut reserved = rig.log.reserve(16_000, evenkeel_log::Share::User).expect("space");
    let mut mtr = rig.pages.begin(chosen.len()).expect("begins");
    for page in &chosen {
        let slot = mtr.write(*page).expect("reads");
        mtr.free(slot).expect("frees");
    }
    if commit {
        mtr.commit(&mut reserved);
        pages.retain(|page| !chosen.contains(page));
    }
    // Without commit no page was changed: dropping it must not stop the database.
}

fn run(steps: Vec<Step>) {
    let env = Arc::new(MemEnv::new());
    let mut rig = test_support::create(Runtime::new(env.clone()), 256, 8 << 20).expect("creates");
    let mut model = Model::new();
    let mut epoch = 1;
    for step in steps {
        rig.pages.make_room(64).expect("writes");
        match step {
            Step::Alloc { tree, count, near, commit } => {
                alloc(&rig, &mut model, tree, count, near, commit);
            }
            Step::Free { tree, nth, count, commit } => {
                free(&rig, &mut model, tree, nth, count, commit);
            }
            Step::Drop { tree } => {
                rig.pages.free_tree(TreeId(tree)).expect("drops");
                model.remove(&tree);
            }
            Step::Reclaim => while rig.pages.reclaim_beat().expect("syncs").eq(&MORE) {},
            Step::Reopen => {
                rig.log.wait_durable(rig.log.end()).expect("syncs");
                epoch += 1;
                let rt = Runtime::new(env.clone());
                rig = test_support::recover(rt, 256, 8 << 20, evenkeel_base::Lsn(480), epoch)
                    .expect("recovers")
                    .0;
            }
        }
        check(&rig, &model);
        assert!(!rig.rt.health.is_failed());
    }
    for page in model.values().flatten() {
        assert_eq!(rig.pages.read(*page, Access::UseOnce).expect("reads").page_no(), *page);
    }
}

const MORE: evenkeel_base::Beat = evenkeel_base::Beat::More;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]
    #[test]
    fn pages_have_one_owner(steps in steps()) {
        run(steps);
    }
}

#[test]
fn small_trees_share_extents() -> Result<()> {
    let env = Arc::new(MemEnv::new());
    let rig = test_support::create(Runtime::new(env), 1024, 8 << 20)?;
    for tree in 1..=100 {
        rig.alloc(tree, None, 1)?;
    }
    let stats = rig.pages.space_stats();
    assert_eq!((stats.pages, stats.trees, stats.fragment_extents), (100, 100, 1));
    for _ in 1..TREE_FRAGMENTS {
        rig.alloc(1, None, 1)?;
    }
    assert!(rig.pages.space.of_tree(TreeId(1)).1.is_empty());
    let (page, _) = rig.alloc(1, None, 1)?;
    assert_eq!(rig.pages.space.of_tree(TreeId(1)).1.len(), 1, "now it takes an extent");
    let (next, _) = rig.alloc(1, Some(page), 1)?;
    assert_eq!(next.0, page.0 + 1, "near");
    Ok(())
}

#[test]
fn segments_follow_one_another() -> Result<()> {
    let env = Arc::new(MemEnv::new());
    let rig = test_support::create(Runtime::new(env.clone()), 256, 64 << 20)?;
    // Allocates extents until the first segment is full.
    while rig.pages.space.extents() < 1024 {
        rig.pages.space.grow(1);
    }
    while rig.pages.space.ready() > 0 {
        let skip = |_: PageNo| false;
        let pick = rig.pages.space.pick(TreeId(u32::MAX - 1), None, &[], &skip);
        if pick.is_some_and(|p| p.new_extent.is_none()) {
            continue;
        }
    }
    let mut pages = Vec::new();
    for _ in 0..TREE_FRAGMENTS + 4 {
        pages.push(rig.alloc(5, None, 7)?.0);
    }
    assert!(pages.iter().any(|p| p.0 >= 262_144), "{pages:?}");
    rig.log.wait_durable(rig.log.end())?;
    let rt = Runtime::new(env);
    let (again, _) = test_support::recover(rt, 256, 64 << 20, evenkeel_base::Lsn(480), 3)?;
    assert_eq!(again.pages.space_stats().segments, 2);
    for page in pages {
        assert_eq!(again.pages.read(page, Access::Normal)?[0], 7);
    }
    Ok(())
}

/// Keeps the import of `Pages` in use: the API is one type.
#[test]
fn pages_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Pages>();
}

#[test]
fn the_page_space_ends_at_its_limit() {
    let rig =
        test_support::create(Runtime::new(Arc::new(MemEnv::new())), 64, 1 << 20).expect("creates");
    rig.pages.check_segment(MAX_SEGMENTS - 1).expect("the last one");
    let error = rig.pages.check_segment(MAX_SEGMENTS).expect_err("one beyond");
    let text = error.to_string();
    assert_eq!(error.code(), Code::SpaceLimit);
    assert!(text.starts_with(Code::SpaceLimit.text()), "{text}");
    assert!(text.contains("limit=16384"), "{text}");
}
