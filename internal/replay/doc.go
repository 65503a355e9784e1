// Package replay takes down everything that pure code was given, as a file, and
// has pure code decide it again: a [Recorder] stands at the border of the loop,
// a [Player] behind a [Reader]. As nothing that is decided depends on anything
// else, the plans come out the same, byte for byte.
//
// A file is one or more segments: a mark and a version, then chunks of at most
// 1 MiB that are compressed and have a checksum each. The chunks hold records;
// the first of a segment tells who wrote it, the second is the state in which
// pure code was found, and then everything follows in the order in which it
// happened, with a digest of each plan.
package replay
