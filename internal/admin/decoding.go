package admin

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// What bodies may take together while they are decoded and carried out, in bytes. The values
// of a body take at most decodedOfByte for each of its bytes, and from a mebibyte on no more
// than config/strict lets them: decodedLeast, and decodedUsual for each byte. Bodies up to
// freeBody never wait: as many as there are writes at once take little.
const (
	maxDecoded    = 288 << 20
	decodedOfByte = 72
	decodedLeast  = 8 << 20
	decodedUsual  = 16
	freeBody      = 16 << 10
)

// turns lets bodies be decoded in turn: values take up to 72 times the memory of their text.
type turns struct {
	free *semaphore.Weighted
	used *atomic.Int64
}

func newTurns() turns { return turns{free: semaphore.NewWeighted(maxDecoded), used: new(atomic.Int64)} }

// decodedCost returns what the values of a body of n bytes take at most.
func decodedCost(n int64) int64 {
	return min(decodedOfByte*n, decodedLeast+decodedUsual*n, maxDecoded)
}

// await waits until there is memory for the values of a body of n bytes, which done gives
// back; false if there was none for answerWait.
func (t *turns) await(ctx context.Context, n int) (done func(), ok bool) {
	cost := decodedCost(int64(n))
	if n > freeBody {
		ctx, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		if t.free.Acquire(ctx, cost) != nil {
			return nil, false
		}
	}
	t.used.Add(cost)
	return func() {
		t.used.Add(-cost)
		if n > freeBody {
			t.free.Release(cost)
		}
	}, true
}

// BodyMemory returns what bodies of requests and the values in them take, and may take.
func (s *Server) BodyMemory() (used, most int64) {
	return s.bodies.used.Load() + s.decoded.used.Load(), s.bodies.most + maxDecoded
}
