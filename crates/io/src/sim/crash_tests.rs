//! The content that each crash policy leaves.
use super::*;
use crate::blocks::BLOCK;
use std::collections::BTreeSet;

const SECTORS: usize = 32;
const LEN: usize = SECTORS * SECTOR;

fn quiet(disk: &SimDisk) -> Arc<dyn Env> {
    SimEnv::on(disk.clone(), SimOptions::quiet(1)).env()
}

/// A durable file `a` of ones with eight unsynced writes over it, of the values 2..=9 in order from
/// its start, and one write beyond its end; a file `new` whose name is unsynced; `old` renamed to
/// `moved`.
fn crashed() -> SimDisk {
    let disk = SimDisk::new(1);
    let env = quiet(&disk);
    let open = |p| env.open(p, OpenMode::READ_WRITE).expect("open");
    let file = open("a");
    open("old");
    file.write_at(&[1; LEN], 0).expect("write");
    file.sync().expect("sync");
    env.sync_dir("").expect("sync");
    for i in 0..8u64 {
        file.write_at(&[i as u8 + 2; LEN / 8], i * LEN as u64 / 8).expect("write");
    }
    file.write_at(&[10; SECTOR], LEN as u64).expect("write");
    open("new");
    env.rename("old", "moved").expect("rename");
    disk.crash_now();
    disk
}

/// The value of each sector; panics if one is mixed.
fn sectors(disk: &SimDisk) -> Vec<u8> {
    let content = disk.content("a").expect("its name is durable");
    let values = content.chunks(SECTOR).map(|s| {
        assert!(s.iter().all(|b| *b == s[0]), "a sector is never torn");
        s[0]
    });
    values.collect()
}

/// The value that the writes put into a sector.
fn new_value(sector: usize) -> u8 {
    if sector >= SECTORS { 10 } else { (sector * 8 / SECTORS) as u8 + 2 }
}

fn survivors(policy: CrashPolicy) -> Vec<(Vec<u8>, Vec<String>)> {
    let disk = crashed();
    (0..100).map(|seed| disk.crash(policy, seed)).map(|d| (sectors(&d), d.paths())).collect()
}

/// A character for each of the nine writes: `x` survived, `-` lost, `~` in part.
fn written(sectors: &[u8]) -> String {
    let of_write = |w: usize| (0..=SECTORS).filter(move |s| usize::from(new_value(*s)) == w + 2);
    let is_new = |s: usize| sectors.get(s).is_some_and(|v| *v == new_value(s));
    let there = (0..9).map(|w| match of_write(w).filter(|s| is_new(*s)).count() {
        0 => '-',
        n if n == of_write(w).count() => 'x',
        _ => '~',
    });
    there.collect()
}

#[test]
fn every_survivor_has_old_or_new_sectors_and_repeats_by_seed() {
    let disk = crashed();
    let mut states = BTreeSet::new();
    for policy in CrashPolicy::ALL {
        for seed in 0..100 {
            let survivor = disk.crash(*policy, seed);
            assert!(!survivor.is_crashed());
            assert_eq!(survivor.hash(), disk.crash(*policy, seed).hash(), "{policy:?} {seed}");
            for (i, value) in sectors(&survivor).into_iter().enumerate() {
                let old = u8::from(i < SECTORS);
                assert!(value == old || value == new_value(i), "{policy:?} {seed}");
            }
            states.insert(survivor.hash());
        }
    }
    assert!(states.len() > 300, "{} states", states.len());
}

#[test]
fn lose_all_and_keep_all() {
    let old = (vec![1; SECTORS], vec!["a".to_string(), "old".into()]);
    assert!(survivors(CrashPolicy::LoseAll).iter().all(|s| *s == old));
    let names = ["a", "moved", "new"].map(str::to_string).to_vec();
    let new = ((0..=SECTORS).map(new_value).collect::<Vec<_>>(), names);
    assert!(survivors(CrashPolicy::KeepAll).iter().all(|s| *s == new));
}

#[test]
fn random_pieces_have_their_size() {
    for (policy, piece) in [(CrashPolicy::RandomSectors, 1), (CrashPolicy::RandomBlocks, 8)] {
        let mut torn = false;
        let mut lens = BTreeSet::new();
        for (sectors, _) in survivors(policy) {
            lens.insert(sectors.len());
            // A 4 KiB piece is the part of one write in one block: here half of the write.
            for group in sectors[..SECTORS].chunks(piece.min(SECTORS / 8)) {
                let news = group.iter().filter(|v| **v != 1).count();
                assert!(news == 0 || news == group.len(), "{policy:?}");
            }
            torn |= written(&sectors).contains('~');
        }
        assert_eq!(torn, policy == CrashPolicy::RandomSectors);
        assert_eq!(lens.len(), 2, "with and without the sector beyond the end");
    }
}

#[test]
fn reordered_keeps_whole_calls_in_any_combination() {
    let all: BTreeSet<String> =
        survivors(CrashPolicy::Reordered).iter().map(|s| written(&s.0)).collect();
    assert!(all.iter().all(|w| !w.contains('~')), "{all:?}");
    assert!(all.iter().any(|w| w.contains("-x")) && all.len() > 50, "{all:?}");
}

#[test]
fn torn_keeps_a_prefix_and_part_of_the_next() {
    let all: BTreeSet<String> =
        survivors(CrashPolicy::Torn).iter().map(|s| written(&s.0)).collect();
    for state in &all {
        let rest = state.trim_start_matches('x').trim_end_matches('-');
        assert!(rest.is_empty() || rest == "~", "{state}");
    }
    assert!(all.iter().any(|w| w.contains('~')) && all.len() > 5, "{all:?}");
}

#[test]
fn old_size_keeps_content_and_cuts_the_file() {
    let wanted: Vec<u8> = (0..SECTORS).map(new_value).collect();
    assert!(survivors(CrashPolicy::OldSize).iter().all(|s| s.0 == wanted));
}

#[test]
fn old_names_loses_names_and_keeps_content() {
    let all = survivors(CrashPolicy::OldNames);
    assert!(all.iter().all(|s| s.0.len() == SECTORS + 1));
    let names: BTreeSet<String> = all.iter().map(|s| s.1.join(" ")).collect();
    for wanted in ["a old", "a new old", "a moved"] {
        assert!(names.contains(wanted), "{names:?}");
    }
}

#[test]
fn synced_content_survives_every_crash() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let env = quiet(&disk);
        let file = env.open("a", OpenMode::READ_WRITE).expect("open");
        env.sync_dir("").expect("sync");
        // Appended pieces and some syncs: the content up to the last sync is promised.
        let (mut content, mut promised) = (Vec::new(), 0);
        for _ in 0..20 {
            let piece = vec![rng.next_u64() as u8; rng.below(3000) as usize + 1];
            file.write_at(&piece, content.len() as u64).expect("write");
            content.extend_from_slice(&piece);
            if rng.one_in(4) {
                file.sync().expect("sync");
                promised = content.len();
            }
        }
        for policy in CrashPolicy::ALL {
            let after = disk.crash(*policy, seed).content("a").expect("there");
            assert!(after.len() >= promised, "{policy:?} seed {seed}");
            assert!(after[..promised] == content[..promised], "{policy:?} seed {seed}");
        }
    }
}

#[test]
fn a_survivor_can_be_used_and_crash_again() {
    let first = crashed().crash(CrashPolicy::KeepAll, 1);
    let env = quiet(&first);
    let file = env.open("a", OpenMode::READ_WRITE).expect("open");
    let fresh = env.open("b", OpenMode::READ_WRITE).expect("open");
    fresh.write_at(&[7; 10], 0).expect("write");
    file.write_at(&[7; SECTOR], 0).expect("write");
    file.sync().expect("sync");
    first.crash_now();
    let second = first.crash(CrashPolicy::LoseAll, 1);
    assert_eq!(second.paths(), ["a", "moved", "new"]);
    assert_eq!(sectors(&second)[..2], [7, 2]);
}

fn syncs(disk: &SimDisk, path: &str) {
    quiet(disk).open(path, OpenMode::READ_WRITE).expect("open").sync().expect("sync");
}

#[test]
fn writes_of_a_killed_process_are_readable_and_not_durable() {
    let kept = crashed().crash(CrashPolicy::KeepAll, 1);
    let killed = || crashed().crash(CrashPolicy::Killed, 1);
    let old = crashed().crash(CrashPolicy::LoseAll, 1);
    assert_eq!((killed().hash(), killed().used_bytes()), (kept.hash(), kept.used_bytes()));
    assert_eq!((killed().unsynced_of_killed("a"), kept.unsynced_of_killed("a")), (9, 0));
    assert_eq!(killed().crash(CrashPolicy::LoseAll, 2).hash(), old.hash());
    // A second process that is killed makes nothing durable either.
    let twice = killed().crash(CrashPolicy::Killed, 2);
    assert_eq!((twice.hash(), twice.unsynced_of_killed("a")), (kept.hash(), 9));
    assert_eq!(twice.crash(CrashPolicy::LoseAll, 3).hash(), old.hash());
    // A sync of a file or a directory also syncs the changes of other processes.
    let disk = killed();
    syncs(&disk, "a");
    let lost = disk.crash(CrashPolicy::LoseAll, 2);
    assert_eq!((sectors(&lost), lost.paths()), (sectors(&kept), old.paths()));
    quiet(&disk).sync_dir("").expect("sync");
    assert_eq!(disk.crash(CrashPolicy::LoseAll, 2).hash(), kept.hash());
}

#[test]
fn a_crash_after_a_kill_loses_like_a_crash_alone() {
    for policy in CrashPolicy::ALL {
        let ways = |disk: SimDisk| -> BTreeSet<u64> {
            (0..100).map(|seed| disk.crash(*policy, seed).hash()).collect()
        };
        let (at_once, later) = (ways(crashed()), ways(crashed().crash(CrashPolicy::Killed, 1)));
        // Equal seeds draw alike from equal changes in equal order.
        assert_eq!(at_once, later, "{policy:?}");
    }
}

#[test]
fn writes_after_a_kill_follow_those_before_it() {
    let disk = crashed().crash(CrashPolicy::Killed, 1);
    let file = quiet(&disk).open("a", OpenMode::READ_WRITE).expect("open");
    file.write_at(&[20; SECTOR], 0).expect("write");
    assert_eq!(disk.unsynced_of_killed(""), 9);
    let mut both = false;
    for seed in 0..100 {
        let after = sectors(&disk.crash(CrashPolicy::Torn, seed));
        let all_old = (0..SECTORS).skip(1).all(|i| after[i] == new_value(i));
        assert!(after[0] != 20 || all_old, "seed {seed}: {after:?}");
        both |= after[0] == 20;
    }
    assert!(both);
}

#[test]
fn a_write_in_flight_at_a_kill_ends_at_a_block() {
    let disk = SimDisk::new(1);
    let env = quiet(&disk);
    let lock = OpenMode { lock: true, ..OpenMode::READ_WRITE };
    let file = env.open("a", lock).expect("open");
    file.write_at(&[1; 5 * BLOCK], 0).expect("write");
    disk.crash_at_change(disk.changes() + 1);
    assert!(file.write_at(&[2; 2 * BLOCK + SECTOR], (2 * BLOCK - SECTOR) as u64).is_err());
    let written = |seed| {
        let after = disk.crash(CrashPolicy::Killed, seed);
        quiet(&after).open("a", lock).expect("nobody has it open");
        let content = after.content("a").expect("there");
        let first = content.iter().position(|b| *b == 2).unwrap_or(2 * BLOCK - SECTOR);
        assert_eq!(first, 2 * BLOCK - SECTOR);
        content.iter().filter(|b| **b == 2).count()
    };
    let all: BTreeSet<usize> = (0..100).map(written).collect();
    let edges = [0, SECTOR, SECTOR + BLOCK, SECTOR + 2 * BLOCK];
    assert_eq!(all, BTreeSet::from(edges));
}
