// Package wire converts between xDS v3 messages and Isobar's own values, and
// guards both directions: what comes in is bounded and checked field by field,
// what goes out keeps the rules of every kind of client at once.
package wire
