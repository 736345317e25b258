//! The memory limit of the container, or of the process's control group: the lowest limit of the
//! group and of those above it that are mounted here, in both versions of control groups; and the
//! memory that is left below these limits.

use std::path::{Path, PathBuf};

/// The names of a group's files in one version of control groups.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// The line of `memory.stat` with the bytes of cached files that are given up first.
    inactive_file: &'static str,
}

const VERSION_2: Names =
    Names { limit: "memory.max", usage: "memory.current", inactive_file: "inactive_file" };
const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive_file: "total_inactive_file",
};

/// Bytes that the process may use; none without a limit. `read`: returns a file's text.
pub(crate) fn memory_limit(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limit = |(names, group): &(&Names, PathBuf)| number(read(&group.join(names.limit))?);
    groups(&read)?.iter().filter_map(limit).min()
}

/// Bytes that the process may still take before a limit is reached, the files that the system
/// caches for its groups counted as free; none without a limit.
pub(crate) fn memory_left(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let left = |(names, group): &(&Names, PathBuf)| {
        let limit = number(read(&group.join(names.limit))?)?;
        let used = number(read(&group.join(names.usage))?)?;
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cached =
            stat.lines().find_map(|line| line.strip_prefix(names.inactive_file)?.strip_prefix(' '));
        let cached = cached.and_then(|text| number(text.into())).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    };
    groups(&read)?.iter().filter_map(left).min()
}

fn number(text: String) -> Option<u64> {
    text.trim().parse().ok()
}

/// The directories of the process's memory control groups, with the names of their files.
fn groups(read: &impl Fn(&Path) -> Option<String>) -> Option<Vec<(&'static Names, PathBuf)>> {
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let groups = read(Path::new("/proc/self/cgroup"))?;
    Some(mounts.lines().filter_map(|line| mounted(line, &groups)).flatten().collect())
}

/// The groups that may have a limit, if this line names a mount of memory control groups: the
/// process's group, and those above it up to the mount.
fn mounted(mount: &str, groups: &str) -> Option<Vec<(&'static Names, PathBuf)>> {
    let (place, kind) = mount.split_once(" - ")?;
    let (root, at) = (place.split(' ').nth(3)?, place.split(' ').nth(4)?);
    let mut kind = kind.split(' ');
    let (is_new, has_memory) = (kind.next()?, kind.next_back()?.split(',').any(|o| o == "memory"));
    let (is_new, names) = match is_new {
        "cgroup2" => (true, &VERSION_2),
        "cgroup" if has_memory => (false, &VERSION_1),
        _ => return None,
    };
    let group = groups.lines().find_map(|line| group_of(line, is_new))?;
    // A mount may show a part of the tree (for example a container's). A group outside that part
    // has no name here; the part itself still bounds the container.
    let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    Some(below.ancestors().map(|group| (names, Path::new(at).join(group))).collect())
}

/// The process's group, if this line states it for this version.
fn group_of(line: &str, is_new: bool) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers) = (parts.next()?, parts.next()?);
    let is_it = match is_new {
        true => number == "0" && controllers.is_empty(),
        false => controllers.split(',').any(|name| name == "memory"),
    };
    parts.next().filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const OLD: &str = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        36 35 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        37 35 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        38 35 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    /// A container of the old version that sees its own part of the tree.
    const PART: &str =
        "37 35 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

    /// Returns the texts of a machine's files.
    fn reader(
        mounts: &str,
        groups: &str,
        files: &[(&str, &str)],
    ) -> impl Fn(&Path) -> Option<String> {
        move |path| match path.to_str()? {
            "/proc/self/mountinfo" => Some(mounts.into()),
            "/proc/self/cgroup" => Some(groups.into()),
            path => files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).into()),
        }
    }

    fn limit(mounts: &str, groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        memory_limit(reader(mounts, groups, files))
    }

    #[test]
    fn the_memory_left_is_that_of_the_tightest_group_with_cached_files_counted_as_free() {
        let group = "0::/a.slice/b.service\n";
        let files = [
            ("/sys/fs/cgroup/a.slice/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a.slice/memory.current", "900\n"),
            ("/sys/fs/cgroup/a.slice/memory.stat", "anon 500\ninactive_file 300\nactive_file 9\n"),
            ("/sys/fs/cgroup/a.slice/b.service/memory.max", "2000\n"),
            ("/sys/fs/cgroup/a.slice/b.service/memory.current", "700\n"),
        ];
        assert_eq!(memory_left(reader(NEW, group, &files)), Some(400));
        assert_eq!(memory_left(reader(NEW, group, &files[3..])), Some(1300), "without memory.stat");
        assert_eq!(memory_left(reader(NEW, group, &files[..1])), None, "the use is not known");
        assert_eq!(memory_left(reader(NEW, "0::/\n", &[])), None);
        let at = "/sys/fs/cgroup/memory/job/";
        let old = [
            (&*format!("{at}memory.limit_in_bytes"), "4096\n"),
            (&*format!("{at}memory.usage_in_bytes"), "5000\n"),
            (&*format!("{at}memory.stat"), "inactive_file 1\ntotal_inactive_file 1000\n"),
        ];
        let groups = "3:hugetlb,memory:/job\n";
        assert_eq!(memory_left(reader(OLD, groups, &old)), Some(96));
    }

    #[test]
    fn the_lowest_limit_of_nested_groups_applies() {
        let top = "/sys/fs/cgroup/memory.max";
        assert_eq!(limit(NEW, "0::/\n", &[(top, "536870912\n")]), Some(512 << 20));
        assert_eq!(limit(NEW, "0::/\n", &[(top, "max\n")]), None);
        assert_eq!(limit(NEW, "0::/\n", &[]), None, "the top of a machine has no such file");
        assert_eq!(limit(NEW, "0::/\n", &[(top, "twelve\n")]), None);
        // The limit of the service or of its slice, whichever is lower.
        let files = |slice, own| {
            let slice = ("/sys/fs/cgroup/a.slice/memory.max", slice);
            [slice, ("/sys/fs/cgroup/a.slice/b:c.service/memory.max", own)]
        };
        let group = "0::/a.slice/b:c.service\n";
        assert_eq!(limit(NEW, group, &files("1000\n", "max\n")), Some(1000));
        assert_eq!(limit(NEW, group, &files("1000\n", "900\n")), Some(900));
        assert_eq!(limit(NEW, group, &files("800\n", "900\n")), Some(800));
        assert_eq!(limit(NEW, "0::/a.slice\n", &files("max\n", "900\n")), None, "another group's");
    }

    #[test]
    fn the_first_version_has_a_tree_for_memory() {
        let at = "/sys/fs/cgroup/memory/job/memory.limit_in_bytes";
        let groups = "4:cpu:/other\n3:hugetlb,memory:/job\n0::/\n";
        assert_eq!(limit(OLD, groups, &[(at, "4096\n")]), Some(4096));
        assert_eq!(limit(OLD, "4:cpu:/job\n0::/\n", &[(at, "4096\n")]), None);
        let (top, cpu) = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9:memory:/elsewhere\n");
        let file = [(top, "8192\n")];
        assert_eq!(limit(PART, "9:memory:/docker/abc\n", &file), Some(8192));
        assert_eq!(limit(PART, cpu, &file), Some(8192), "its own name is not seen from inside");
        let inner = ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "7\n");
        assert_eq!(limit(PART, "9:memory:/docker/abc/x\n", &[file[0], inner]), Some(7));
    }

    #[test]
    fn malformed_mount_lists_set_no_limit() {
        for mounts in ["", "x", " - ", "1 2 3 4 5 - cgroup2", "1 2 - cgroup2 a rw\n\n", "- -"] {
            assert_eq!(limit(mounts, "0::/\n\n::\n", &[("/memory.max", "5")]), None, "{mounts}");
        }
    }
}
