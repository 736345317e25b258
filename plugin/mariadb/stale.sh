# Sourced by the plugin's build and by the test of its layout.
#
# Is an object older than a file that its compilation read, as the compiler listed them beside it?
is_stale() {
    [ -f "$1" ] && [ -f "$1.d" ] || return 0
    local read
    for read in $(sed 's/^[^:]*://; s/\\$//' "$1.d"); do
        [ ! "$read" -nt "$1" ] && [ -f "$read" ] || return 0
    done
    return 1
}
