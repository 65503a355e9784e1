// Package deep writes Go values as bytes and reads them back, whatever they are
// made of, fields that nobody else can see included: the state of pure code in
// the middle of its work, so that a copy of it can go on elsewhere exactly as
// the original does.
//
// What is shared stays shared: two pointers, maps or slices that are the same
// memory are so again after reading, because pure code compares by identity
// what is immutable. Times keep their monotonic reading, because differences of
// times go into numbers. Channels, functions and interfaces can't be written;
// [Check] tells before anything is.
//
// What a value looks like in bytes follows from its types. [Fingerprint] names
// them, so that bytes are read only by a program that knows the same ones.
package deep
