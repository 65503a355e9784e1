package rpc

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// How long clients that find no room are told to wait: at random in between,
// so that they don't come back as one herd.
const (
	retryAfter  = time.Second
	retryBefore = 10 * time.Second
)

// RetryWait is how long one client that finds no room is told to wait: 1 to 10 s,
// at random.
func RetryWait() time.Duration {
	return retryAfter + rand.N(retryBefore-retryAfter) //nolint:gosec // no secret
}

// RetryAfter is the same as a value of the header Retry-After, in whole seconds.
func RetryAfter() string { return strconv.Itoa(int(math.Ceil(RetryWait().Seconds()))) }
