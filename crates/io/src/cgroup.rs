//! The memory limit of the container, or of the process's control group: the lowest limit of the
//! group and of those above it that are mounted here, in both versions of control groups.

use std::path::{Path, PathBuf};

/// Bytes that the process may use; none without a limit. `read`: returns a file's text.
pub(crate) fn memory_limit(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let limit = |file: PathBuf| read(&file)?.trim().parse::<u64>().ok();
    mounts.lines().filter_map(|line| files(line, &groups)).flatten().filter_map(limit).min()
}

/// The files that may state a limit, if this line names a mount of memory control groups: the file
/// of the process's group, and those above it up to the mount.
fn files(mount: &str, groups: &str) -> Option<Vec<PathBuf>> {
    let (place, kind) = mount.split_once(" - ")?;
    let (root, at) = (place.split(' ').nth(3)?, place.split(' ').nth(4)?);
    let mut kind = kind.split(' ');
    let (is_new, has_memory) = (kind.next()?, kind.next_back()?.split(',').any(|o| o == "memory"));
    let (is_new, name) = match is_new {
        "cgroup2" => (true, "memory.max"),
        "cgroup" if has_memory => (false, "memory.limit_in_bytes"),
        _ => return None,
    };
    let group = groups.lines().find_map(|line| group_of(line, is_new))?;
    // A mount may show a part of the tree (for example a container's). A group outside that part
    // has no name here; the part itself still bounds the container.
    let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let all = below.ancestors().map(|group| Path::new(at).join(group).join(name));
    Some(all.collect())
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

    fn limit(mounts: &str, groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        memory_limit(|path| match path.to_str()? {
            "/proc/self/mountinfo" => Some(mounts.into()),
            "/proc/self/cgroup" => Some(groups.into()),
            path => files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).into()),
        })
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
