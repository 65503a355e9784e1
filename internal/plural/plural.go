// Package plural chooses between singular and plural in messages.
package plural

import "fmt"

// Number is a number of things, >= 0.
type Number interface{ int | int64 | uint64 }

// Of returns one if n is 1, and many otherwise.
func Of[N Number](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Count returns a number with what it counts, such as "1 endpoint is" or "3 endpoints are".
func Count[N Number](n N, one, many string) string {
	return fmt.Sprintf("%d %s", n, Of(n, one, many))
}
