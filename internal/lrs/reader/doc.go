// Package reader reads load reports from their bytes, without decoding them into
// generated types, and checks every number.
package reader
