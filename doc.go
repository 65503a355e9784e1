// Package isobar holds the vocabulary that all of Isobar shares: localities,
// services with their endpoints, the network between localities, and the
// assignments that come out. It is pure data: no clock, no goroutine, no I/O.
//
// Units throughout: rates in requests per second, latency in milliseconds,
// shares as fractions from 0 to 1. A "point" is one percent of a source's
// traffic.
package isobar
