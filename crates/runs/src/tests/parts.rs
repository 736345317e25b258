//! Parts: build, unique slots, credit, drop.
