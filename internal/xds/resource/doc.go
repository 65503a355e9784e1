// Package resource makes xDS resources from Isobar's own values and reads those of
// others. What comes in is bounded and checked field by field; what goes out keeps
// the rules of every kind of client at once.
package resource
