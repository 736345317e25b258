//! The simulated disk: a model of the seen and the durable content, faults, capacity, crash points.
use super::*;
use evenkeel_base::sync::Mutex;
use std::collections::BTreeMap;

/// An environment that neither schedules nor takes time.
fn quiet(disk: &SimDisk) -> Arc<dyn Env> {
    SimEnv::on(disk.clone(), SimOptions::quiet(1)).env()
}

fn code<T>(result: Result<T>) -> Option<Code> {
    result.err().map(|e| e.code())
}

type Files = BTreeMap<String, Vec<u8>>;

/// The content of a disk.
fn files(disk: &SimDisk) -> Files {
    disk.paths().into_iter().map(|p| (p.clone(), disk.content(&p).unwrap_or_default())).collect()
}

/// Files by number, and two name spaces over them; content as seen and as durable.
#[derive(Default)]
struct Model {
    live: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
}

impl Model {
    fn seen(&self) -> Files {
        self.names.iter().map(|(p, i)| (p.clone(), self.live[*i].clone())).collect()
    }
    fn safe(&self) -> Files {
        self.durable_names.iter().map(|(p, i)| (p.clone(), self.durable[*i].clone())).collect()
    }
}

fn random_op(rng: &mut Rng, env: &dyn Env, model: &mut Model) {
    let path = format!("f{}", rng.below(4));
    let file = env.open(&path, OpenMode::READ_WRITE).expect("open");
    let ino = *model.names.entry(path.clone()).or_insert_with(|| {
        model.live.push(Vec::new());
        model.durable.push(Vec::new());
        model.live.len() - 1
    });
    let content = &mut model.live[ino];
    let (offset, len) = (rng.below(9000) as usize, rng.below(6000) as usize + 1);
    let end = offset + len;
    match rng.below(9) {
        0..=2 => {
            let fill = rng.below(3) as u8;
            content.resize(content.len().max(end), 0);
            content[offset..end].fill(fill);
            file.write_at(&vec![fill; len], offset as u64).expect("write");
        }
        3 => {
            content.resize(offset, 0);
            file.set_len(offset as u64).expect("set_len");
        }
        4 => {
            let end = end.min(content.len());
            if offset < end {
                content[offset..end].fill(0);
            }
            file.punch(offset as u64, len as u64).expect("punch");
        }
        5 => {
            content.resize(content.len().max(end), 0);
            file.allocate(offset as u64, len as u64).expect("allocate");
        }
        6 => {
            model.durable[ino] = model.live[ino].clone();
            file.sync().expect("sync");
        }
        7 => {
            model.durable_names = model.names.clone();
            env.sync_dir("").expect("sync_dir");
        }
        _ if rng.one_in(2) => {
            model.names.remove(&path);
            env.remove(&path).expect("remove");
        }
        _ => {
            let to = format!("f{}", rng.below(4));
            let moved = model.names.remove(&path).expect("named above");
            model.names.insert(to.clone(), moved);
            env.rename(&path, &to).expect("rename");
        }
    }
}

#[test]
fn seen_and_durable_content_match_a_model() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let env = quiet(&disk);
        let mut model = Model::default();
        for _ in 0..80 {
            random_op(&mut rng, &*env, &mut model);
            assert!(files(&disk) == model.seen(), "seed {seed}");
        }
        let lost = disk.crash(CrashPolicy::LoseAll, seed);
        assert!(files(&lost) == model.safe(), "seed {seed}");
        let kept = disk.crash(CrashPolicy::KeepAll, seed);
        assert!(files(&kept) == model.seen(), "seed {seed}");
        assert_eq!(kept.hash(), disk.hash(), "seed {seed}");
        let killed = disk.crash(CrashPolicy::Killed, seed);
        assert!(files(&killed) == model.seen(), "seed {seed}");
        assert_eq!(killed.used_bytes(), kept.used_bytes(), "seed {seed}");
        let lost = killed.crash(CrashPolicy::LoseAll, seed);
        assert!(files(&lost) == model.safe(), "seed {seed}");
        let blocks: u64 = kept.used_bytes();
        assert_eq!(blocks, disk.used_bytes(), "seed {seed}: space is counted");
    }
}

#[test]
fn names_need_their_directory_synced() {
    let disk = SimDisk::new(1);
    let env = quiet(&disk);
    assert_eq!(code(env.open("wal/1", OpenMode::READ_WRITE)), Some(Code::FileMissing));
    env.create_dir("wal/deep").expect("create");
    env.open("wal/1", OpenMode::READ_WRITE).expect("open").sync().expect("sync");
    assert_eq!(env.list("wal").expect("list"), ["1", "deep"]);
    assert_eq!(env.list("").expect("list"), ["wal"]);
    assert!(disk.crash(CrashPolicy::LoseAll, 1).paths().is_empty());
    env.sync_dir("wal").expect("sync");
    // `wal` itself was created in the root.
    assert!(disk.crash(CrashPolicy::LoseAll, 1).paths().is_empty());
    env.sync_dir("").expect("sync");
    assert_eq!(disk.crash(CrashPolicy::LoseAll, 1).paths(), ["wal/1"]);
    env.rename("wal/1", "wal/2").expect("rename");
    assert_eq!(disk.crash(CrashPolicy::LoseAll, 1).paths(), ["wal/1"]);
    assert_eq!(disk.crash(CrashPolicy::KeepAll, 1).paths(), ["wal/2"]);
    env.rename("wal/2", "top").expect("rename");
    env.sync_dir("").expect("sync");
    assert_eq!(disk.crash(CrashPolicy::LoseAll, 1).paths(), ["top"], "with the rename before it");
    env.remove("top").expect("remove");
    assert_eq!(disk.crash(CrashPolicy::LoseAll, 1).paths(), ["top"]);
    env.sync_dir("").expect("sync");
    assert!(disk.crash(CrashPolicy::LoseAll, 1).paths().is_empty());
    assert_eq!(code(env.rename("top", "x")), Some(Code::FileMissing));
    assert_eq!(code(env.sync_dir("none")), Some(Code::FileMissing));
}

/// The results of reading, writing, syncing and renaming under such a fault.
fn of_sync_or_name(kind: FaultKind) -> [Option<Code>; 4] {
    match kind {
        FaultKind::SyncError => [None, None, Some(Code::SyncFailed), None],
        FaultKind::NoSpaceForSync => [None, None, Some(Code::DiskFull), None],
        FaultKind::NameError => [None, None, None, Some(Code::WriteFailed)],
        FaultKind::NoSpaceForName => [None, None, None, Some(Code::DiskFull)],
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_fault_has_its_effect() {
    let disk = SimDisk::new(5);
    let env = quiet(&disk);
    let file = env.open("a", OpenMode::READ_WRITE).expect("open");
    let (old, new) = ([1; 8192], [2; 8192]);
    let mut got = [0; 8192];
    for kind in [
        FaultKind::ReadError,
        FaultKind::ReadFlip,
        FaultKind::WriteError,
        FaultKind::ShortWrite,
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::WriteFlip,
        FaultKind::NoSpace,
        FaultKind::SyncError,
        FaultKind::NoSpaceForSync,
        FaultKind::NameError,
        FaultKind::NoSpaceForName,
    ] {
        file.set_len(0).expect("cut");
        file.write_at(&old, 0).expect("write");
        file.sync().expect("sync");
        let before = disk.faults_struck();
        disk.inject(Fault::on("a", kind, When::Nth(1)));
        let written = code(file.write_at(&new, 0));
        let read = code(file.read_at(&mut got, 0));
        let synced = code(file.sync());
        let renamed = code(env.rename("a", "b"));
        disk.clear_faults();
        let results = [read, written, synced, renamed];
        let differing = |from: &[u8]| got.iter().zip(from).filter(|(a, b)| a != b).count();
        let (ok, eio) = ([None; 4], Some(Code::WriteFailed));
        match kind {
            FaultKind::ReadError => {
                assert_eq!(results, [Some(Code::ReadFailed), None, None, None]);
            }
            FaultKind::ReadFlip | FaultKind::WriteFlip => {
                assert_eq!((results, differing(&new)), (ok, 1), "{kind:?}");
            }
            FaultKind::WriteError => {
                assert_eq!((results, got), ([None, eio, None, None], old));
            }
            FaultKind::ShortWrite => {
                assert_eq!(results, [None, eio, None, None]);
                let done = differing(&old);
                assert!(done < 8192 && done.is_multiple_of(SECTOR));
                assert!(got[..done].iter().all(|b| *b == 2));
            }
            FaultKind::LostWrite => assert_eq!((results, got), (ok, old)),
            FaultKind::MisdirectedWrite => {
                assert_eq!(results, ok);
                assert!(got[0] == 1 && disk.content("b").is_some_and(|c| c.contains(&2)));
            }
            FaultKind::NoSpace => {
                assert_eq!((results, got), ([None, Some(Code::DiskFull), None, None], old));
            }
            other => assert_eq!((results, got), (of_sync_or_name(other), new)),
        }
        assert_eq!(disk.faults_struck(), before + 1, "{kind:?}");
        if renamed.is_none() {
            env.rename("b", "a").expect("back");
        }
    }
}

/// A call is named by its number among all calls, which a run without faults records.
#[test]
fn the_numbered_call_fails() {
    let play = |arm: &dyn Fn(&SimDisk)| {
        let disk = SimDisk::new(5);
        let env = quiet(&disk);
        arm(&disk);
        let mode = OpenMode::READ_WRITE;
        let first = env.open("a", mode).and_then(|file| file.write_at(&[1; 4096], 0));
        let again = env.open("a", mode).and_then(|file| {
            file.write_at(&[2; 4096], 0)?;
            file.write_at(&[3; 4096], 4096)?;
            file.read_at(&mut [0; 4096], 0)?;
            file.sync()
        });
        let looked = env.list("").map(|_| ());
        ([code(first), code(again), code(looked)], disk)
    };
    let (clean, disk) = play(&|disk| disk.note_calls());
    assert_eq!((clean, disk.is_disturbed()), ([None; 3], false));
    let noted = disk.noted();
    let of = |noted: &Noted| (noted.call, noted.kinds[0], noted.needs_space);
    use FaultKind::*;
    let expected = [
        (1, NameError, true),
        (2, WriteError, true),
        (3, LookError, false),
        (4, WriteError, false),
        (5, WriteError, true),
        (6, ReadError, false),
        (7, SyncError, false),
        (8, LookError, false),
    ];
    assert_eq!(noted.iter().map(of).collect::<Vec<_>>(), expected);
    for (call, kind, needs_space) in expected {
        let at = When::Call(call);
        let (failed, disk) = play(&|disk| disk.inject(Fault::new(kind, at)));
        // The remaining statements create the file that could not be created.
        assert_eq!(failed.iter().flatten().count(), 1, "{call}");
        assert_eq!(disk.faults_struck(), 1, "{call}");
        let (full, disk) = play(&|disk| disk.full_at(call));
        let refused = full.iter().filter(|code| **code == Some(Code::DiskFull)).count() as u64;
        assert_eq!((refused, disk.is_disturbed()), (disk.refused(), refused > 0), "{call}");
        assert!(refused > 0 || !needs_space, "{call}");
    }
}

#[test]
fn faults_strike_at_the_given_path_and_call() {
    let disk = SimDisk::new(2);
    let env = quiet(&disk);
    let files = ["wal/1", "runs/1"];
    env.create_dir("wal").expect("create");
    env.create_dir("runs").expect("create");
    let open = |p| env.open(p, OpenMode::READ_WRITE).expect("open");
    let [wal, runs] = files.map(open);
    disk.inject(Fault::on("wal/", FaultKind::WriteError, When::Nth(3)));
    let write = |_| {
        runs.write_at(b"x", 0).expect("other paths neither count nor fail");
        wal.write_at(b"x", 0).is_err()
    };
    let failed: Vec<bool> = (0..5).map(write).collect();
    assert_eq!(failed, [false, false, true, false, false]);
    disk.inject(Fault::on("runs/", FaultKind::NoSpace, When::From(2)));
    let failed: Vec<bool> = (0..4).map(|_| runs.allocate(0, 1).is_err()).collect();
    assert_eq!(failed, [false, true, true, true]);
    disk.clear_faults();
    disk.inject(Fault::new(FaultKind::SyncError, When::Chance(250_000)));
    let failed = (0..1000).filter(|_| wal.sync().is_err()).count();
    assert!((200..300).contains(&failed), "{failed}");
}

/// After a failed sync a later one that succeeds does not bring back what the first one dropped.
#[test]
fn a_failed_sync_loses_its_writes_for_good() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let env = quiet(&disk);
        let file = env.open("a", OpenMode::READ_WRITE).expect("open");
        env.sync_dir("").expect("sync");
        file.write_at(b"x", 0).expect("write");
        disk.inject(Fault::new(FaultKind::SyncError, When::Nth(1)));
        assert_eq!(code(file.sync()), Some(Code::SyncFailed));
        file.sync().expect("a later sync says nothing");
        let mut byte = [0];
        file.read_at(&mut byte, 0).expect("still in the cache");
        let after = disk.crash(CrashPolicy::KeepAll, seed);
        *if after.content("a").is_some_and(|c| c == b"x") { &mut kept } else { &mut lost } += 1;
    }
    assert!(lost > 5 && kept > 5, "{lost} lost, {kept} kept");
}

#[test]
fn capacity_bounds_blocks_and_space_comes_back() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(10 * 4096));
    let env = quiet(&disk);
    let file = env.open("a", OpenMode::READ_WRITE).expect("open");
    file.set_len(1 << 30).expect("a hole takes nothing");
    file.allocate(0, 8 * 4096).expect("fits");
    assert_eq!(code(file.write_at(&[1; 3 * 4096], 8 * 4096)), Some(Code::DiskFull));
    file.write_at(&[1; 8 * 4096], 0).expect("allocated before");
    file.write_at(&[1; 2 * 4096], 8 * 4096).expect("the last two");
    assert_eq!(code(file.allocate(11 * 4096, 1)), Some(Code::DiskFull));
    file.punch(0, 4096).expect("punch");
    file.allocate(11 * 4096, 1).expect("there is space again");
    env.remove("a").expect("remove");
    assert_eq!(disk.used_bytes(), 10 * 4096, "an open file keeps its space");
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    let other = env.open("b", OpenMode::READ_WRITE).expect("open");
    other.write_at(&[1; 10 * 4096], 0).expect("all of it");
    assert_eq!(disk.crash(CrashPolicy::KeepAll, 1).used_bytes(), 10 * 4096);
}

#[test]
fn a_write_without_space_may_be_applied_in_part() {
    let mut lens = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.set_capacity(Some(2 * 4096));
        let file = quiet(&disk).open("a", OpenMode::READ_WRITE).expect("open");
        assert_eq!(code(file.write_at(&[1; 4 * 4096], 0)), Some(Code::DiskFull));
        let content = disk.content("a").expect("there");
        assert!(content.len() <= 2 * 4096 && content.iter().all(|b| *b == 1), "seed {seed}");
        assert!(disk.used_bytes() <= 2 * 4096);
        lens.insert(content.len());
    }
    assert!(lens.contains(&0) && lens.contains(&8192) && lens.len() > 8, "{lens:?}");
}

#[test]
fn locks_end_with_the_handle_and_with_the_machine() {
    let disk = SimDisk::new(1);
    let mode = OpenMode { lock: true, ..OpenMode::READ_WRITE };
    let env = quiet(&disk);
    let held = env.open("lock", mode).expect("open");
    assert_eq!(code(env.open("lock", mode)), Some(Code::DirectoryBusy));
    let after = disk.crash(CrashPolicy::KeepAll, 1);
    quiet(&after).open("lock", mode).expect("nobody holds it");
    drop(held);
    env.open("lock", mode).expect("free");
    let exclusive = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
    assert_eq!(code(env.open("lock", exclusive)), Some(Code::FileOpen));
    let reader = env.open("lock", OpenMode::READ).expect("open");
    assert_eq!(code(reader.write_at(b"x", 0)), Some(Code::WriteFailed));
}

#[test]
fn direct_io_must_be_aligned() {
    let env = quiet(&SimDisk::new(1));
    let file = env.open("a", OpenMode::READ_WRITE.direct()).expect("open");
    let mut buf = crate::AlignedBuf::new(1024);
    file.write_at(&buf, 512).expect("sectors");
    assert_eq!(code(file.write_at(&buf[..100], 0)), Some(Code::Internal));
    assert_eq!(code(file.write_at(&buf[..512], 100)), Some(Code::Internal));
    assert_eq!(code(file.read_at(&mut buf[1..513], 0)), Some(Code::Internal));
    assert_eq!(code(file.read_at(&mut buf, 1024)), Some(Code::ReadShort));
}

/// One script with a crash point at each call: before that call nothing differs; from it on every
/// call fails and nothing reaches the disk.
#[test]
fn a_crash_point_ends_everything() {
    let script = |disk: &SimDisk| -> Result<()> {
        let env = quiet(disk);
        env.create_dir("d")?;
        let file = env.open("d/a", OpenMode::READ_WRITE)?;
        file.allocate(0, 8192)?;
        file.write_at(&[1; 2048], 0)?;
        file.read_at(&mut [0; 10], 0)?;
        file.sync()?;
        env.rename("d/a", "d/b")?;
        env.sync_dir("d")?;
        file.len()?;
        file.set_len(100)?;
        env.remove("d/b")
    };
    let whole = SimDisk::new(1);
    script(&whole).expect("no crash");
    assert_eq!((whole.calls(), whole.changes()), (11, 9));
    for point in 1..=whole.calls() {
        let disk = SimDisk::new(1);
        disk.crash_at(point);
        let error = script(&disk).expect_err("crashes");
        assert!(is_crash(&error) && disk.is_crashed(), "call {point}: {error}");
        let hash = disk.hash();
        let env = quiet(&disk);
        assert!(env.open("d/a", OpenMode::READ_WRITE).is_err_and(|e| is_crash(&e)));
        assert!(env.remove("d/a").is_err_and(|e| is_crash(&e)));
        assert!(env.sync_dir("").is_err_and(|e| is_crash(&e)));
        assert_eq!((disk.hash(), disk.calls()), (hash, point));
    }
    let disk = SimDisk::new(1);
    disk.crash_at_change(4);
    let (heard, told) = (Arc::new(Mutex::new(Vec::new())), disk.clone());
    let hears = heard.clone();
    disk.at_crash(move |error| {
        let file = error.context("file").map(str::to_string);
        hears.lock().push((error.code(), file, told.is_crashed()));
    });
    assert!(script(&disk).is_err());
    let first_write = (Code::WriteFailed, Some("d/a".to_string()), true);
    assert_eq!(*heard.lock(), [first_write], "once, at the crash");
    assert_eq!(disk.calls(), 4, "the first write");
    // The write in flight may or may not have reached the disk.
    assert_eq!(disk.crash(CrashPolicy::KeepAll, 1).content("d/a").map(|c| c[0]), Some(1));
}

#[test]
fn rot_changes_durable_bytes_without_a_write() {
    let disk = SimDisk::new(1);
    let env = quiet(&disk);
    let file = env.open("a", OpenMode::READ_WRITE).expect("open");
    file.write_at(&[0; 100], 0).expect("write");
    file.sync().expect("sync");
    env.sync_dir("").expect("sync");
    assert!(disk.flip_bit("a", 7, 3) && disk.corrupt("a", 98, b"zz") && disk.truncate("a", 99));
    assert!(!disk.flip_bit("a", 99, 0) && !disk.corrupt("a", 98, b"zz") && !disk.truncate("b", 0));
    let content = disk.crash(CrashPolicy::LoseAll, 1).content("a").expect("there");
    assert_eq!((content[7], content[98], content.len()), (8, b'z', 99));
}
