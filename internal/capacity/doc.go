// Package capacity estimates what the endpoints of a locality can serve from
// what requests experience there: their rate, how many are in progress, and how
// many fail. It is pure: it knows numbers only, and no clock.
package capacity
